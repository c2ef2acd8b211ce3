package store

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// DiskLatency is how long a member's disk took of late, by its own metrics.
type DiskLatency struct {
	// Known tells that there are metrics, and that something was written.
	Known bool
	// Sync is the mean time for a sync of the log, Commit for one of the database.
	Sync, Commit time.Duration
}

func (d DiskLatency) slow() bool { return d.Known && max(d.Sync, d.Commit) > SlowDisk }

func (d DiskLatency) String() string {
	if !d.Known {
		return "not known"
	}
	return fmt.Sprintf("a sync of the log takes %s, a commit of the database %s", d.Sync.Round(time.Millisecond), d.Commit.Round(time.Millisecond))
}

// diskCounters are what etcd counts about its disk since it started.
type diskCounters struct {
	sync, commit  histogram
	defragmenting bool // from 3.5 on
}

// histogram is the sum of observations, in seconds, and their number.
type histogram struct{ sum, count float64 }

// since is the mean of what came later; negative after a restart.
func (h histogram) since(before histogram) (mean time.Duration, known bool) {
	n := h.count - before.count
	if n <= 0 || h.sum < before.sum {
		return 0, false
	}
	return time.Duration((h.sum - before.sum) / n * float64(time.Second)), true
}

func (c diskCounters) since(before diskCounters) DiskLatency {
	sync, knownSync := c.sync.since(before.sync)
	commit, knownCommit := c.commit.since(before.commit)
	return DiskLatency{Known: knownSync || knownCommit, Sync: sync, Commit: commit}
}

// lastDisk keeps what an endpoint's metrics were when they were last read.
type lastDisk struct {
	mu    sync.Mutex
	known *diskCounters
}

func (l *lastDisk) swap(now diskCounters) (before *diskCounters) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, l.known = l.known, &now
	return before
}

const (
	// metricsLimit bounds what is read as metrics; etcd gives about 100 KB.
	metricsLimit = 8 << 20
	metricsPath  = "/metrics"
)

// diskMetrics reads them where the member serves them at its client URL: not
// where --listen-client-http-urls moves them elsewhere, or a proxy stands before
// it. That they are not to be had is no error, and false.
func (c *Client) diskMetrics(ctx context.Context, e *endpoint) (diskCounters, bool) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, e.at.network, e.at.addr)
	}
	// One request every some seconds: a connection that is kept would need care
	// when certificates change.
	transport := &http.Transport{DialContext: dial, DisableKeepAlives: true}
	scheme := "http"
	if e.at.useTLS {
		scheme = "https"
		files, err := (&tlsFiles{config: c.config}).load()
		if err != nil {
			return diskCounters{}, false // every other call says so
		}
		if files.ServerName == "" {
			files.ServerName = hostOf(e.at.authority)
		}
		transport.DialTLSContext = (&tlsDialer{dial: dial, config: files}).dialTLS
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+e.at.authority+metricsPath, nil)
	if err != nil {
		return diskCounters{}, false
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return diskCounters{}, false
	}
	defer resp.Body.Close() // it was read
	if resp.StatusCode != http.StatusOK {
		return diskCounters{}, false
	}
	return parseDiskMetrics(io.LimitReader(resp.Body, metricsLimit))
}

// tlsDialer makes TLS connections over dial.
type tlsDialer struct {
	dial   func(ctx context.Context, network, addr string) (net.Conn, error)
	config *tls.Config
}

func (d *tlsDialer) dialTLS(ctx context.Context, network, addr string) (net.Conn, error) {
	raw, err := d.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, d.config)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	return conn, nil
}

func hostOf(authority string) string {
	if host, _, err := net.SplitHostPort(authority); err == nil {
		return host
	}
	return authority
}

// parseDiskMetrics reads what matters out of the text format of Prometheus;
// false where it is not all there.
func parseDiskMetrics(r io.Reader) (diskCounters, bool) {
	var (
		c        diskCounters
		inflight float64
	)
	values := map[string]*float64{
		"etcd_disk_wal_fsync_duration_seconds_sum":        &c.sync.sum,
		"etcd_disk_wal_fsync_duration_seconds_count":      &c.sync.count,
		"etcd_disk_backend_commit_duration_seconds_sum":   &c.commit.sum,
		"etcd_disk_backend_commit_duration_seconds_count": &c.commit.count,
		"etcd_disk_defrag_inflight":                       &inflight,
	}
	found := 0
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		name, value, ok := bytes.Cut(lines.Bytes(), []byte(" "))
		target := values[string(name)]
		if !ok || target == nil {
			continue
		}
		v, err := strconv.ParseFloat(string(bytes.TrimSpace(value)), 64)
		if err != nil {
			return diskCounters{}, false
		}
		*target = v
		if target != &inflight {
			found++
		}
	}
	c.defragmenting = inflight > 0
	return c, lines.Err() == nil && found == 4
}
