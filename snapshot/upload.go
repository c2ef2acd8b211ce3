package snapshot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"filippo.io/age"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
)

// cleanupTime bounds the removal of objects that turned out not to do, after
// the backup's own context may have ended.
const cleanupTime = 30 * time.Second

// upload is the stored object of one backup on its way to all targets.
type upload struct {
	codec   *codec.Writer
	hash    *streamHash
	fan     *sinks.FanOut
	targets []*target // that the fan-out writes to, in its order
	names   []string  // of the object in each
	sum     string    // of the database, once the stream was whole
}

// startUpload starts the object in every repository that has not failed.
func (t *taking) startUpload(ctx context.Context, id string) (*upload, error) {
	u := &upload{hash: newStreamHash()}
	encrypted := len(t.Codec.Recipients) > 0
	attempts := make([]int, len(t.targets))
	for i, target := range t.targets {
		if target.err == nil {
			attempts[i], target.err = t.freeAttempt(ctx, target, id)
		}
	}
	if err := t.anyLeft(); err != nil {
		return nil, err
	}
	var to []sinks.Target
	for i, target := range t.targets {
		if target.err != nil {
			continue
		}
		name := repository.SnapshotAttemptName(target.timeline.ID, id, attempts[i], encrypted)
		u.targets = append(u.targets, target)
		u.names = append(u.names, name)
		to = append(to, sinks.Target{Sink: target.sink, Name: name, Options: sinks.CreateOptions{Lock: true}})
	}
	var err error
	if u.fan, err = sinks.NewFanOut(ctx, to); err != nil {
		return nil, err
	}
	opts := t.Codec
	opts.RawHash = u.hash
	if u.codec, err = codec.NewWriter(ctx, u.fan, opts); err != nil {
		return nil, errors.Join(err, u.fan.Abort())
	}
	return u, nil
}

// close ends the stored bytes and checks the stream's trailer.
func (u *upload) close() error {
	if err := u.codec.Close(); err != nil {
		return err
	}
	sum, err := u.hash.Check()
	if err != nil {
		return &memberError{err}
	}
	u.sum = sum
	return nil
}

// identity opens what was stored, where it is encrypted.
func (u *upload) identity() []age.Identity {
	if k := u.codec.FileKeyIdentity(); k != nil {
		return []age.Identity{k}
	}
	return nil
}

// abort leaves nothing. After commit it does nothing.
func (u *upload) abort() {
	u.codec.Abort()
	// What Abort could not clear away is unreachable without a manifest, and
	// the error that led here is the one to report.
	u.fan.Abort() //nolint:errcheck // see above
}

// commit makes the object visible in all repositories that took it whole. It
// fails when none did.
func (u *upload) commit(ctx context.Context) error {
	var failed []error
	for i, r := range u.fan.Commit(ctx) {
		if r.Err != nil {
			u.targets[i].err = r.Err
			failed = append(failed, fmt.Errorf("%s: %w", u.targets[i].sink, r.Err))
		}
	}
	if len(failed) == len(u.targets) {
		return errors.Join(failed...)
	}
	return nil
}

// remove takes a committed object out of all repositories again.
func (u *upload) remove() error {
	var errs []error
	for i, target := range u.targets {
		if target.err == nil {
			errs = append(errs, removeObject(target, u.names[i]))
		}
	}
	return errors.Join(errs...)
}

// removeObject removes an object that has no manifest. One that is locked
// already stays, which harms nothing: without a manifest it is no backup.
func removeObject(target *target, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTime)
	defer cancel()
	err := target.sink.Delete(ctx, name)
	if errors.Is(err, sinks.ErrLocked) || errors.Is(err, sinks.ErrDenied) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove %s in %s, which belongs to no backup: %w", name, target.sink, err)
	}
	return nil
}
