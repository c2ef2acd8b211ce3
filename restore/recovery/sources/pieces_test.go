package sources

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/walreplay"
	"github.com/requorum/requorum/walreplay/engine"
	"github.com/requorum/requorum/walreplay/logtest"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// leftoverCase is what a cluster left, in pieces that do not suffice alone.
type leftoverCase struct {
	old     Survivor // m1, as a disk snapshot kept it: its log ends early
	late    Survivor // m2, to the end
	bare    Survivor // m2 without its database
	cluster snapshot.ID
	begin   uint64          // of m1's database
	oldEnd  uint64          // of m1's log
	end     uint64          // of m2's
	hash    snapshot.HashKV // that m2 served there
	base    Base            // m1's database
}

func leave(t *testing.T) *leftoverCase {
	t.Helper()
	r := start(t, "3.6")
	r.put("k", 30)
	r.writeOut()
	older := r.survivor(0)
	r.put("k", 10)
	r.writeOut()
	m := &leftoverCase{old: r.survivor(0)}
	copyFile(t, older.DataDir, m.old.DataDir, filepath.Join("member", "snap", "db")) // its log goes on from there
	r.put("k", 20)
	r.put("middle/", 1)
	r.put("l", 20)
	r.writeOut()
	m.hash = r.live(1, 0)
	r.killAll()
	m.late = r.survivor(1)
	m.bare = noDatabase(t, m.late, false)
	f := surveyOf(t, SurveyRequest{Summaries: summaries(t, m.old, m.late)}).Survivors
	d := f[0].Databases[0]
	m.base = Base{Owner: m.old.Name, Path: "/on/its/own/host/member/snap/db", Index: d.Index, Term: d.Term, Revision: d.Revision}
	m.begin, m.oldEnd, m.end, m.cluster = d.Index, f[0].Log.LastIndex, f[1].Log.LastIndex, f[0].ClusterID
	if m.begin < 20 || m.oldEnd < m.begin+8 || m.end < m.oldEnd+30 {
		t.Fatalf("m1's database is at %d, its log ends with %d, m2's with %d", m.begin, m.oldEnd, m.end)
	}
	return m
}

// noDatabase is a copy of a survivor whose database is damaged or gone, and
// whose log seems to be that of a cluster that was once restored: it does not
// begin with all there was.
func noDatabase(t *testing.T, s Survivor, damaged bool) Survivor {
	t.Helper()
	c := Survivor{Name: s.Name, DataDir: filepath.Join(t.TempDir(), s.Name)}
	require.NoError(t, os.CopyFS(c.DataDir, os.DirFS(s.DataDir)))
	if damaged {
		flip(t, c)
	} else if err := os.Remove(filepath.Join(c.DataDir, "member", "snap", "db")); err != nil {
		t.Fatal(err)
	}
	logtest.RecordSnapshot(t, filepath.Join(c.DataDir, "member", "wal"), 3, 1)
	return c
}

// truth is what m2's own data give at an index.
func (m *leftoverCase) truth(t *testing.T, index uint64) *walreplay.Recipe {
	t.Helper()
	h, err := walreplay.OpenDataDir(t.Context(), m.late.DataDir, "")
	require.NoError(t, err)
	defer h.Close()
	o := walreplay.Options{ScratchDir: t.TempDir()}
	p, err := h.Resolve(t.Context(), walreplay.Target{Kind: walreplay.AtIndex, Index: index}, "", o)
	require.NoError(t, err)
	r, err := h.Rebuild(t.Context(), p, o)
	require.NoError(t, err)
	defer r.Close()
	return r.Recipe
}

// source is made by hand: m1's database and pieces after it.
func (m *leftoverCase) source(log ...Piece) Source {
	s := Source{Base: m.base, Log: log, Index: m.base.Index}
	if n := len(log); n > 0 {
		s.Index = log[n-1].Last
	}
	return s
}

// way is how a source goes, in short.
func way(s Source) string {
	text := s.Base.Owner
	for _, p := range s.Log {
		text += " " + p.Owner
	}
	return text
}

// planned plans, and rebuilds what was planned of what Needed says.
func (m *leftoverCase) planned(t *testing.T, want string, survivors []Survivor, req SurveyRequest, r RebuildRequest) *walreplay.Rebuilt {
	t.Helper()
	req.Summaries = summaries(t, survivors...)
	p := decide(t, surveyOf(t, req), DecideRequest{})
	s := sourceOf(t, p, p.Chosen)
	if way(s) != want {
		t.Fatalf("the plan goes %q, want %q: %+v", way(s), want, s)
	}
	r.Source, r.Places, r.Repositories, r.Identities = s, bring(t, s, survivors...), req.Repos, req.Identities
	out := state(t, r)
	m.checkEnd(t, out)
	return out
}

// checkEnd holds what was rebuilt against what the live member served.
func (m *leftoverCase) checkEnd(t *testing.T, out *walreplay.Rebuilt) {
	t.Helper()
	if c := out.Recipe; c.Index != m.end || !sameHash(c.HashKV, m.hash) {
		t.Errorf("%+v was rebuilt, and m2 served %+v at entry %d", c, m.hash, m.end)
	}
}

// What Survey and Decide find in pieces that do not suffice alone is rebuilt, and
// is what a live member served. No survivor's file is changed by it.
func TestPieces(t *testing.T) {
	t.Parallel()
	m := leave(t)
	before := storetest.Fingerprint(t, m.old.DataDir, m.late.DataDir, m.bare.DataDir)
	t.Run("survivors", m.survivors)
	t.Run("archives", m.archives)
	t.Run("targets", m.targets)
	t.Run("needed", m.needed)
	t.Run("options", m.options)
	t.Run("no log", m.noLog)
	t.Run("refused", m.refused)
	if !maps.Equal(storetest.Fingerprint(t, m.old.DataDir, m.late.DataDir, m.bare.DataDir), before) {
		t.Error("a survivor's file was changed")
	}
}

// m2's database is damaged or gone, and m1 has an older one.
func (m *leftoverCase) survivors(t *testing.T) {
	for _, late := range []Survivor{m.bare, noDatabase(t, m.late, true)} {
		r := m.planned(t, "m1 m2", []Survivor{m.old, late}, SurveyRequest{}, RebuildRequest{})
		if c := r.Recipe; c.Image != "db" || c.Base != "" || c.DataDir != "" || r.HasHash() {
			t.Errorf("recipe %+v", c)
		}
	}
	// What a leader sent and the member had not put in place is a database too.
	sent := noDatabase(t, m.old, false)
	name := fmt.Sprintf("%016x.snap.db", m.begin)
	data, err := os.ReadFile(filepath.Join(m.old.DataDir, "member", "snap", "db"))
	if err == nil {
		err = os.WriteFile(filepath.Join(sent.DataDir, "member", "snap", name), data, 0o600)
	}
	require.NoError(t, err)
	if c := m.planned(t, "m1 m2", []Survivor{sent, m.bare}, SurveyRequest{}, RebuildRequest{}).Recipe; c.Image != name {
		t.Errorf("recipe %+v", c)
	}
	both := m.source(Piece{Owner: "m1", First: m.begin + 1, Last: m.oldEnd}, Piece{Owner: "m2", First: m.oldEnd + 1, Last: m.end})
	m.checkEnd(t, state(t, RebuildRequest{Source: both, Places: bring(t, both, m.old, m.bare)}))
}

// A full snapshot and a survivor's log; a survivor whose log was cut, and the
// archive; and all of them. Plain and encrypted.
func (m *leftoverCase) archives(t *testing.T) {
	identity, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	for name, recipients := range map[string][]age.Recipient{"plain": nil, "encrypted": {identity.Recipient()}} {
		t.Run(name, func(t *testing.T) {
			k, log := newKeeper(t, m.cluster, "3.6.0", recipients...), newKeeper(t, m.cluster, "3.6.0", recipients...)
			full := k.full(m.old)
			k.archive(m.late, m.begin-5, m.end-10, nil)
			log.archive(m.late, 1, m.oldEnd, nil)
			log.archive(m.late, m.oldEnd+1, m.end, nil)
			tl := k.owner()
			req := SurveyRequest{Repos: []*repository.Repository{k.repo}, Identities: []age.Identity{identity}}

			out := m.planned(t, tl+" m2", []Survivor{m.bare}, req, RebuildRequest{})
			if c := out.Recipe; c.Base != full.Backup || c.SourceVersion != "3.6.0" || c.Timeline != k.id || !out.HasHash() {
				t.Errorf("recipe %+v", c)
			}

			req.Repos = []*repository.Repository{log.repo}
			m.planned(t, "m1 "+tl, []Survivor{m.old}, req, RebuildRequest{})

			s := Source{Base: full, Index: m.end, Log: []Piece{{Owner: tl, First: m.begin + 1, Last: m.end - 20}, {Owner: "m2", First: m.end - 19, Last: m.end}}}
			r := RebuildRequest{Source: s, Places: bring(t, s, m.bare), Repositories: []*repository.Repository{log.repo, k.repo}, Identities: req.Identities}
			m.checkEnd(t, state(t, r))

			// Of several repositories the one that has the piece.
			s = m.source(Piece{Owner: tl + "@2", First: m.begin + 1, Last: m.end})
			r = RebuildRequest{Source: s, Places: bring(t, s, m.old), Repositories: []*repository.Repository{k.repo, log.repo}, Identities: req.Identities}
			m.checkEnd(t, state(t, r))

			// The full snapshot alone is the state.
			r.Source = Source{Base: full, Index: m.begin}
			if out := state(t, r); out.Recipe != nil || out.Base.ID != full.Backup {
				t.Errorf("%+v", out)
			}
			var unread *codec.IdentityError
			r.Source, r.Identities = s, nil
			if _, err := open(t, r); errors.As(err, &unread) != (recipients != nil) {
				t.Errorf("without an identity: %v", err)
			}
		})
	}
}

// targets are looked for in all pieces, and never found beyond the source's end.
func (m *leftoverCase) targets(t *testing.T) {
	k := newKeeper(t, m.cluster, "3.6.0")
	k.archive(m.late, 1, m.end, nil)
	tl := k.owner()
	mid, end := m.oldEnd+5, m.end-5
	s := m.source(Piece{Owner: tl, First: m.begin + 1, Last: mid}, Piece{Owner: "m2", First: mid + 1, Last: end})
	places := bring(t, s, m.old, m.bare)
	rebuild := func(target walreplay.Target) (*walreplay.Rebuilt, error) {
		return Rebuild(t.Context(), RebuildRequest{Source: s, Target: target, Places: places, Repositories: []*repository.Repository{k.repo}, Replay: walreplay.Options{ScratchDir: t.TempDir()}})
	}
	last := m.truth(t, end).Revision
	for _, c := range []struct {
		target walreplay.Target
		index  uint64 // 0: as m2's own data have it at what was found
	}{
		{walreplay.Target{}, end},
		{walreplay.Target{Kind: walreplay.AtIndex, Index: mid + 3}, mid + 3},
		{walreplay.Target{Kind: walreplay.AtTime, Time: timeOf(mid - 2)}, mid - 2},
		{walreplay.Target{Kind: walreplay.AtRevision, Revision: last - 2}, 0},
		{walreplay.Target{Kind: walreplay.BeforeKey, Key: "middle/0"}, 0},
		{walreplay.Target{Kind: walreplay.BeforePrefix, Key: "middle/"}, 0},
	} {
		r, err := rebuild(c.target)
		if err != nil {
			t.Errorf("%s: %v", c.target, err)
			continue
		}
		got := r.Recipe
		if want := m.truth(t, got.Index); !sameHash(got.HashKV, want.HashKV) || got.Term != want.Term || c.index != 0 && got.Index != c.index || got.Index > end {
			t.Errorf("%s: %+v, want %+v at %d", c.target, got, want, c.index)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, target := range []walreplay.Target{
		{Kind: walreplay.AtIndex, Index: end + 1},
		{Kind: walreplay.AtRevision, Revision: last + 1},
		{Kind: walreplay.AtTime, Time: timeOf(end)},
		{Kind: walreplay.BeforeKey, Key: "nothing"},
	} {
		var not *walreplay.NotCoveredError
		if r, err := rebuild(target); !errors.As(err, &not) {
			t.Errorf("%s: %+v, %v", target, r, err)
		}
	}
}

// How leases are replayed, and by which etcd's rules, is as the request says;
// where it does not say it, the version is that of the backup's member.
func (m *leftoverCase) options(t *testing.T) {
	s := m.source(Piece{Owner: "m2", First: m.begin + 1, Last: m.end})
	places := bring(t, s, m.old, m.bare)
	checked, phases := "", map[walreplay.Phase]bool{}
	out := state(t, RebuildRequest{Source: s, Places: places, Replay: walreplay.Options{
		SourceSettings: engine.SourceSettings{MinLeaseTTL: 7 * time.Second, PersistCheckpoints: true, SourceVersion: "3.6.1"},
		CheckBase: func(_ context.Context, name string, _ io.ReaderAt, size int64) error {
			checked = fmt.Sprint(name, size)
			return nil
		},
		Progress: func(p walreplay.Phase, _, _ int64) { phases[p] = true },
	}})
	if c := out.Recipe; c.MinLeaseTTL != 7*time.Second || !c.PersistCheckpoints || c.SourceVersion != "3.6.1" || !phases[walreplay.PhaseReplay] || !strings.Contains(checked, places["m1"].DataDir) {
		t.Errorf("%+v, phases %v, checked %q", c, phases, checked)
	}
	refuse := errors.New("this database makes no sense")
	_, err := open(t, RebuildRequest{Source: s, Places: places, Replay: walreplay.Options{CheckBase: func(context.Context, string, io.ReaderAt, int64) error { return refuse }}})
	require.ErrorIs(t, err, refuse)
}

// A database without a log is copied, as it is.
func (m *leftoverCase) noLog(t *testing.T) {
	s := m.source()
	scratch := t.TempDir()
	out := state(t, RebuildRequest{Source: s, Places: bring(t, s, m.old), Replay: walreplay.Options{ScratchDir: scratch}})
	if c := out.Recipe; c.Index != m.begin || c.Revision != m.base.Revision || c.Entries != 0 || !strings.HasPrefix(out.Path(), scratch) {
		t.Errorf("%+v in %s", out.Recipe, out.Path())
	}
}

func open(t *testing.T, r RebuildRequest) (*walreplay.Rebuilt, error) {
	t.Helper()
	r.Replay.ScratchDir = t.TempDir()
	out, err := Rebuild(t.Context(), r)
	if err == nil {
		err = out.Close()
	}
	if left, _ := os.ReadDir(r.Replay.ScratchDir); len(left) > 0 {
		t.Errorf("left %v", left)
	}
	return out, err
}

// Promise 6 of the design: what does not join, and what is not what the plan was
// made from, is refused.
func (m *leftoverCase) refused(t *testing.T) {
	mid := m.oldEnd + 5
	good := m.source(Piece{Owner: "m1", First: m.begin + 1, Last: m.oldEnd}, Piece{Owner: "m2", First: m.oldEnd + 1, Last: m.end})
	places := bring(t, good, m.old, m.bare)
	altered := func(change func(*raftlog.Entry)) *repository.Repository {
		k := newKeeper(t, m.cluster, "3.6.0")
		k.archive(m.late, 1, m.end, func(e *raftlog.Entry) {
			if e.Index >= mid {
				change(e)
			}
		})
		return k.repo
	}
	tl := ArchivePrefix + repository.TimelineID{ClusterID: uint64(m.cluster), N: 1}.String()
	for _, c := range []struct {
		name   string
		repo   *repository.Repository
		change func(s *Source, places map[string]Directories)
		as     any // the type of the error
		text   string
	}{
		{"an archived entry of another term", altered(func(e *raftlog.Entry) { e.Term++ }), func(s *Source, _ map[string]Directories) {
			s.Log = []Piece{{Owner: tl, First: m.begin + 1, Last: mid}, {Owner: "m2", First: mid + 1, Last: m.end}}
		}, new(*walreplay.JoinError), "two histories"},
		{"an archived entry of other content", altered(func(e *raftlog.Entry) { e.Data = append([]byte("x"), e.Data...) }), func(s *Source, _ map[string]Directories) {
			s.Log = []Piece{{Owner: tl, First: m.begin + 1, Last: mid}, {Owner: "m2", First: mid + 1, Last: m.end}}
		}, new(*walreplay.JoinError), "two histories"},
		{"a piece that the log does not hold", nil, func(s *Source, _ map[string]Directories) { s.Log[0].Last++; s.Log[1].First++ }, new(*walreplay.JoinError), "does not hold"},
		{"a hole", nil, func(s *Source, _ map[string]Directories) { s.Log[1].First++ }, new(*walreplay.JoinError), "begins with"},
		{"a database of another index", nil, func(s *Source, _ map[string]Directories) { s.Base.Index++ }, new(*OtherError), "raft index"},
		{"a database of another term", nil, func(s *Source, _ map[string]Directories) { s.Base.Term += 5 }, new(*OtherError), "raft term"},
		{"a database of another revision", nil, func(s *Source, _ map[string]Directories) { s.Base.Revision++ }, new(*OtherError), "revision"},
		{"an end of another term", nil, func(s *Source, _ map[string]Directories) { s.Term = 99 }, new(*OtherError), "term of its last entry"},
		{"no first entry", nil, func(s *Source, places map[string]Directories) {
			s.Base = Base{Owner: "m2", Revision: 1}
			places["m2"] = Directories{DataDir: m.bare.DataDir}
			s.Log = []Piece{{Owner: "m2", First: 1, Last: m.end}}
		}, new(*OtherError), "first entry"},
		{"an end that is none", nil, func(s *Source, _ map[string]Directories) { s.Index-- }, nil, "pieces end with"},
		{"no place", nil, func(_ *Source, places map[string]Directories) { delete(places, "m2") }, nil, "data of m2"},
		{"no database there", nil, func(s *Source, _ map[string]Directories) { s.Base.Path = "/x/0000000000000007.snap.db" }, nil, "snap.db"},
		{"a damaged database", nil, func(_ *Source, places map[string]Directories) {
			places["m1"] = Directories{DataDir: noDatabase(t, m.old, true).DataDir}
		}, new(*snapshot.DamagedError), "damaged"},
		{"a damaged log", nil, func(_ *Source, places map[string]Directories) {
			broken := noDatabase(t, m.late, false)
			alterLog(t, broken, "middle/0")
			places["m2"] = Directories{DataDir: broken.DataDir}
		}, new(*snapshot.DamagedError), "m2 needs the entries"},
		{"no log there", nil, func(_ *Source, places map[string]Directories) {
			places["m2"] = Directories{DataDir: t.TempDir()}
		}, nil, "log of m2"},
		{"no such timeline", altered(func(*raftlog.Entry) {}), func(s *Source, _ map[string]Directories) {
			s.Log[1].Owner = ArchivePrefix + "00000000000000aa-1"
		}, nil, "00000000000000aa-1"},
		{"no repository", nil, func(s *Source, _ map[string]Directories) { s.Log[1].Owner = tl }, nil, "no repository is given"},
	} {
		r := RebuildRequest{Places: map[string]Directories{}, Source: good}
		r.Source.Log = append([]Piece{}, good.Log...)
		for owner, place := range places {
			r.Places[owner] = place
		}
		if c.repo != nil {
			r.Repositories = append(r.Repositories, c.repo)
		}
		c.change(&r.Source, r.Places)
		if _, err := open(t, r); err == nil || !strings.Contains(err.Error(), c.text) || c.as != nil && !errors.As(err, c.as) {
			t.Errorf("%s: %v, want %q", c.name, err, c.text)
		}
	}
}
