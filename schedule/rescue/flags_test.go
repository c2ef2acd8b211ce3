package rescue

import (
	"strings"
	"testing"
	"time"

	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/schedule/control/flagfile"
	"github.com/requorum/requorum/schedule/control/protocol"
	"github.com/requorum/requorum/schedule/rescue/config"
	"github.com/requorum/requorum/snapshot"
)

// TestStaleFlags: what hosts have is held against the new members; where it is not
// known it is told only if names or URLs have changed.
func TestStaleFlags(t *testing.T) {
	old := []snapshot.Member{{Name: "m1", PeerURLs: []string{"http://a:2380"}}, {Name: "m2", PeerURLs: []string{"http://b:2380"}}}
	same := []recovery.NewMember{{Name: "m1", PeerURLs: []string{"http://a:2380"}}, {Name: "m2", PeerURLs: []string{"http://b:2380"}}}
	moved := []recovery.NewMember{same[0], {Name: "m2", PeerURLs: []string{"http://c:2380"}}}
	inLine := flagfile.Flags{Name: "m1", InitialAdvertisePeerURLs: "http://a:2380", InitialCluster: "m1=http://a:2380,m2=http://b:2380", InitialClusterState: "existing"}
	d := &driver{known: newKnown(), hosts: []*host{
		{Host: config.Host{Member: "m1"}, state: HostState{Flags: &flagfile.Found{Known: true, In: "a file", Flags: inLine}}},
		{Host: config.Host{Member: "m2"}, state: HostState{Flags: &flagfile.Found{In: "a program", ByHand: "who knows"}}},
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
	d.hosts[0].state.Flags = nil // a control process of before
	if all := d.staleFlags(old, moved); len(all) != 2 || all[0].Known || all[0].ByHand == "" {
		t.Errorf("%+v", all)
	}
	d.hosts[0].state.Unreachable = "away"
	if all := d.staleFlags(old, moved); len(all) != 1 {
		t.Errorf("%+v", all)
	}
}

// TestFlagsFail: no cluster stays down for its flags, here for want of the role.
func TestFlagsFail(t *testing.T) {
	t.Parallel()
	s := newSite(t, "3.6", 1)
	want := s.fill(t, "a", 10)
	s.killAll()
	var units []string
	for _, v := range protocol.Verbs() {
		if v != protocol.Flags {
			units = append(units, v.Role())
		}
	}
	s.config.Control.Cert, s.config.Control.Key = s.ca.IssueRoles(t, "without", time.Hour, units...)
	e := &heard{t: t}
	req := s.request(e)
	req.UpdateFlags = true
	r, err := Run(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	s.check(t, want, s.hosts...)
	if !e.did("flags m1") || len(r.Flags) != 1 || r.Flags[0].Updated || !strings.Contains(r.Flags[0].ByHand, "requorum:flags") {
		t.Errorf("%+v %q", r.Flags, e.steps)
	}
	if !strings.Contains(strings.Join(r.Next, "\n"), "change them by hand") || !strings.Contains(strings.Join(e.notes, "\n"), "the recovery goes on") {
		t.Errorf("%q %q", r.Next, e.notes)
	}
}
