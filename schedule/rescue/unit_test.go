package rescue

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/schedule/control/protocol"
	"github.com/requorum/requorum/schedule/rescue/journal"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay"
)

func planned(chosen string, proven bool, lost uint64) *recovery.Plan {
	p := &recovery.Plan{ClusterID: 7, Chosen: chosen, Proven: proven, Loss: recovery.Loss{Entries: lost, Text: "entries"}}
	p.Bump = recovery.Bump{Raise: !proven, HighestKnown: 500}
	p.Candidates = []recovery.Candidate{{Name: chosen, Revision: recovery.Bounds{AtLeast: 300, AtMost: 400}, Source: &recovery.Source{Index: 90}}}
	return p
}

// Promise 4: what is worse than what was confirmed is asked again, and nothing else.
func TestWorse(t *testing.T) {
	member := []recovery.NewMember{{Name: "m1", PeerURLs: []string{"http://a:1"}}}
	for _, c := range []struct {
		what     string
		before   *recovery.Plan
		unproven bool // was confirmed
		now      *recovery.Plan
		want     string // empty: not worse
	}{
		{"the same", planned("m1", true, 0), false, planned("m1", true, 0), ""},
		{"proven now", planned("m1", false, 3), false, planned("m2", true, 0), ""},
		{"not proven any more", planned("m1", true, 0), false, planned("m1", false, 0), "unproven"},
		{"unproven, which was not confirmed", planned("m1", false, 0), false, planned("m1", false, 0), "unproven"},
		{"unproven, which was confirmed", planned("m1", false, 1), true, planned("m1", false, 1), ""},
		{"another source", planned("m1", false, 0), true, planned("m2", false, 0), "from m2"},
		{"more lost", planned("m1", false, 1), true, planned("m1", false, 2), "more would be lost"},
		{"nothing was known", &recovery.Plan{}, false, planned("m1", true, 0), "only now"},
	} {
		d := &decision{Plan: c.before, Unproven: c.unproven, Members: member, Bump: restore.BumpRequest{Mode: restore.BumpBy}}
		got := strings.Join(d.worse(&Prospect{Plan: c.now, Members: member}), "; ")
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
	d := &decision{Plan: planned("m1", true, 0), Members: member}
	if got := d.worse(&Prospect{Plan: planned("m1", true, 0)}); len(got) != 1 {
		t.Errorf("other members: %q", got)
	}
}

// Promise 8 of the design: whatever revision the replay ends with, within what is
// known of it, what comes out lies 1e9 beyond all that was seen; and nothing is
// raised where nothing is lost.
func TestBump(t *testing.T) {
	if b := bumpOf(planned("m1", true, 0), asked{}); b.Mode != restore.BumpNone {
		t.Errorf("%+v", b)
	}
	for _, a := range []asked{{}, {Target: walreplay.Target{Kind: walreplay.AtIndex, Index: 20}}} {
		b := bumpOf(planned("m1", false, 0), a)
		low := int64(300)
		if a.Target.Kind != walreplay.Latest {
			low = 1 // a target may lie before all that is known
		}
		if b.Mode != restore.BumpBy || low+b.Amount < 500+restore.DefaultBump {
			t.Errorf("%+v: %+v", a, b)
		}
	}
	if b := bumpOf(planned("m1", false, 0), asked{Bump: restore.BumpRequest{Mode: restore.BumpBy, Amount: 9}}); b.Amount != 9 {
		t.Errorf("%+v", b)
	}
}

// Promise 5: hosts that came to different states are told apart, by whatever differs.
func TestDifferences(t *testing.T) {
	dec := &decision{Plan: planned("m1", true, 0), NewClusterID: 8}
	built := func(change func(*protocol.Rebuilt)) *protocol.Rebuilt {
		b := &protocol.Rebuilt{Index: 90, Term: 3, Revision: 310, HashKV: snapshot.HashKV{Hash: 5, Revision: 310},
			Recipe:  &walreplay.Recipe{BaseIndex: 10, Index: 90},
			Restore: &restore.Result{Plan: &restore.Plan{ClusterID: 8}, RevisionAfter: 310}}
		change(b)
		return b
	}
	same := func(*protocol.Rebuilt) {}
	if got := differences(dec, map[string]*protocol.Rebuilt{"m1": built(same), "m2": built(same)}); len(got) > 0 {
		t.Errorf("%q", got)
	}
	for what, change := range map[string]func(*protocol.Rebuilt){
		"index":     func(b *protocol.Rebuilt) { b.Index = 91 },
		"term":      func(b *protocol.Rebuilt) { b.Term = 4 },
		"revision":  func(b *protocol.Rebuilt) { b.Revision = 311 },
		"bump":      func(b *protocol.Rebuilt) { b.Restore.RevisionAfter = 400 },
		"hash":      func(b *protocol.Rebuilt) { b.HashKV.Hash = 6 },
		"chain":     func(b *protocol.Rebuilt) { b.Recipe.Replayed[0] = 1 },
		"cluster 0": func(b *protocol.Rebuilt) { b.Restore.Plan.ClusterID = 9 },
	} {
		if got := differences(dec, map[string]*protocol.Rebuilt{"m1": built(same), "m2": built(change)}); len(got) != 1 || !strings.Contains(got[0], strings.Fields(what)[0]) {
			t.Errorf("%s: %q", what, got)
		}
	}
	// Another way has another chain, and the same end.
	other := func(b *protocol.Rebuilt) { b.Recipe.BaseIndex, b.Recipe.Replayed[0] = 20, 1 }
	if got := differences(dec, map[string]*protocol.Rebuilt{"m1": built(same), "m2": built(other)}); len(got) > 0 {
		t.Errorf("%q", got)
	}
	early := func(b *protocol.Rebuilt) { b.Index = 80 }
	if got := differences(dec, map[string]*protocol.Rebuilt{"m1": built(early), "m2": built(early)}); len(got) != 1 {
		t.Errorf("short of the plan: %q", got)
	}
}

// TestTimes: a phase that is gone through twice took as long as both, without what
// came between; an attempt that was killed has no end.
func TestTimes(t *testing.T) {
	k, at := newKnown(), time.Unix(1e9, 0)
	for _, e := range []struct {
		after int
		event journal.Event
		phase Phase
		host  string
	}{
		{0, journal.Begun, PhaseQuiesce, ""}, {0, journal.Begun, PhaseQuiesce, "m1"}, {2, journal.Done, PhaseQuiesce, "m1"}, {3, journal.Done, PhaseQuiesce, ""},
		{3, journal.Begun, PhaseRebuild, ""}, {20, journal.Begun, PhaseRebuild, ""}, {27, journal.Done, PhaseRebuild, ""},
		{30, journal.Begun, PhaseQuiesce, ""}, {30, journal.Begun, PhaseQuiesce, "m1"}, {31, journal.Done, PhaseQuiesce, "m1"}, {31, journal.Done, PhaseQuiesce, ""},
	} {
		if err := k.take(journal.Entry{Time: at.Add(time.Duration(e.after) * time.Second), Event: e.event, Phase: string(e.phase), Host: e.host}); err != nil {
			t.Fatal(err)
		}
	}
	want := []PhaseTime{
		{PhaseQuiesce, 4 * time.Second, []HostTime{{"m1", 3 * time.Second}}},
		{PhaseRebuild, 7 * time.Second, nil},
	}
	if got := k.times(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
