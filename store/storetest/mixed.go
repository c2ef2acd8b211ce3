package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/requorum/requorum/store"
)

// MixedArgs are what a cluster has to be started with for a mixed load: cheap
// passwords, as each of the load's clients logs in anew whenever authentication
// is turned on, and members that come and go in a young cluster.
func MixedArgs() []string {
	return []string{"--bcrypt-cost=4", "--strict-reconfig-check=false"}
}

// MixedOptions say how much a mixed load does.
type MixedOptions struct {
	// Ops is how many requests the workers make at least; they go on, slowly,
	// until everything else has happened too. 0 is 3,000.
	Ops int
	// Seed gives each worker the operations that it makes, in their order; how
	// those of several workers interleave differs from run to run.
	Seed uint64
	// Workers make requests at the same time; 0 is 48.
	Workers int
	// Observations of HashKV, spread over the load; 0 is 24.
	Observations int
	// Rounds of everything that is rare (users, alarms, members); 0 is one for
	// each 25,000 operations.
	Rounds int
	// Faults says that members are killed or cut off meanwhile: requests may then
	// fail, and nothing is done that would cost the quorum.
	Faults bool
	// Without leaves kinds out: those of members where a test counts them.
	Without []Kind
}

func (o MixedOptions) withDefaults() MixedOptions {
	if o.Ops == 0 {
		o.Ops = 3000
	}
	if o.Workers == 0 {
		o.Workers = 48
	}
	if o.Observations == 0 {
		o.Observations = 24
	}
	if o.Rounds == 0 {
		o.Rounds = max(1, o.Ops/25_000)
	}
	if o.Faults {
		o.Without = append(slices.Clone(o.Without), VoterAdd)
	}
	return o
}

// Observation is the hash that a live member served at a revision. No compaction
// came between the revision and the hash.
type Observation struct {
	Time              time.Time
	Member            int
	Revision          int64
	CompactedRevision int64
	Hash              uint32
}

// MixedResult is what a mixed load did.
type MixedResult struct {
	Done     map[Kind]Count
	Observed []Observation // by revision
	Final    Observation   // at the end, where all running members agree
	Took     time.Duration
	kinds    []Kind
}

// Total is the number of operations that succeeded.
func (r *MixedResult) Total() int {
	n := 0
	for _, c := range r.Done {
		n += c.OK
	}
	return n
}

func (r *MixedResult) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d operations in %s:", r.Total(), r.Took.Round(time.Millisecond))
	for _, k := range r.kinds {
		fmt.Fprintf(&b, " %s %d", k, r.Done[k].OK)
		if failed := r.Done[k].Failed; failed > 0 {
			fmt.Fprintf(&b, " (and %d failed)", failed)
		}
		b.WriteString(";")
	}
	fmt.Fprintf(&b, " %d hashes observed", len(r.Observed))
	return b.String()
}

// Mixed is a mixed load under way.
type Mixed struct {
	cluster *Cluster
	options MixedOptions
	clients []*clientv3.Client // of one member each: a token is known there at once
	counts  counts
	started time.Time
	cancel  context.CancelFunc

	done     atomic.Int64 // requests of the workers
	scripted atomic.Bool  // the script has ended
	running  sync.WaitGroup

	// past keeps compactions out of observations.
	past        sync.Mutex
	marker      int64 // the revision of a put, to compact at
	compactions int

	leases leasePool

	mu       sync.Mutex
	observed []Observation
	failures []error
}

// StartMixed begins a load of every kind that etcd knows, on a cluster that was
// started with MixedArgs and without TLS. It ends with the test; call Wait.
// Authentication is off when it ends, and root has RootPassword.
func StartMixed(t testing.TB, c *Cluster, options MixedOptions) *Mixed {
	t.Helper()
	if c.options.TLS {
		t.Fatal("a mixed load adds members of its own, and they have no certificates")
	}
	m := &Mixed{
		cluster: c, options: options.withDefaults(), started: time.Now(),
		counts: counts{byKind: map[Kind]Count{}, errors: map[Kind]error{}},
	}
	for i := range c.Size() {
		// With a user from the beginning: the client logs in when it has to.
		m.clients = append(m.clients, newClient(t, store.ClientConfig{
			Endpoints: []string{c.members[i].ClientURL}, User: RootUser, Password: RootPassword,
		}))
	}
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	t.Cleanup(func() {
		cancel()
		m.running.Wait()
	})
	for i := range m.options.Workers {
		m.running.Go(func() { newMixedWorker(m, i).run(ctx) })
	}
	m.running.Go(func() { m.lease(ctx) })
	m.running.Go(func() { m.observe(ctx) })
	m.running.Go(func() {
		defer m.scripted.Store(true)
		m.script(ctx)
	})
	return m
}

// RunMixed is StartMixed and Wait.
func RunMixed(t testing.TB, c *Cluster, options MixedOptions) *MixedResult {
	t.Helper()
	return StartMixed(t, c, options).Wait(t)
}

// Done is how many requests the workers have made so far.
func (m *Mixed) Done() int { return int(m.done.Load()) }

// WaitFor waits until the workers have made a part of their requests, from 0 to
// 1.
func (m *Mixed) WaitFor(t testing.TB, part float64) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); !m.reached(part); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the mixed load made %d of %d requests in ten minutes", m.Done(), m.options.Ops)
		}
	}
}

func (m *Mixed) reached(part float64) bool { return float64(m.Done()) >= part*float64(m.options.Ops) }

// Over tells whether all requests have been made, and the rest has happened:
// Wait returns soon.
func (m *Mixed) Over() bool { return m.reached(1) && m.scripted.Load() }

// await waits for a part of the load; false when the load was ended before.
func (m *Mixed) await(ctx context.Context, part float64) bool {
	for !m.reached(part) {
		if !pause(ctx, 5*time.Millisecond) {
			return false
		}
	}
	return ctx.Err() == nil
}

// Wait waits for the end, and fails the test when a kind of operation never
// succeeded, when too many failed, or when members disagree.
func (m *Mixed) Wait(t testing.TB) *MixedResult {
	t.Helper()
	m.running.Wait()
	r := &MixedResult{Took: time.Since(m.started), Observed: m.observed}
	var last map[Kind]error
	r.Done, last = m.counts.copy()
	r.kinds = slices.DeleteFunc(Kinds(m.cluster.Version()), func(k Kind) bool { return slices.Contains(m.options.Without, k) })
	if err := errors.Join(m.failures...); err != nil {
		t.Errorf("mixed load: %v", err)
	}
	for _, k := range r.missing() {
		t.Errorf("mixed load: %q never succeeded: %v", k, last[k])
	}
	failed := 0
	for _, c := range r.Done {
		failed += c.Failed
	}
	// While an alarm is raised, a leader moves or authentication begins, what
	// comes is refused; a slow machine is longer in it.
	if !m.options.Faults && failed > r.Total()/3 {
		t.Errorf("mixed load: %d requests failed, %d succeeded: %v", failed, r.Total(), last)
	}
	if want := m.options.Observations; len(r.Observed) < want && !m.options.Faults {
		t.Errorf("mixed load: %d hashes were observed, want %d", len(r.Observed), want)
	}
	r.Final = m.final(t)
	return r
}

func (m *Mixed) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failures = append(m.failures, err)
}

// insist tries until an operation has succeeded: leaders change meanwhile, and
// members are killed. An error among done means that an earlier try did it.
func (m *Mixed) insist(ctx context.Context, kind Kind, do func(context.Context, *clientv3.Client) error, done ...error) bool {
	if slices.Contains(m.options.Without, kind) {
		return true
	}
	var err error
	for i, deadline := 0, time.Now().Add(time.Minute); time.Now().Before(deadline); i++ {
		bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
		err = do(bounded, m.clients[i%len(m.clients)])
		cancel()
		if i > 0 && slices.ContainsFunc(done, func(d error) bool { return errors.Is(err, d) }) {
			err = nil
		}
		if ctx.Err() != nil {
			return false
		}
		if err == nil {
			m.counts.note(kind, nil)
			return true
		}
		if !pause(ctx, 20*time.Millisecond) {
			return false
		}
	}
	m.counts.note(kind, err)
	m.fail(fmt.Errorf("%s: %w", kind, err))
	return false
}

// pause waits a while, or less when the load is ended: then it is false.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
