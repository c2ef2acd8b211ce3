package recovery

import (
	"strings"
	"testing"

	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/restore/recovery/supervisor"
	"github.com/requorum/requorum/snapshot"
)

// TestStaleFlags: what hosts have is held against the new members; where it is not
// known it is told only if names or URLs have changed.
func TestStaleFlags(t *testing.T) {
	old := []snapshot.Member{{Name: "m1", PeerURLs: []string{"http://a:2380"}}, {Name: "m2", PeerURLs: []string{"http://b:2380"}}}
	same := []sources.NewMember{{Name: "m1", PeerURLs: []string{"http://a:2380"}}, {Name: "m2", PeerURLs: []string{"http://b:2380"}}}
	moved := []sources.NewMember{same[0], {Name: "m2", PeerURLs: []string{"http://c:2380"}}}
	inLine := supervisor.Flags{Name: "m1", InitialAdvertisePeerURLs: "http://a:2380", InitialCluster: "m1=http://a:2380,m2=http://b:2380", InitialClusterState: "existing"}
	d := &driver{known: newKnown(), hosts: []*participant{
		{HostConfig: HostConfig{Member: "m1"}, state: HostState{Flags: &supervisor.FlagsFound{Known: true, In: "a file", Flags: inLine}}},
		{HostConfig: HostConfig{Member: "m2"}, state: HostState{Flags: &supervisor.FlagsFound{In: "a program", ByHand: "who knows"}}},
	}}
	if all := d.staleFlags(old, same); len(all) > 0 {
		t.Errorf("nothing has changed: %+v", all)
	}
	all := d.staleFlags(old, moved)
	if len(all) != 2 || all[0].Words() != "--initial-cluster m1=http://a:2380,m2=http://b:2380 → m1=http://a:2380,m2=http://c:2380" || all[0].ByHand != "" {
		t.Fatalf("%+v", all)
	}
	if want := "--name=m2, --initial-advertise-peer-urls=http://c:2380, --initial-cluster=m1=http://a:2380,m2=http://c:2380, --initial-cluster-state=existing"; all[1].Words() != want || all[1].ByHand == "" {
		t.Errorf("%s, want %s", all[1].Words(), want)
	}
	if next := all[1].next(); !strings.Contains(next[0], "by hand") || !strings.Contains(next[0], "who knows") {
		t.Errorf("%q", next)
	}
	d.hosts[0].state.Flags = nil // a host process of before
	if all := d.staleFlags(old, moved); len(all) != 2 || all[0].Known || all[0].ByHand == "" {
		t.Errorf("%+v", all)
	}
	d.hosts[0].state.Unreachable = "away"
	if all := d.staleFlags(old, moved); len(all) != 1 {
		t.Errorf("%+v", all)
	}
}

// TestFlagsFail: no cluster stays down for its flags, here because the host is away for a while.
func TestFlagsFail(t *testing.T) {
	t.Parallel()
	s := newSite(t, "3.6", 1)
	want := s.fill(t, "a", 10)
	s.killAll()
	e := &heard{t: t, begun: func(p Phase, host string) {
		switch {
		case p == PhaseFlags && host != "":
			s.hosts[0].end()
		case host != "":
			s.hosts[0].control(t)
		}
	}}
	req := s.request(e)
	req.UpdateFlags = true
	r, err := Run(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	s.check(t, want, s.hosts...)
	if !e.did("flags m1") || len(r.Flags) != 1 || r.Flags[0].Updated || !strings.Contains(r.Flags[0].ByHand, "No route to host") {
		t.Errorf("%+v %q", r.Flags, e.steps)
	}
	if !strings.Contains(strings.Join(r.Next, "\n"), "change them by hand") || !strings.Contains(strings.Join(e.notes, "\n"), "the recovery goes on") {
		t.Errorf("%q %q", r.Next, e.notes)
	}
}
