package schedule

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/requorum/requorum/schedule/canary"
	"github.com/requorum/requorum/schedule/space"
	"github.com/requorum/requorum/schedule/status"
)

// serversEvery is how often the members' certificates are looked at.
const serversEvery = time.Hour

// canaryEvery is how often it is looked whether the identities are the right ones.
const canaryEvery = 15 * time.Minute

// folder is one that the agent writes to.
type folder struct {
	key, dir   string
	free, need int64
}

// watchHost looks at certificates and space now and then.
func (t *term) watchHost(ctx context.Context) {
	var servers []status.Certificate
	var serversAt, canaryAt time.Time
	every(ctx, hostEvery, func() {
		if client, _, _ := t.opened(); client != nil && time.Since(serversAt) >= serversEvery {
			servers = servers[:0:0]
			for _, c := range client.ServerCertificates(ctx) {
				if c.Err == nil { // that a member does not answer is told elsewhere
					servers = append(servers, status.Certificate{Use: "etcd server", Place: c.Endpoint, Expires: c.Expires})
				}
			}
			serversAt = time.Now()
		}
		var own []status.Certificate
		for _, c := range t.cfg.Certificates() {
			one := status.Certificate{Use: c.Use, Place: c.File, Expires: c.Expires}
			if c.Err != nil {
				one.Error = c.Err.Error()
			}
			own = append(own, one)
		}
		spaces := t.spaces()
		t.mu.Lock()
		t.seen.certificates, t.seen.folders = slices.Concat(own, servers), spaces
		t.mu.Unlock()
		if time.Since(canaryAt) >= canaryEvery && t.lookAtCanary(ctx) {
			canaryAt = time.Now()
		}
	})
}

// spaces are the folders that could run full, with what they may need.
func (t *term) spaces() []folder {
	t.mu.Lock()
	newest := t.seen.newest
	t.mu.Unlock()
	var all []folder
	add := func(key, dir string, need int64) {
		if free, known, err := space.Free(dir); err == nil && known {
			all = append(all, folder{key, dir, free, need})
		}
	}
	if t.cfg.Archiving() {
		_, _, archiver := t.opened()
		need := int64(t.cfg.Archive.SpoolLimit)
		if archiver != nil {
			need -= archiver.State().Spooled
		}
		add("archive.spool-dir", t.cfg.Archive.SpoolDir, need)
	}
	if newest != nil && t.unpacks() {
		add("resources.scratch-dir", t.cfg.Resources.ScratchDir, 2*newest.Object.RawSize)
	}
	return all
}

// unpacks tells whether any job that runs here unpacks a database.
func (t *term) unpacks() bool {
	j := t.cfg.Jobs
	return j.Structure.Enabled || j.Replay.Enabled || j.Drill.Enabled || j.Synthetic.Enabled
}

// lookAtCanary finds out whether what is encrypted here can be opened: a lost
// identity is found before the disaster. It is false where that could not be told.
func (t *term) lookAtCanary(ctx context.Context) bool {
	_, repo, _ := t.opened()
	if len(t.codec.Recipients) == 0 {
		return true
	}
	if repo == nil {
		return false
	}
	err := canary.Check(ctx, repo, t.codec.Recipients, t.identities)
	found := errors.Is(err, canary.ErrUnopened) || errors.Is(err, canary.ErrForeign)
	if err != nil && !found {
		// What was known stays: that the repository is away is a problem of its own.
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen.canary = err
	return true
}
