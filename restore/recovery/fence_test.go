package recovery

import (
	"slices"
	"testing"

	"github.com/requorum/requorum/restore/recovery/membership"
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
	steps := []membership.State{
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
		f, err := newFence(&Findings{}, steps, c.dead, c.hosts)
		if err != nil || f.Enough != c.enough || !slices.Equal(f.Open, c.open) {
			t.Errorf("%s: %+v %v", c.name, f, err)
		}
	}
	if _, err := newFence(&Findings{}, steps, []string{"m9"}, []string{"m1"}); err == nil {
		t.Error("a member that is not known was declared dead")
	}
}
