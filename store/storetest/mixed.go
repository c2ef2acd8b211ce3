package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/requorum/requorum/store/client"
)

// MixedArgs are what a cluster has to be started with for a mixed load: members
// come and go in a young cluster.
func MixedArgs() []string {
	return []string{"--strict-reconfig-check=false"}
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
	return o
}

// Observation is the hash that a live member served at a revision. No compaction
// came between the revision and the hash.
type Observation struct {
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
		m.clients = append(m.clients, newClient(t, client.Config{
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

// Over reports whether all requests have been made, and the rest has happened:
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
	require.NoError(t, errors.Join(m.failures...), "mixed load")
	for _, k := range r.missing() {
		t.Errorf("mixed load: %q never succeeded: %v", k, last[k])
	}
	failed := 0
	for _, c := range r.Done {
		failed += c.Failed
	}
	// While an alarm is raised, a leader moves or authentication begins, what
	// comes is refused; a slow machine is longer in it.
	if failed > r.Total()/3 {
		t.Errorf("mixed load: %d requests failed, %d succeeded: %v", failed, r.Total(), last)
	}
	if want := m.options.Observations; len(r.Observed) < want {
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

// request is one of a kind. Its answer is of no interest.
type request func(context.Context, *clientv3.Client) (any, error)

// insist tries until a request has succeeded: leaders change meanwhile, and members are
// killed. The error done means that an earlier try did it.
func (m *Mixed) insist(ctx context.Context, kind Kind, done error, do request) bool {
	if slices.Contains(m.options.Without, kind) {
		return true
	}
	var err error
	for i, deadline := 0, time.Now().Add(time.Minute); time.Now().Before(deadline); i++ {
		bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
		_, err = do(bounded, m.clients[i%len(m.clients)])
		cancel()
		if ctx.Err() != nil {
			return false
		}
		if err == nil || i > 0 && errors.Is(err, done) {
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

// Kind is one kind of operation in a mixed load.
type Kind string

// The kinds. Refused ones succeed when they are refused for their reason: most
// of these are entries of the log all the same.
const (
	PutSmall  Kind = "put, small"
	PutMedium Kind = "put, a few KB"
	PutLarge  Kind = "put, tens of KB"
	PutLeased Kind = "put with a lease"
	Delete    Kind = "delete"
	DeleteMap Kind = "delete a range"
	TxnThen   Kind = "transaction whose compares hold"
	TxnElse   Kind = "transaction whose compares fail"
	TxnNested Kind = "nested transaction"

	LeaseGrant     Kind = "lease grant"
	LeaseKeepAlive Kind = "lease keep-alive"
	LeaseRevoke    Kind = "lease revoke"
	LeaseExpire    Kind = "lease that expires"

	Compact         Kind = "compact"
	CompactPhysical Kind = "compact, and wait for it"

	RoleAdd        Kind = "role add"
	RoleGrant      Kind = "role grant-permission"
	RoleRevoke     Kind = "role revoke-permission"
	RoleDelete     Kind = "role delete"
	UserAdd        Kind = "user add"
	UserGrant      Kind = "user grant-role"
	UserRevoke     Kind = "user revoke-role"
	UserPassword   Kind = "user passwd"
	UserDelete     Kind = "user delete"
	AuthEnable     Kind = "auth enable"
	AuthDisable    Kind = "auth disable"
	UserAllowed    Kind = "put by a user who may"
	UserDenied     Kind = "put by a user who may not"
	NoSpaceRaise   Kind = "alarm NOSPACE raised"
	NoSpaceRefused Kind = "put refused for NOSPACE"
	NoSpaceClear   Kind = "alarm NOSPACE cleared"
	CorruptRaise   Kind = "alarm CORRUPT raised"
	CorruptRefused Kind = "put refused for CORRUPT"
	CorruptClear   Kind = "alarm CORRUPT cleared"

	LearnerAdd      Kind = "member add, learner"
	LearnerPromote  Kind = "member promote"
	MemberUpdate    Kind = "member update"
	MemberRemove    Kind = "member remove"
	VoterAdd        Kind = "member add, voter"
	LeaderMove      Kind = "move-leader"
	DowngradeEnable Kind = "downgrade enable"
	DowngradeCancel Kind = "downgrade cancel"
)

// Kinds are all that a mixed load does to a cluster of a version.
func Kinds(version string) []Kind {
	all := []Kind{
		PutSmall, PutMedium, PutLarge, PutLeased, Delete, DeleteMap, TxnThen, TxnElse, TxnNested,
		LeaseGrant, LeaseKeepAlive, LeaseRevoke, LeaseExpire, Compact, CompactPhysical,
		RoleAdd, RoleGrant, RoleRevoke, RoleDelete, UserAdd, UserGrant, UserRevoke, UserPassword, UserDelete,
		AuthEnable, AuthDisable, UserAllowed, UserDenied,
		NoSpaceRaise, NoSpaceRefused, NoSpaceClear, CorruptRaise, CorruptRefused, CorruptClear,
		LearnerAdd, LearnerPromote, MemberUpdate, MemberRemove, VoterAdd, LeaderMove,
	}
	if hasDowngrade(version) {
		all = append(all, DowngradeEnable, DowngradeCancel)
	}
	return all
}

// hasDowngrade leaves out 3.5, whose call nobody may use, and older ones.
func hasDowngrade(version string) bool { return version > "3.5" }

// Count is how often a kind of operation succeeded and failed. What failed may
// have happened.
type Count struct{ OK, Failed int }

// counts is safe for concurrent use.
type counts struct {
	mu     sync.Mutex
	byKind map[Kind]Count
	errors map[Kind]error // the last one of each kind
}

func (c *counts) note(kind Kind, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.byKind[kind]
	if err == nil {
		n.OK++
	} else {
		n.Failed++
		c.errors[kind] = err
	}
	c.byKind[kind] = n
}

func (c *counts) copy() (map[Kind]Count, map[Kind]error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.byKind), maps.Clone(c.errors)
}

// missing are the kinds that never succeeded.
func (r *MixedResult) missing() []Kind {
	return slices.DeleteFunc(slices.Clone(r.kinds), func(k Kind) bool { return r.Done[k].OK > 0 })
}

// observe asks members in turn for their hash at a revision of that moment.
func (m *Mixed) observe(ctx context.Context) {
	n := m.options.Observations
	for i := range n {
		if !m.await(ctx, float64(i+1)/float64(n+1)) {
			return
		}
		var err error
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline) && ctx.Err() == nil; {
			var o Observation
			if o, err = m.hashNow(ctx, i%len(m.clients)); err == nil {
				m.mu.Lock()
				m.observed = append(m.observed, o)
				m.mu.Unlock()
				break
			}
			pause(ctx, 20*time.Millisecond)
		}
		if err != nil {
			m.fail(fmt.Errorf("observing HashKV: %w", err))
			return
		}
	}
}

// hashNow takes a revision, sees to it that another one follows, and asks for
// the hash. Compactions wait meanwhile: they would change the hash of the past,
// and one before the next revision would belong to this one.
func (m *Mixed) hashNow(ctx context.Context, member int) (Observation, error) {
	m.past.Lock()
	defer m.past.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	first, err := m.clients[member].Put(ctx, MixedPrefix+"observed", "before")
	if err != nil {
		return Observation{}, err
	}
	o := Observation{Revision: first.Header.Revision}
	if _, err := m.clients[member].Put(ctx, MixedPrefix+"observed", "after"); err != nil {
		return Observation{}, err
	}
	err = hash(ctx, m.clients[member], m.cluster.members[member].ClientURL, &o)
	return o, err
}

func hash(ctx context.Context, client *clientv3.Client, endpoint string, o *Observation) error {
	h, err := client.HashKV(ctx, endpoint, o.Revision)
	if err != nil {
		return err
	}
	o.Hash, o.CompactedRevision = h.Hash, h.CompactRevision
	return nil
}

// final wants all members that run to agree at the end.
func (m *Mixed) final(t testing.TB) Observation {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var final Observation
	written := false
	for i, client := range m.clients {
		if !m.cluster.members[i].process.Running() || m.cluster.isIsolated(i) {
			continue
		}
		if !written { // behind requests that clients gave up, which may still be on their way
			written = true
			_, err := client.Put(ctx, MixedPrefix+"observed", "for the last time")
			require.NoError(t, err, "after the mixed load, member %s", m.cluster.members[i].Name)
		}
		head, err := client.Get(ctx, MixedPrefix+"observed") // waits until it has caught up
		require.NoError(t, err, "after the mixed load, member %s", m.cluster.members[i].Name)
		o := Observation{Revision: head.Header.Revision}
		require.NoError(t, hash(ctx, client, m.cluster.members[i].ClientURL, &o), "after the mixed load, HashKV of %s", m.cluster.members[i].Name)
		if final.Revision == o.Revision && (final.Hash != o.Hash || final.CompactedRevision != o.CompactedRevision) {
			t.Errorf("after the mixed load the members disagree: %+v and %+v", final, o)
		}
		final = o
	}
	return final
}
