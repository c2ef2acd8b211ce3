package sources

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/snapshot"
)

// TestFenceNames: a name that is declared dead may be that of a member that was
// removed and of the one that took its place, and of a host that has no member of
// this cluster, which is no voter less. Any other is refused.
func TestFenceNames(t *testing.T) {
	t.Parallel()
	member := func(id uint64, name string) snapshot.Member {
		return snapshot.Member{ID: snapshot.ID(id), Name: name}
	}
	steps := []Membership{
		{Members: []snapshot.Member{member(1, "m1"), member(2, "m2"), member(3, "m3")}},
		{Members: []snapshot.Member{member(1, "m1"), member(2, "m2"), member(4, "m3")}, Removed: []snapshot.Member{member(3, "m3")}},
	}
	for _, c := range []struct {
		name        string
		dead, hosts []string
		enough      bool
		open        []string
	}{
		{name: "removed and in its place", dead: []string{"m2", "m3"}, enough: true, open: []string{"m1"}},
		{name: "a host without a member", dead: []string{"m9", "m3"}, hosts: []string{"m1", "m9"}, open: []string{"m1", "m2"}},
	} {
		f, err := newFence(&Findings{}, steps, &DecideRequest{DeclareDead: c.dead, Hosts: c.hosts})
		if err != nil || f.Enough != c.enough || !slices.Equal(f.Open, c.open) {
			t.Errorf("%s: %+v %v", c.name, f, err)
		}
	}
	_, err := newFence(&Findings{}, steps, &DecideRequest{DeclareDead: []string{"m9"}, Hosts: []string{"m1"}})
	require.Error(t, err, "a member that is not known was declared dead")
}

// TestFenceNamesWhoCannotBeStopped: what is to be declared dead are those members that
// who carries the recovery out cannot stop, and no others.
func TestFenceNamesWhoCannotBeStopped(t *testing.T) {
	t.Parallel()
	var all []snapshot.Member
	for id := range snapshot.ID(5) {
		all = append(all, snapshot.Member{ID: id + 1, Name: "m" + string(rune('1'+id))})
	}
	steps := []Membership{{Members: all}}
	stopped := &Findings{Survivors: []Remains{{Name: "m1", MemberID: 1}}}
	for _, c := range []struct {
		stopping, dead []string
		closes, enough bool
		open           string
	}{
		{open: "m2,m3,m4,m5"},
		{stopping: []string{"m2"}, open: "m3,m4,m5"},
		{stopping: []string{"m2", "m3"}, closes: true},
		{stopping: []string{"m2"}, dead: []string{"m4"}, closes: true},
		{stopping: []string{"m2"}, dead: []string{"m4", "m5"}, closes: true, enough: true},
	} {
		f, err := newFence(stopped, steps, &DecideRequest{Stopping: c.stopping, DeclareDead: c.dead})
		if err != nil || f.Enough != c.enough || f.Closes != c.closes {
			t.Errorf("%+v: %+v, %v", c, f, err)
		}
		if _, named, _ := strings.Cut(f.Why, "--declare-dead "); named != c.open {
			t.Errorf("%+v: it says %q", c, f.Why)
		}
	}
}
