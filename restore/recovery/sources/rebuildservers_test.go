package sources

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/walreplay"
	"github.com/requorum/requorum/walreplay/engine"
)

// Promise 2 of the design: all members are killed right after the last
// acknowledgement, and two of them survive. What is rebuilt holds every
// acknowledged write, and has the hash that these members serve at that revision
// when they are started again: whether it is made of a survivor's own data, of
// one's database with the other's log, of a database and two logs, or of a log
// from the cluster's first entry on. A host gets no more than what Needed says.
func TestPromise2EqualToTheLiveMembers(t *testing.T) {
	t.Parallel()
	for _, version := range storetest.Some(storetest.Versions()...) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			r := start(t, version)
			replay := walreplay.Options{SourceSettings: engine.SourceSettings{SourceVersion: r.version}}
			w := storetest.StartWriter(t, r.c.Client(t), "/k/")
			w.WaitFor(t, 150)
			r.killAll()
			acked := w.Stop()
			last := acked[len(acked)-1].Revision
			both := []Survivor{r.survivor(0), r.survivor(1)}
			f := surveyOf(t, SurveyRequest{Summaries: summaries(t, both...)})
			p := decide(t, f, DecideRequest{})
			if !p.Proven {
				t.Fatal(p.Why)
			}
			s := sourceOf(t, p, p.Chosen)
			own := state(t, RebuildRequest{Source: s, Places: bring(t, s, both...), Replay: replay}).Recipe
			if own.Revision < last || own.Index != s.Index || own.Term != s.Term {
				t.Errorf("%+v was rebuilt, revision %d was acknowledged, and the plan ends with %d", own, last, s.Index)
			}
			k := newKeeper(t, f.Survivors[0].ClusterID, r.version)
			for name, other := range otherWays(f, p.Chosen, s, k) {
				image := state(t, RebuildRequest{Source: other, Places: bring(t, other, both...), Repositories: []*repository.Repository{k.repo}, Replay: replay})
				facts, err := image.Facts(t.Context())
				require.NoError(t, err)
				if facts.Revision != own.Revision || image.Recipe != nil && (image.Recipe.HashKV != own.HashKV || image.Recipe.Index != own.Index) {
					t.Errorf("%s: %+v %+v, not %+v", name, facts, image.Recipe, own)
				}
			}
			r.c.Restart(t, 0)
			r.c.Restart(t, 1)
			for i := range 2 {
				if live := r.live(i, own.Revision); live.Hash != own.HashKV.Hash {
					t.Errorf("member %d serves %+v, rebuilt was %+v", i, live, own.HashKV)
				}
			}
		})
	}
}

// otherWays lead to the same entry, of both survivors' data.
func otherWays(f *Findings, best string, s Source, k *keeper) map[string]Source {
	one, other := f.Survivors[0], f.Survivors[1]
	if one.Name != best {
		one, other = other, one
	}
	after := func(index uint64, log ...Piece) []Piece { // none of it where the base is at the end
		if log[0].First = index + 1; log[0].First > log[0].Last {
			return log[1:]
		}
		return log
	}
	from := func(m Remains, log ...Piece) Source {
		d := m.Databases[len(m.Databases)-1]
		log = after(d.Index, log...)
		return Source{Base: Base{Owner: m.Name, Path: d.Path, Index: d.Index, Term: d.Term, Revision: d.Revision}, Log: log, Index: s.Index, Term: s.Term}
	}
	mid := min(other.Log.LastIndex, s.Index) - 3
	all := map[string]Source{
		"the other's database": from(other, Piece{Owner: one.Name, Last: s.Index}),
		"from the first entry": {Base: Base{Owner: one.Name, Revision: 1}, Log: []Piece{{Owner: one.Name, First: 1, Last: s.Index}}, Index: s.Index, Term: s.Term},
	}
	if d := one.Databases; len(d) > 0 && d[len(d)-1].Index < mid {
		all["two logs"] = from(one, Piece{Owner: other.Name, Last: mid}, Piece{Owner: one.Name, First: mid + 1, Last: s.Index})
	}
	full := k.full(Survivor{DataDir: other.DataDir})
	k.archive(Survivor{DataDir: other.DataDir}, 1, full.Index, nil)
	all["a full snapshot"] = Source{Base: full, Log: after(full.Index, Piece{Owner: one.Name, Last: s.Index}), Index: s.Index, Term: s.Term}
	return all
}
