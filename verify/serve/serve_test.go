package serve

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/store/storetest"
)

var clientPrefix = clientv3.WithPrefix()

// Promise 1 of the design: a cluster of each version that was rebuilt, and serves
// what it was rebuilt from, is proved; what the proof wrote is gone.
func TestPromise1Proved(t *testing.T) {
	t.Parallel()
	for name, k := range map[string]rebuiltKind{
		"3.5 with users":         {version: "3.5", members: 3, load: storetest.Load{Keys: 50, Deletes: 10, Leases: 3, Users: 2}},
		"3.5 compacted":          {version: "3.5", members: 3, load: storetest.Load{Keys: 50, Deletes: 10, Overwrites: 20, Compact: true}},
		"3.6 with a learner":     {version: "3.6", members: 4, learners: []string{"m2"}, load: storetest.Load{Keys: 50, Leases: 2, LeaseTTL: 600}},
		"3.7 TLS, users, raised": {version: "3.7", members: 3, tls: true, bump: restore.BumpRequest{Mode: restore.BumpBy, Amount: 1_000_000}, load: storetest.Load{Keys: 50, Leases: 2, Users: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rebuild(t, k)
			report, err := Prove(t.Context(), r.request)
			if err != nil {
				t.Fatalf("%v; %+v", err, report)
			}
			t.Logf("%q", report.Proved)
			if complete := len(k.learners) == 0; report.Complete() != complete || len(report.Members) != k.members || report.All == 0 || report.Quorum == 0 || report.Quorum > report.All {
				t.Errorf("%+v", report)
			}
			for _, words := range []string{"HashKV of", "members are as they were planned", "a key was written under a lease", "authentication is"} {
				says(t, "proved", report.Proved, words)
			}
			if k.bump.Mode == "" {
				says(t, "proved", report.Proved, "the one that was computed of what was rebuilt")
			}
			if k.load.Users > 0 {
				says(t, "proved", report.Proved, "a read without a login is refused")
			}
			if len(k.learners) > 0 {
				says(t, "unproved", report.Unproved, "that m2 holds what the others hold")
				says(t, "proved", report.Proved, "the write reached m2")
				if len(report.Unproved) != 1 {
					t.Errorf("unproved %q", report.Unproved)
				}
			}
			r.noTrace(t)
		})
	}
}

// Promise 4: with authentication on and nobody to log in as, or the wrong one,
// what could not be looked at is said to be unproved, and the quorum is there.
func TestPromise4WithoutCredentials(t *testing.T) {
	t.Parallel()
	for _, version := range storetest.Some("3.5", "3.7") {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			r := rebuild(t, rebuiltKind{version: version, members: 3, load: storetest.Load{Keys: 10, Leases: 1, Users: 1}})
			for who, why := range map[string]string{"": "no user was given", "nobody": "the user name or the password is wrong"} {
				request := r.request
				request.Client.User, request.Client.Password = who, who
				report, err := Prove(t.Context(), request)
				require.NoError(t, err)
				if report.Complete() || report.All == 0 || len(report.Missing) > 0 {
					t.Errorf("%q: %+v", who, report)
				}
				for _, about := range []string{"that all members hold the same keys: ", "that it can be written to: ", "that its revision is above "} {
					says(t, "unproved", report.Unproved, about)
				}
				for _, s := range report.Unproved {
					if !strings.Contains(s, why) {
						t.Errorf("%q: %q does not say %q", who, s, why)
					}
				}
				says(t, "proved", report.Proved, "authentication is on, as in what was rebuilt")
				says(t, "proved", report.Proved, "a read without a login is refused")
				// They do not even say who they are.
				says(t, "unproved", report.Unproved, "that who answers as m1, m2, m3 is of the new cluster: ")
			}
			r.noTrace(t)
		})
	}
}

// waits keeps what was said of the wait.
type waits struct {
	mu  sync.Mutex
	all []Waiting
}

func (w *waits) hear(one Waiting) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, one)
}

// One member of three down is distinguished from two: the quorum serves, and the proof says
// that it is incomplete and why; or there is none, and that is an error within its
// bound. Before it is up, the wait says who is missing.
func TestPromise4MembersDown(t *testing.T) {
	t.Parallel()
	r := rebuild(t, rebuiltKind{version: "3.6", members: 3, load: storetest.Load{Keys: 10}})
	r.Kill(2)
	request := r.request
	request.Grace, request.Client.CommandTimeout = 1500*time.Millisecond, 10*time.Second // m3 may have led
	var heard waits
	request.Waiting = heard.hear
	began := time.Now()
	report, err := Prove(t.Context(), request)
	require.NoError(t, err)
	if report.Complete() || report.All != 0 || report.Quorum == 0 || len(report.Members) != 2 || len(report.Missing) != 1 || report.Missing[0].Name != "m3" || !strings.Contains(report.Missing[0].Why, "connection refused") {
		t.Errorf("%+v", report)
	}
	if took := time.Since(began); took < request.Grace {
		t.Errorf("m3 was given %s", took)
	}
	if last := heard.all[len(heard.all)-1]; !last.Quorum || len(last.Missing) != 1 || last.Missing[0].Name != "m3" {
		t.Errorf("heard %+v", last)
	}
	if n := len(heard.all); n < 2 || n > int(report.Took/reportEvery)+1 {
		t.Errorf("heard %d times in %s", n, report.Took)
	}
	says(t, "proved", report.Proved, "HashKV of m1, m2 is")

	r.Kill(1)
	began = time.Now()
	heard.all = nil
	request.Timeout, request.Client.CommandTimeout = 3*time.Second, 0
	report, err = Prove(t.Context(), request)
	var none *NoQuorumError
	if !errors.As(err, &none) || len(none.Missing) != 3 || report.Quorum != 0 || len(report.Proved) > 0 {
		t.Fatalf("%v; %+v", err, report)
	}
	if took := time.Since(began); took < request.Timeout || took > request.Timeout+50*time.Second {
		t.Errorf("it took %s", took)
	}
	for _, words := range []string{"m1: ", "m2: ", "m3: ", "connection refused"} {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("%q does not say %q", err, words)
		}
	}

	// They come up while somebody waits.
	request.Timeout, request.Grace = 30*time.Second, 30*time.Second
	heard.all = nil
	request.Waiting = func(w Waiting) {
		if heard.hear(w); len(heard.all) == 1 {
			r.Restart(t, 1)
			r.Restart(t, 2)
		}
	}
	report, err = Prove(t.Context(), request)
	if err != nil || !report.Complete() {
		t.Errorf("%v; %+v", err, report)
	}
	if first := heard.all[0]; first.Quorum || len(first.Missing) != 3 {
		t.Errorf("heard first %+v", first)
	}

	r.Kill(0)
	r.Kill(1)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 2*time.Second, errors.New("enough"))
	defer cancel()
	_, err = Prove(ctx, request)
	require.ErrorContains(t, err, "enough", "ended by its caller")
}

// A member that comes up after the proof is waited for and compared, though clients write by
// then. One that does not come, or holds other keys, stays missing.
func TestPromise1MemberComesLater(t *testing.T) {
	t.Parallel()
	lose := func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte("key"))
		k, _ := b.Cursor().First()
		return b.Delete(k)
	}
	for name, alter := range map[string]map[string]func(*bbolt.Tx) error{"equal": nil, "other keys": {"m3": lose}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rebuild(t, rebuiltKind{version: "3.6", members: 3, load: storetest.Load{Keys: 10}, alter: alter})
			r.Kill(2)
			request := r.request
			request.Grace, request.Client.CommandTimeout = time.Millisecond, 10*time.Second // m3 may have led
			report, err := Prove(t.Context(), request)
			require.NoError(t, err)
			require.NoError(t, Late(t.Context(), request, report))
			if len(report.Missing) != 1 || report.Missing[0].Name != "m3" || !strings.Contains(report.Missing[0].Why, "connection refused") || len(report.Members) != 2 {
				t.Fatalf("it does not come: %+v", report)
			}
			_, err = r.Client(t, 0).Put(t.Context(), "a client's", "x")
			require.NoError(t, err)
			request.Grace = 30 * time.Second
			var restart sync.Once
			request.Waiting = func(Waiting) { restart.Do(func() { r.Restart(t, 2) }) }
			require.NoError(t, Late(t.Context(), request, report))
			if alter != nil {
				if len(report.Missing) != 1 || !strings.Contains(report.Missing[0].Why, "it holds other keys") || len(report.Members) != 2 || report.Complete() {
					t.Errorf("%+v", report)
				}
				return
			}
			if !report.Complete() || len(report.Members) != 3 || report.Members[2].Name != "m3" || report.Members[2].HashKV.Hash != report.HashKV.Hash {
				t.Errorf("%+v", report)
			}
			says(t, "proved", report.Proved, "HashKV of m3, which came up later, is the same")
		})
	}
}

// Promise 2: a member that holds other keys, however few, is found: by its
// hash beside the others, and all of them by the source's.
func TestPromise2OtherContents(t *testing.T) {
	t.Parallel()
	lose := func(tx *bbolt.Tx) error {
		c := tx.Bucket([]byte("key")).Cursor()
		for k, v := c.First(); k != nil; k, v = c.Next() {
			if strings.Contains(string(v), "/load/") {
				changed := append([]byte(nil), v...)
				changed[len(changed)-1] ^= 1
				return tx.Bucket([]byte("key")).Put(append([]byte(nil), k...), changed)
			}
		}
		return errors.New("no key to change")
	}
	for name, alter := range map[string]map[string]func(*bbolt.Tx) error{
		"one": {"m2": lose}, "all": {"m1": lose, "m2": lose, "m3": lose},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rebuild(t, rebuiltKind{version: "3.5", members: 3, load: storetest.Load{Keys: 10}, alter: alter})
			report, err := Prove(t.Context(), r.request)
			var wrong *WrongError
			if !errors.As(err, &wrong) || len(wrong.Wrong) != 1 || report.Complete() || !slices.Equal(report.Wrong, wrong.Wrong) {
				t.Fatalf("%v; %+v", err, report)
			}
			if name == "all" {
				says(t, "wrong", wrong.Wrong, "HashKV of all members is")
				return
			}
			says(t, "wrong", wrong.Wrong, "the members hold other keys: ")
			if report.Members[0].HashKV.Hash != report.Members[2].HashKV.Hash || report.Members[0].HashKV.Hash == report.Members[1].HashKV.Hash {
				t.Errorf("%+v", report.Members)
			}
			r.request.HashKV = nil // as after a bump
			if _, err := Prove(t.Context(), r.request); !errors.As(err, &wrong) {
				t.Errorf("without the source: %v", err)
			}
		})
	}
}

// Promise 4: whatever else is other than it has to be is found, and called by
// its name.
func TestPromise4WhatIsWrong(t *testing.T) {
	t.Parallel()
	r := rebuild(t, rebuiltKind{version: "3.7", members: 1, load: storetest.Load{Keys: 10, Leases: 1, Users: 1}})
	member := func(change func(*restore.Member)) func(*Request) {
		return func(q *Request) {
			q.Members = slices.Clone(q.Members)
			change(&q.Members[0])
		}
	}
	for name, c := range map[string]struct {
		change func(*Request)
		words  string
	}{
		"behind":       {func(q *Request) { q.RevisionAtLeast += 100 }, "the write has revision"},
		"another hash": {func(q *Request) { h := *q.HashKV; h.Hash++; q.HashKV = &h }, "of what was rebuilt it is"},
		"auth off":     {func(q *Request) { q.AuthEnabled = new(bool) }, "authentication is on, and was off"},
		"another name": {member(func(m *restore.Member) { m.Name = "other" }), "is called m1"},
		"another URL":  {member(func(m *restore.Member) { m.PeerURLs = []string{"http://10.0.0.1:2380"} }), "10.0.0.1"},
		"one more member": {func(q *Request) {
			q.Members = append(slices.Clone(q.Members), restore.Member{Name: "m9", ID: 9, Learner: true})
			q.Grace = time.Millisecond
		}, "m9 (0000000000000009) is not in the membership"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			request := r.request
			c.change(&request)
			report, err := Prove(t.Context(), request)
			var wrong *WrongError
			if !errors.As(err, &wrong) {
				t.Fatalf("%v; %+v", err, report)
			}
			says(t, "wrong", wrong.Wrong, c.words)
		})
	}
	t.Run("nothing known of the image", func(t *testing.T) {
		t.Parallel()
		request := r.request
		request.AuthEnabled = nil
		report, err := Prove(t.Context(), request)
		if err != nil || report.Complete() || len(report.Unproved) != 1 {
			t.Errorf("%v; %+v", err, report)
		}
	})
}

// A write that is refused because of an alarm names the alarm, and what shows its member.
func TestProve_Alarm_NamesIt(t *testing.T) {
	t.Parallel()
	r := rebuild(t, rebuiltKind{version: "3.7", members: 1, load: storetest.Load{Keys: 10}})
	for _, alarm := range []pb.AlarmType{pb.AlarmType_NOSPACE, pb.AlarmType_CORRUPT} {
		_, err := pb.NewMaintenanceClient(r.Client(t, 0).ActiveConnection()).Alarm(t.Context(), &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: uint64(r.request.Members[0].ID), Alarm: alarm})
		require.NoError(t, err)
		report, err := Prove(t.Context(), r.request)
		require.ErrorContains(t, err, "the alarm "+alarm.String()+" is raised: 'etcdctl alarm list'", "%+v", report)
	}
}

// An old member that runs on the address of a new one is reported as what it is, and
// nothing of it counts.
func TestPromise6OldMemberAnswers(t *testing.T) {
	t.Parallel()
	old := storetest.Start(t, storetest.Options{Version: "3.7"})
	r := rebuild(t, rebuiltKind{version: "3.7", members: 3, load: storetest.Load{Keys: 5}})
	r.Kill(2)
	request := r.request
	request.Grace, request.Client.CommandTimeout = time.Second, 10*time.Second // m3 may have led
	request.Client.Endpoints = []string{r.Member(0).ClientURL, r.Member(1).ClientURL, old.Member(0).ClientURL}
	request.ClientURLs = map[string][]string{"m3": {old.Member(0).ClientURL}}
	report, err := Prove(t.Context(), request)
	require.NoError(t, err)
	if len(report.Missing) != 1 || report.Missing[0].Name != "m3" || !strings.Contains(report.Missing[0].Why, "something old runs there") {
		t.Errorf("%+v", report)
	}
	request.Client.Endpoints, request.Timeout = []string{old.Member(0).ClientURL}, time.Second
	request.ClientURLs = nil
	var none *NoQuorumError
	if _, err := Prove(t.Context(), request); !errors.As(err, &none) || !strings.Contains(err.Error(), "something old runs there") {
		t.Errorf("%v", err)
	}
}
