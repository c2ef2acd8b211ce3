package recovery

import (
	"reflect"
	"strings"
	"testing"

	"github.com/requorum/requorum/restore/recovery/host"
	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/snapshot"
)

// way begins from one's database, and goes on with a log.
func way(base, log string) sources.Source {
	return sources.Source{Base: sources.Base{Owner: base, Path: "/var/lib/etcd/member/snap/db", Index: 50}, Log: []sources.Piece{{Owner: log, First: 51, Last: 90}}, Index: 90}
}

func backup(log string) sources.Source {
	s := way(sources.ArchivePrefix+"7-1", log)
	s.Base.Path, s.Base.Backup = "", "full"
	return s
}

// alternatives is a plan of m1's own way, with others.
func alternatives(main sources.Source, others ...sources.Source) *sources.Plan {
	p := planned("m1", true, 0)
	main.Others = others
	p.Candidates[0].Source = &main
	m2 := way("m2", "m2")
	p.Candidates = append(p.Candidates, sources.Candidate{Name: "m2", Source: &m2})
	return p
}

// Promise 5: where hosts differ, the error says which database is damaged, as far as
// that is known, and with which source it is recovered.
func TestDifferError(t *testing.T) {
	type built struct {
		way  sources.Source
		hash uint32
	}
	for what, c := range map[string]struct {
		built map[string]built
		want  []string
		not   string
	}{
		"two of three": {map[string]built{"m1": {way("m1", "m1"), 1}, "m2": {way("m2", "m2"), 2}, "m3": {way("m3", "m2"), 2}},
			[]string{"those of m2 and m3 agree, so the damaged one is that of m1", "--undo", "--source m2, or --source m3+m2"}, "--source m1"},
		"two": {map[string]built{"m1": {way("m1", "m1"), 1}, "m2": {way("m2", "m2"), 2}},
			[]string{"Nothing shows", "--undo", "--source m1, or --source m2"}, "agree"},
		"two hosts by one": {map[string]built{"m1": {way("m1", "m1"), 1}, "m2": {way("m2", "m2"), 2}, "m3": {way("m2", "m2"), 2}},
			[]string{"Nothing shows", "--source m1, or --source m2"}, "agree"},
		"a backup": {map[string]built{"m1": {way("m1", "m1"), 1}, "m2": {backup("m1"), 2}},
			[]string{"has checksums, so the damaged one is that of m1", "--source archive:7-1+m1"}, "--source m1"},
		"the same database": {map[string]built{"m1": {way("m1", "m1"), 1}, "m2": {way("m1", "m1"), 2}},
			[]string{"the same database", "memory", "--undo"}, "--source"},
	} {
		t.Run(what, func(t *testing.T) {
			all := map[string]*host.Rebuilt{}
			for member, b := range c.built {
				all[member] = &host.Rebuilt{Source: &b.way, Index: 90, Revision: 40, HashKV: snapshot.HashKV{Hash: b.hash, Revision: 40}}
			}
			e := &DifferError{Run: "r", What: []string{"the hash differs"}, Outcomes: outcomes(alternatives(way("m1", "m1")), all)}
			for _, want := range c.want {
				if !strings.Contains(e.Error(), want) {
					t.Errorf("%q is not in: %s", want, e)
				}
			}
			if strings.Contains(e.next(), c.not) {
				t.Errorf("%q is in: %s", c.not, e)
			}
		})
	}
}

// A source that was named is the only one, for every host.
func TestNamedBindsAll(t *testing.T) {
	d := &decision{Plan: alternatives(way("m1", "m1"), way("m2", "m2"), backup("m1"))}
	if p := d.rebuildPlan(); len(p.Source.Others) != 2 || len(owners(&p.Source)) != 3 {
		t.Errorf("by itself: %+v", p.Source)
	}
	d.Plan.Named = true
	if p := d.rebuildPlan(); len(p.Source.Others) != 0 || !reflect.DeepEqual(owners(&p.Source), []string{"m1"}) || len(d.candidate().Source.Others) != 2 {
		t.Errorf("named: %+v", p.Source)
	}
}

// Where the hosts would all begin from one database although there is another, one of
// them takes that.
func TestBeside(t *testing.T) {
	for what, c := range map[string]struct {
		members string
		away    string
		plan    *sources.Plan
		want    map[string][]string
	}{
		"each has its own":      {"m1 m2 m3", "", alternatives(way("m1", "m1"), way("m2", "m2"), way("m3", "m3")), nil},
		"two have their own":    {"m1 m2 n3", "", alternatives(way("m1", "m1"), way("m2", "m2")), nil},
		"one has its own":       {"m1 n2 n3", "", alternatives(way("m1", "m1"), way("m2", "m2")), map[string][]string{"n2": {"m1"}}},
		"the other is away":     {"m1 n2 n3", "m2", alternatives(way("m1", "m1"), way("m2", "m2")), nil},
		"or a backup":           {"m1 n2 n3", "m2", alternatives(way("m1", "m1"), way("m2", "m2"), backup("m1")), map[string][]string{"n2": {"m1"}}},
		"none has its own":      {"n1 n2 n3", "", alternatives(way("m1", "m1"), way("m2", "m2")), map[string][]string{"n1": {"m1"}, "n2": {"m2"}, "n3": {"m2"}}},
		"only one member":       {"n1", "", alternatives(way("m1", "m1"), way("m2", "m2")), nil},
		"only one database":     {"m1 n2 n3", "", alternatives(way("m1", "m1")), nil},
		"it begins in a backup": {"m1 n2 n3", "", alternatives(backup("m1"), way("m2", "m2")), nil},
		"named":                 {"m1 n2 n3", "", func() *sources.Plan { p := alternatives(way("m1", "m1"), way("m2", "m2")); p.Named = true; return p }(), nil},
	} {
		t.Run(what, func(t *testing.T) {
			d := &coordinator{decision: &decision{Plan: c.plan}}
			for _, name := range []string{"m1", "m2", "m3", "n1", "n2", "n3"} {
				h := &participant{HostConfig: HostConfig{Member: name}}
				if name == c.away {
					h.state.Unreachable = "no route"
				}
				d.hosts = append(d.hosts, h)
			}
			for name := range strings.FieldsSeq(c.members) {
				d.decision.Members = append(d.decision.Members, sources.NewMember{Name: name})
			}
			p := d.decision.rebuildPlan()
			if got := d.compareWith(&p.Source); !reflect.DeepEqual(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}
