package rescue

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/requorum/requorum/schedule/control/client"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store"
)

// clientURLs are all that are known: of the cluster file, of what a run decided, and
// of the members that were found.
func (d *driver) clientURLs(more []snapshot.Member) []string {
	var all []string
	add := func(urls []string) {
		for _, u := range urls {
			if !slices.Contains(all, u) {
				all = append(all, u)
			}
		}
	}
	for _, h := range d.cfg.Hosts {
		add(h.ClientURLs)
	}
	add(d.cfg.Etcd.Endpoints)
	for _, r := range d.runs {
		if k, err := read(r); err == nil && k.decision != nil {
			add(k.decision.clientURLs())
			if k.decision.Plan != nil {
				for _, m := range k.decision.Plan.Members {
					add(m.ClientURLs)
				}
			}
		}
	}
	for _, m := range more {
		add(m.ClientURLs)
	}
	return all
}

// clientConfig reaches members as the cluster file says.
func (d *driver) clientConfig(endpoints []string) (store.ClientConfig, error) {
	e := d.cfg.Etcd
	if e.Dial != nil {
		c := *e.Dial
		c.Endpoints, c.Logger = endpoints, d.logger
		return c, nil
	}
	c := store.ClientConfig{Endpoints: endpoints, CACert: e.CACert, Cert: e.Cert, Key: e.Key, User: e.User, Logger: d.logger}
	if e.PasswordFile != "" {
		data, err := os.ReadFile(e.PasswordFile)
		if err != nil {
			return c, fmt.Errorf("the password of etcd's user: %w", err)
		}
		c.Password, _, _ = strings.Cut(string(data), "\n")
		c.Password = strings.TrimSuffix(c.Password, "\r")
	}
	return c, nil
}

// quorum asks whether the cluster serves, with a read that a quorum has to confirm.
func (d *driver) quorum(ctx context.Context, endpoints []string) (Quorum, error) {
	q := Quorum{Asked: endpoints}
	if len(endpoints) == 0 {
		q.Unknown = "no client URL of a member is known: give client-urls in the cluster file, or --endpoints"
		return q, nil
	}
	cfg, err := d.clientConfig(endpoints)
	if err != nil {
		return q, err
	}
	// Members that answer may be electing a leader: they are given time for it. One
	// that is just ending resets connections, which looks as if it spoke otherwise.
	cfg.CommandTimeout = min(store.DefaultCommandTimeout, d.election)
	_ = d.mayElect() // from now on
	for {
		err = d.serves(ctx, cfg, &q)
		if err == nil || !q.Answered && !slices.ContainsFunc(reasons(err), unspoken) || !d.mayElect() {
			break
		}
		d.told.waiting(PhaseLook, fmt.Sprintf("members answer, and no quorum of them does: they may be electing a leader, and get %s for it", d.election))
		if err := pause(ctx, electionPause); err != nil {
			return q, err
		}
	}
	if err == nil || ctx.Err() != nil {
		return q, ctx.Err()
	}
	q.Answers = reasons(err)
	var mixed *store.MixedClustersError
	switch {
	case errors.As(err, &mixed):
		q.Unknown = err.Error()
	case errors.Is(err, store.ErrLogin), errors.Is(err, store.ErrPermission):
		q.Unknown = "a member answers, and asks who we are: give etcd.user and etcd.password-file, or etcd.cert, in the cluster file: " + err.Error()
	case slices.ContainsFunc(q.Answers, unspoken), anySpeaksTLS(ctx, endpoints):
		q.Unknown = "something answers that we cannot speak with, which may be a member that serves: look at etcd.cacert, etcd.cert and the client URLs in the cluster file: " + err.Error()
	}
	return q, nil
}

const (
	// electionTime is what members that answer are given to elect a leader before
	// their quorum is taken for lost. With usual election timeouts it takes them a
	// second or two.
	electionTime  = 10 * time.Second
	electionPause = 500 * time.Millisecond
)

// mayElect tells whether members still have time to elect a leader. They get it
// once in a command, whatever is asked how often.
func (d *driver) mayElect() bool {
	if d.elected.IsZero() {
		d.elected = time.Now().Add(d.election)
	}
	return time.Now().Before(d.elected)
}

// serves asks without a login first: that goes through the log, and would only wait
// where there is no quorum.
func (d *driver) serves(ctx context.Context, cfg store.ClientConfig, q *Quorum) error {
	anyone := cfg
	anyone.User, anyone.Password = "", ""
	err := d.barrier(ctx, anyone, q)
	if cfg.User != "" && (errors.Is(err, store.ErrLogin) || errors.Is(err, store.ErrPermission)) {
		return d.barrier(ctx, cfg, q)
	}
	return err
}

func (d *driver) barrier(ctx context.Context, cfg store.ClientConfig, q *Quorum) error {
	c, err := store.Dial(ctx, cfg)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // nothing is under way any more
	survey, err := c.Survey(ctx)
	if err != nil {
		return err
	}
	q.Answered = true
	b, err := c.Barrier(ctx, survey)
	if err != nil {
		return err
	}
	q.Serves, q.By, q.ClusterID, q.Revision = true, b.Member.Name, snapshot.ID(survey.ClusterID), b.Revision
	if q.By == "" {
		q.By = b.Member.Endpoint
	}
	q.Members = map[snapshot.ID]string{}
	for _, m := range survey.Membership {
		q.Members[snapshot.ID(m.ID)] = m.Name
	}
	return nil
}

// reasons are the single ones of what was joined.
func reasons(err error) []string {
	var barrier *store.BarrierError
	if errors.As(err, &barrier) {
		var all []string
		for _, f := range barrier.Failures {
			all = append(all, f.Error())
		}
		return all
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []string
		for _, e := range joined.Unwrap() {
			all = append(all, e.Error())
		}
		return all
	}
	return []string{err.Error()}
}

// unspoken tells of a failure that is no silence: somebody was there, and it is we
// who cannot speak with him. A member that waits for its quorum since its start is
// silent.
func unspoken(reason string) bool {
	return !strings.Contains(reason, "took too long") &&
		slices.ContainsFunc([]string{"TLS handshake", "tls:", "x509", "certificate", "does not speak TLS"}, func(s string) bool { return strings.Contains(reason, s) })
}

// anySpeaksTLS asks all at once: hosts that are off say nothing at all.
func anySpeaksTLS(ctx context.Context, endpoints []string) bool {
	var all sync.WaitGroup
	var some atomic.Bool
	for _, u := range endpoints {
		all.Go(func() {
			if speaksTLS(ctx, u) {
				some.Store(true)
			}
		})
	}
	all.Wait()
	return some.Load()
}

// speaksTLS tells whether at the address of a URL without TLS somebody speaks it.
func speaksTLS(ctx context.Context, endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, store.DefaultDialTimeout)
	defer cancel()
	// Only that it is TLS counts: nothing is sent, and nothing that is read believed.
	c, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", u.Host) //nolint:gosec // as said
	if err != nil {
		return client.Alerted(err)
	}
	_ = c.Close() // nothing was sent
	return true
}

// replaceOne are the commands that replace a single member of a cluster that serves.
func (d *driver) replaceOne(q Quorum) []string {
	endpoint := "URL"
	if len(q.Asked) > 0 {
		endpoint = strings.Join(q.Asked, ",")
	}
	return []string{
		"etcdctl --endpoints " + endpoint + " member list",
		"etcdctl --endpoints " + endpoint + " member remove ID-OF-THE-LOST-MEMBER",
		"etcdctl --endpoints " + endpoint + " member add NAME --learner --peer-urls https://HOST:2380",
		"start etcd on that host, with an empty data directory, --initial-cluster-state existing and the --initial-cluster that was printed",
		"etcdctl --endpoints " + endpoint + " member promote ID-OF-THE-NEW-MEMBER",
	}
}
