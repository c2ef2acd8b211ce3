package sources

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay"
)

// Of what several databases gave, those of the most are right; or of two the one
// that has checksums; and otherwise nothing shows it.
func TestJudge(t *testing.T) {
	t.Parallel()
	outcome := func(owner string, hash uint32, checksummed bool) Outcome {
		return Outcome{Owner: owner, Checksummed: checksummed, Index: 9, Revision: 8, HashKV: snapshot.HashKV{Hash: hash, Revision: 8, CompactedRevision: 2}}
	}
	compacted := outcome("m2", 1, false)
	compacted.HashKV.CompactedRevision = 3
	for what, c := range map[string]struct {
		all        []Outcome
		agree, odd []string
		text       string
	}{
		"the same":        {[]Outcome{outcome("m1", 1, false), outcome("m2", 1, false)}, []string{"m1", "m2"}, nil, ""},
		"two":             {[]Outcome{outcome("m1", 1, false), outcome("m2", 2, false)}, nil, nil, "nothing shows"},
		"compacted":       {[]Outcome{outcome("m1", 1, false), compacted}, nil, nil, "nothing shows"},
		"two of three":    {[]Outcome{outcome("m1", 1, false), outcome("m2", 2, false), outcome("m3", 2, false)}, []string{"m2", "m3"}, []string{"m1"}, "those of m2 and m3 agree, so the damaged one is that of m1"},
		"all differ":      {[]Outcome{outcome("m1", 1, false), outcome("m2", 2, false), outcome("m3", 3, false)}, nil, nil, "nothing shows"},
		"two and two":     {[]Outcome{outcome("m1", 1, false), outcome("m2", 2, false), outcome("m3", 2, false), outcome("m4", 1, false)}, nil, nil, "nothing shows"},
		"a backup":        {[]Outcome{outcome("m1", 1, false), outcome("a", 2, true)}, []string{"a"}, []string{"m1"}, "that of a has checksums, so the damaged one is that of m1"},
		"two backups":     {[]Outcome{outcome("a", 1, true), outcome("b", 2, true)}, nil, nil, "nothing shows"},
		"against the odd": {[]Outcome{outcome("m1", 1, false), outcome("m2", 1, false), outcome("a", 2, true)}, []string{"m1", "m2"}, []string{"a"}, "agree"},
	} {
		agree, odd := Judge(c.all)
		if !reflect.DeepEqual(Owners(agree), c.agree) || !reflect.DeepEqual(Owners(odd), c.odd) {
			t.Errorf("%s: %v agree, %v are odd", what, Owners(agree), Owners(odd))
		}
		if text := Differing(c.all); c.text != "" && !strings.Contains(text, c.text) {
			t.Errorf("%s: %s", what, text)
		}
	}
}

// A bit of a value is flipped in the database of one survivor, where nothing but
// another database shows it: the state that is rebuilt from it is held against what
// others give, until the odd one is known.
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
	k := newKeeper(t, p.ClusterID, r.version)
	for _, s := range whole {
		if s.Name == chosen { // another one may lack the last entry
			k.archive(s, 1, p.Candidate(p.Chosen).LastIndex, nil)
		} else if k.made == 0 {
			k.full(s)
		}
	}
	damaged := make([]Survivor, 3)
	for i, s := range whole {
		damaged[i] = Survivor{Name: s.Name, DataDir: filepath.Join(t.TempDir(), s.Name)}
		require.NoError(t, os.CopyFS(damaged[i].DataDir, os.DirFS(s.DataDir)))
		flipValue(t, damaged[i], needle)
	}
	// The chosen one first, and of these only so many; mark says which are damaged.
	for what, c := range map[string]struct {
		mark       string
		repository bool
		differ     bool
		trusted    bool
		odd        int // how many are known to be
		compared   int
	}{
		"one":                              {"-", false, false, false, 0, 1},
		"two, whole":                       {"--", false, false, true, 0, 2},
		"three, whole":                     {"---", false, false, true, 0, 2},
		"two, the first is damaged":        {"x-", false, true, false, 0, 2},
		"three, the first is damaged":      {"x--", false, true, false, 1, 3},
		"three, another is damaged":        {"-x-", false, true, true, 1, 3},
		"damaged, and a backup":            {"x", true, true, false, 1, 2},
		"two that are damaged in one way":  {"xx", false, false, true, 0, 2},
		"damaged, one whole, and a backup": {"x-", true, true, false, 1, 3},
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
			var repos []*repository.Repository
			if c.repository {
				repos = append(repos, k.repo)
			}
			p := decide(t, surveyOf(t, SurveyRequest{Summaries: summaries(t, all...), Repos: repos}), DecideRequest{Source: chosen})
			s := sourceOf(t, p, chosen)
			warned := strings.Contains(strings.Join(p.Warnings, "\n"), "no checksums")
			if warned != (c.compared == 1) {
				t.Errorf("the plan warns: %q", p.Warnings)
			}
			req := RebuildRequest{Source: s, Places: map[string]Directories{}, Repositories: repos, Replay: walreplay.Options{ScratchDir: t.TempDir()}}
			for _, s := range all {
				req.Places[s.Name] = Directories{DataDir: s.DataDir}
			}
			got, err := Compare(t.Context(), req, state(t, req), p.NameOf)
			require.NoError(t, err)
			if got.Differ() != c.differ || got.Trusted() != c.trusted || len(got.Odd) != c.odd || len(got.Outcomes) != c.compared || len(got.Failed) > 0 {
				t.Errorf("differ %t, trusted %t, %+v", got.Differ(), got.Trusted(), got)
			}
			for i, name := range got.Odd {
				if strings.Contains(c.mark, "x") != (name == all[strings.IndexByte(c.mark, 'x')].Name) {
					t.Errorf("odd one %d is %s", i, name)
				}
			}
			for _, o := range got.Outcomes {
				if again := decide(t, surveyOf(t, SurveyRequest{Summaries: summaries(t, all...), Repos: repos}), DecideRequest{Source: o.Source}); again.Candidate(again.Chosen).Source.Base.Owner != o.Owner {
					t.Errorf("--source %s begins from the database of %s, not of %s", o.Source, again.Candidate(again.Chosen).Source.Base.Owner, o.Owner)
				}
			}
			if left, err := os.ReadDir(req.Replay.ScratchDir); err != nil || len(left) > 1 { // the image's own
				t.Errorf("%v is left in the scratch folder: %v", left, err)
			}
		})
	}

	t.Run("a way that cannot be gone", func(t *testing.T) {
		p := decide(t, surveyOf(t, SurveyRequest{Summaries: summaries(t, whole[:2]...)}), DecideRequest{})
		req := RebuildRequest{Source: sourceOf(t, p, p.Chosen), Places: map[string]Directories{}, Replay: walreplay.Options{ScratchDir: t.TempDir()}}
		for _, s := range whole {
			if s.Name == req.Source.Base.Owner {
				req.Places[s.Name] = Directories{DataDir: s.DataDir}
			}
		}
		got, err := Compare(t.Context(), req, state(t, req), p.NameOf)
		if err != nil || len(got.Outcomes) != 1 || len(got.Failed) == 0 || got.Differ() || !strings.Contains(got.String(), "unnoticed") {
			t.Errorf("%+v, %v", got, err)
		}
	})
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
