package sources

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay"
)

// Of databases that differ those of the most are right; otherwise nothing shows it. What
// cannot be compared counts for nobody.
func TestJudge(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		peers      map[string]uint32 // what they hash to at revision 8, the restored database to 1
		agree, odd []string
		same, not  int
		text       string
	}{
		"the same":         {map[string]uint32{"m2": 1}, nil, nil, 1, 0, "hold the same keys"},
		"two":              {map[string]uint32{"m2": 2}, nil, nil, 0, 0, "nothing shows"},
		"compacted":        {map[string]uint32{"m2": 100}, nil, nil, 0, 1, "compacted at revision 3"},
		"unreadable":       {map[string]uint32{"m2": 200}, nil, nil, 0, 1, "could not be hashed"},
		"two of three":     {map[string]uint32{"m2": 2, "m3": 2}, []string{"m2", "m3"}, []string{"m1"}, 0, 0, "those of m2 and m3 agree, so the damaged one is that of m1"},
		"another":          {map[string]uint32{"m2": 2, "m3": 1}, []string{"m1", "m3"}, []string{"m2"}, 1, 0, "those of m1 and m3 agree, so the damaged one is that of m2"},
		"all differ":       {map[string]uint32{"m2": 2, "m3": 3}, nil, nil, 0, 0, "nothing shows"},
		"two and two":      {map[string]uint32{"m2": 2, "m3": 2, "m4": 1}, nil, nil, 1, 0, "nothing shows"},
		"one is compacted": {map[string]uint32{"m2": 2, "m3": 100}, nil, nil, 0, 1, "nothing shows"},
	} {
		s := &Source{Base: Base{Owner: "m1", Path: "db"}}
		for _, owner := range slices.Sorted(maps.Keys(c.peers)) {
			s.Peers = append(s.Peers, Peer{Owner: owner, Revision: 8, Source: owner})
		}
		hash := func(_ context.Context, owner string, revision int64) (snapshot.HashKV, error) {
			h := snapshot.HashKV{Hash: c.peers[owner], Revision: revision, CompactedRevision: 2}
			switch h.Hash {
			case 100:
				h.CompactedRevision = 3
			case 200:
				return h, errors.New("away")
			}
			return h, nil
		}
		got, err := s.Compare(t.Context(), []snapshot.HashKV{{Hash: 1, Revision: 8, CompactedRevision: 2}}, s.ReadPeers(t.Context(), hash), hash)
		require.NoError(t, err)
		if !slices.Equal(got.Agree, c.agree) || !slices.Equal(got.Odd, c.odd) || len(got.Same) != c.same || len(got.NotCompared) != c.not || !strings.Contains(got.String(), c.text) {
			t.Errorf("%s: %+v: %s", what, got, got)
		}
		if got.Differ() && (got.Flags() == "" || strings.Contains(got.Flags(), "m1") == slices.Contains(c.odd, "m1")) {
			t.Errorf("%s: %s", what, got.Flags())
		}
	}
}

// A bit of a value is flipped in the database of one survivor, where nothing but
// another database shows it: the state that is rebuilt from it is compared with
// theirs, until the odd one is known.
func TestCompare(t *testing.T) {
	t.Parallel()
	r := start(t, "3.6")
	r.put("k", 20)
	needle := strings.Repeat("w", 64)
	_, err := r.c.Client(t).Put(t.Context(), "needle", needle)
	require.NoError(t, err)
	r.writeOut()
	r.put("k", 5)
	r.writeOut()
	r.killAll()
	whole := []Survivor{r.survivor(0), r.survivor(1), r.survivor(2)}
	p := decide(t, surveyOf(t, SurveyRequest{Summaries: summaries(t, whole...)}), DecideRequest{})
	chosen := sourceOf(t, p, p.Chosen).Base.Owner
	damaged := make([]Survivor, 3)
	for i, s := range whole {
		damaged[i] = Survivor{Name: s.Name, DataDir: filepath.Join(t.TempDir(), s.Name)}
		require.NoError(t, os.CopyFS(damaged[i].DataDir, os.DirFS(s.DataDir)))
		flipValue(t, damaged[i], needle)
	}
	// The chosen one first, and of these only so many; mark says which are damaged.
	for what, c := range map[string]struct {
		mark     string
		differ   bool
		trusted  bool
		odd      int // how many are known to be
		compared int
	}{
		"one":                             {"-", false, false, 0, 0},
		"two, whole":                      {"--", false, false, 0, 1},
		"three, whole":                    {"---", false, false, 0, 2},
		"two, the first is damaged":       {"x-", true, false, 0, 1},
		"two, the other is damaged":       {"-x", true, false, 0, 1},
		"three, the first is damaged":     {"x--", true, false, 1, 2},
		"three, another is damaged":       {"-x-", true, true, 1, 2},
		"two that are damaged in one way": {"xx", false, false, 0, 1},
	} {
		t.Run(what, func(t *testing.T) {
			var all []Survivor
			add := func(i int) {
				if n := len(all); n < len(c.mark) {
					all = append(all, whole[i])
					if c.mark[n] == 'x' {
						all[n] = damaged[i]
					}
				}
			}
			for _, first := range []bool{true, false} {
				for i, s := range whole {
					if (s.Name == chosen) == first {
						add(i)
					}
				}
			}
			p := decide(t, surveyOf(t, SurveyRequest{Summaries: summaries(t, all...)}), DecideRequest{Source: chosen})
			s := sourceOf(t, p, chosen)
			warned := strings.Contains(strings.Join(p.Warnings, "\n"), "no checksums")
			if warned != (c.compared == 0) {
				t.Errorf("the plan warns: %q", p.Warnings)
			}
			req := RebuildRequest{Source: s, Places: map[string]Directories{}, Replay: walreplay.Options{ScratchDir: t.TempDir()}}
			for _, s := range all {
				req.Places[s.Name] = Directories{DataDir: s.DataDir}
			}
			hash := func(ctx context.Context, owner string, revision int64) (snapshot.HashKV, error) {
				return HashDatabase(ctx, filepath.Join(req.Places[owner].DataDir, "member", "snap", "db"), revision)
			}
			image := state(t, req)
			restored, err := HashPeers(t.Context(), image.Path(), s.Peers, image.Recipe.HashKV)
			require.NoError(t, err)
			got, err := s.Compare(t.Context(), restored, s.ReadPeers(t.Context(), hash), hash)
			require.NoError(t, err)
			if got.Differ() != c.differ || got.Trusted() != c.trusted || len(got.Odd) != c.odd || len(got.Same)+len(got.Differs) != c.compared || len(got.NotCompared) > 0 {
				t.Errorf("differ %t, trusted %t, %+v", got.Differ(), got.Trusted(), got)
			}
			for _, name := range got.Odd {
				if name != all[strings.IndexByte(c.mark, 'x')].Name {
					t.Errorf("the odd one is %s", name)
				}
			}
			for _, source := range got.Next {
				if _, err := Decide(surveyOf(t, SurveyRequest{Summaries: summaries(t, all...)}), DecideRequest{Source: source}); err != nil {
					t.Errorf("--source %s: %v", source, err)
				}
			}
		})
	}
}

// flipValue changes what the database, and not the log, has of a value.
func flipValue(t *testing.T, s Survivor, what string) {
	t.Helper()
	path := filepath.Join(s.DataDir, "member", "snap", "db")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	if !bytes.Contains(data, []byte(what)) {
		t.Fatalf("%s does not hold the value", path)
	}
	changed := []byte(what)
	changed[0] ^= 1
	require.NoError(t, os.WriteFile(path, bytes.ReplaceAll(data, []byte(what), changed), 0o600))
}
