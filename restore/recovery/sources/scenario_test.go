package sources

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/walfile"
)

// TestScenarios plays the scripts in testdata/scenarios: what is left of a
// cluster, and what is decided. Survivors are called m1, m2, …; their number is
// their member's ID. Commands:
//
//	survivor mN log=(term:first-last,…) [commit=I] [db=I] [voters=(1,2,3)] [learners=(4)]
//	    [conf=(remove:ID@I,add:ID@I,learner:ID@I,force:ID@I)] [alt=I] [cluster=C] [id=N]
//	    [bad-db] [broken] [no-log]
//	    alt=I: from index I on the data is another than others' of the same term
//	archive C-N log=(…) [fulls=(I,…)] [voters=(1,2,3)] [conf=(…)] [alt=I] [parent=C-N] [superseded=C-N] [held=(ID@I)] [seen=I]
//	decide [source=NAME] [dead=(m2,…)] [index=I]
//	others [source=NAME] [index=I]
//	    the other ways to where the chosen candidate ends
//	reset
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, filepath.Join("testdata", "scenarios"), func(t *testing.T, path string) {
		s := &scenario{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return s.run(t, d) })
	})
}

type scenario struct {
	members  []*memberDir
	archives []Archive
	logs     map[string][]raftlog.Entry
	broken   map[string]bool
	damaged  bool // a database is, in the model
}

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	switch d.Cmd {
	case "reset":
		*s = scenario{}
		return ""
	case "survivor":
		s.addSurvivor(t, d)
		return ""
	case "archive":
		s.addArchive(t, d)
		return ""
	case "decide":
		return s.decide(t, d)
	case "peers":
		return s.peers(t, d)
	}
	t.Fatalf("%s: what is %s?", d.Pos, d.Cmd)
	return ""
}

func number(t *testing.T, d *datadriven.TestData, key string, or uint64) uint64 {
	t.Helper()
	if d.HasArg(key) {
		d.ScanArgs(t, key, &or)
	}
	return or
}

func values(d *datadriven.TestData, key string) []string {
	for _, a := range d.CmdArgs {
		if a.Key == key {
			return a.Vals
		}
	}
	return nil
}

// entriesOf makes a log.
func (s *scenario) entriesOf(t *testing.T, d *datadriven.TestData, name string) []raftlog.Entry {
	t.Helper()
	alt := number(t, d, "alt", 1<<60)
	var all []raftlog.Entry
	for _, part := range values(d, "log") {
		var term, first, last uint64
		_, err := fmt.Sscanf(part, "%d:%d-%d", &term, &first, &last)
		require.NoError(t, err, "%s: %q", d.Pos, part)
		for i := first; i <= last; i++ {
			data := fmt.Appendf(nil, "\xff%d of %d", i, term)
			if i >= alt {
				data = append(data, " otherwise"...)
			}
			all = append(all, raftlog.Entry{Index: i, Term: term, Data: data})
		}
	}
	for _, part := range values(d, "conf") {
		what, rest, _ := strings.Cut(part, ":")
		var id, at uint64
		_, err := fmt.Sscanf(rest, "%d@%d", &id, &at)
		require.NoError(t, err, "%s: %q", d.Pos, part)
		c := &raftpb.ConfChange{NodeId: &id, Id: proto.Uint64(4711)}
		switch what {
		case "add":
			c.Type = raftpb.ConfChangeAddNode.Enum()
		case "learner":
			c.Type = raftpb.ConfChangeAddLearnerNode.Enum()
		case "remove":
			c.Type = raftpb.ConfChangeRemoveNode.Enum()
		case "force":
			c.Type, c.Id = raftpb.ConfChangeRemoveNode.Enum(), nil
		}
		if what != "remove" && what != "force" {
			c.Context, _ = json.Marshal(map[string]any{"id": id, "name": fmt.Sprint("m", id)})
		}
		data, err := proto.Marshal(c)
		require.NoError(t, err)
		i := slices.IndexFunc(all, func(e raftlog.Entry) bool { return e.Index == at })
		all[i].Type, all[i].Data = raftpb.EntryConfChange, data
	}
	if s.logs == nil {
		s.logs, s.broken = map[string][]raftlog.Entry{}, map[string]bool{}
	}
	s.logs[name] = all
	return all
}

func termAt(all []raftlog.Entry, index uint64) uint64 {
	for _, e := range all {
		if e.Index == index {
			return e.Term
		}
	}
	return 0
}

func ranges(all []raftlog.Entry) []Range {
	var list []Range
	for _, e := range all {
		if n := len(list); n > 0 && list[n-1].Last+1 == e.Index {
			list[n-1].Last++
			continue
		}
		list = append(list, Range{e.Index, e.Index})
	}
	return list
}

func (s *scenario) addSurvivor(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	name := d.CmdArgs[0].Key
	var id uint64
	fmt.Sscanf(name, "m%d", &id) // or id=N
	id = number(t, d, "id", id)
	all := s.entriesOf(t, d, name)
	m := &Remains{Name: name, DataDir: "/" + name, Databases: []Database{}}
	dir := &memberDir{Survivor: Survivor{Name: name, DataDir: m.DataDir}, remains: m}
	db := Database{Path: "/" + name + "/db", Index: number(t, d, "db", 0), Revision: 1}
	db.Term = termAt(all, db.Index)
	db.Revision = int64(db.Index)
	db.facts.Members = membersOf(d)
	db.facts.RaftIndex = db.Index
	if d.HasArg("bad-db") {
		db.Damage = "a page is damaged"
		m.find(KindDatabase, "", "the database is damaged")
	}
	if db.Index > 0 {
		m.Databases = append(m.Databases, db)
	}
	if !d.HasArg("no-log") {
		last := all[len(all)-1]
		m.ClusterID, m.MemberID = snapshot.ID(number(t, d, "cluster", 7)), snapshot.ID(id)
		m.Log = &Log{FirstIndex: all[0].Index, LastIndex: last.Index, LastTerm: last.Term, Commit: number(t, d, "commit", 0), Ranges: ranges(all), Restored: true}
	}
	s.broken[name] = d.HasArg("broken")
	if d.HasArg("cut") {
		m.find(KindCutLog, "", "the log's end was cut off")
	}
	dir.compareWithin()
	s.members = append(s.members, dir)
}

// membersOf are those that the arguments list.
func membersOf(d *datadriven.TestData) (all []snapshot.Member) {
	for _, kind := range []string{"voters", "learners"} {
		for _, v := range values(d, kind) {
			var member uint64
			fmt.Sscan(v, &member)
			all = append(all, snapshot.Member{ID: snapshot.ID(member), Name: fmt.Sprint("m", member), IsLearner: kind == "learners"})
		}
	}
	return all
}

func (s *scenario) addArchive(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	id := timeline(t, d.CmdArgs[0].Key)
	a := Archive{Name: "archive:" + d.CmdArgs[0].Key, Repository: "file:///r", Timeline: id}
	all := s.entriesOf(t, d, a.Name)
	a.Log = ranges(all)
	if n := len(all); n > 0 {
		a.LastTerm = all[n-1].Term
	}
	for _, v := range values(d, "fulls") {
		var index uint64
		fmt.Sscan(v, &index)
		a.Fulls = append(a.Fulls, Full{ID: "b" + v, Index: index, Term: max(1, termAt(all, index)), Revision: int64(index), Members: membersOf(d)})
	}
	if p := values(d, "parent"); len(p) > 0 {
		a.Parent = &repository.Branch{Timeline: timeline(t, p[0])}
	}
	if p := values(d, "superseded"); len(p) > 0 {
		a.Superseded = &repository.Superseded{By: timeline(t, p[0]), Reason: "recovered"}
	}
	for _, v := range values(d, "held") {
		var member, index uint64
		fmt.Sscanf(v, "%d@%d", &member, &index)
		a.Held = append(a.Held, Held{snapshot.ID(member), index})
	}
	a.Seen.Index = number(t, d, "seen", 0)
	s.archives = append(s.archives, a)
}

func timeline(t *testing.T, text string) repository.TimelineID {
	t.Helper()
	var id repository.TimelineID
	_, err := fmt.Sscanf(text, "%d-%d", &id.ClusterID, &id.N)
	require.NoError(t, err, "%q", text)
	return id
}

// log is the part of one from first to last.
func (s *scenario) log(name string, first, last uint64) iter.Seq2[raftlog.Entry, error] {
	return func(yield func(raftlog.Entry, error) bool) {
		for _, e := range s.logs[name] {
			if first <= e.Index && e.Index <= last && !yield(e, nil) {
				return
			}
		}
		if s.broken[name] {
			yield(raftlog.Entry{}, &walfile.CorruptError{Dir: "/" + name, Segment: "1.wal", Offset: 4096, Err: fmt.Errorf("wrong CRC")})
		}
	}
}

// findings does what a survey does with members and archives that were looked at.
func (s *scenario) findings(t *testing.T) *Findings {
	t.Helper()
	y := &survey{req: &SurveyRequest{}, findings: &Findings{}}
	for _, d := range s.members {
		m, log := *d.remains, s.log(d.Name, 0, 0)
		if m.Log != nil {
			one := *m.Log
			m.Log, log = &one, s.log(d.Name, 0, math.MaxUint64)
		}
		var b bytes.Buffer
		require.NoError(t, (&memberDir{Survivor: d.Survivor, remains: &m}).write(t.Context(), &b, log))
		require.NoError(t, y.open(summarized(d.Name, b.Bytes())))
	}
	for _, a := range s.archives {
		y.archives = append(y.archives, &archived{&a, func(_ context.Context, first, last uint64) iter.Seq2[raftlog.Entry, error] {
			return s.log(a.Name, first, last)
		}})
	}
	require.NoError(t, y.compare(t.Context()))
	return y.result()
}

// Of each log the terms of the entries that any database or full snapshot ends with are
// reported: by these a log joins it.
func TestTermsOfDatabases(t *testing.T) {
	log := []raftlog.Entry{{Index: 4, Term: 1}, {Index: 5, Term: 2}, {Index: 6, Term: 2}}
	f := (&scenario{
		logs: map[string][]raftlog.Entry{"m2": log, "archive:7-1": log},
		members: []*memberDir{
			{Survivor: Survivor{Name: "m1"}, remains: &Remains{Databases: []Database{{Path: "/m1/db", Index: 5, Term: 2}}}},
			{Survivor: Survivor{Name: "m2"}, remains: &Remains{Log: &Log{FirstIndex: 4, LastIndex: 6, Ranges: []Range{{4, 6}}}}},
		},
		archives: []Archive{{Name: "archive:7-1", Fulls: []Full{{Index: 6}}, Log: []Range{{4, 6}}}},
	}).findings(t)
	require.Equal(t, []Term{{5, 2}, {6, 2}}, f.Survivors[1].Log.Terms)
	require.Equal(t, []Term{{5, 2}, {6, 2}}, f.Archives[0].Terms)
}

func (s *scenario) peers(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	p, err := Decide(s.findings(t), request(t, d))
	checkPlan(t, d, p, err)
	require.NoError(t, err, d.Pos)
	c := p.Candidate(p.Chosen)
	b := strings.Builder{}
	fmt.Fprintf(&b, "%s, to %d of term %d: %s\n", c.Name, c.LastIndex, c.LastTerm, c.Source.describe())
	for _, p := range c.Source.Peers {
		fmt.Fprintf(&b, "compared with the database of %s, --source %s\n", p.Owner, p.Source)
	}
	return b.String()
}

func request(t *testing.T, d *datadriven.TestData) DecideRequest {
	t.Helper()
	req := DecideRequest{DeclareDead: values(d, "dead")}
	if d.HasArg("source") {
		d.ScanArgs(t, "source", &req.Source)
	}
	if index := number(t, d, "index", 0); index > 0 {
		req.Target = walreplay.Target{Kind: walreplay.AtIndex, Index: index}
	}
	if revision := number(t, d, "revision", 0); revision > 0 {
		req.Target = walreplay.Target{Kind: walreplay.AtRevision, Revision: int64(revision)}
	}
	if keys := values(d, "before"); len(keys) > 0 {
		req.Target = walreplay.Target{Kind: walreplay.BeforeKey, Key: keys[0]}
	}
	return req
}

func (s *scenario) decide(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	p, err := Decide(s.findings(t), request(t, d))
	checkPlan(t, d, p, err)
	var b strings.Builder
	for _, c := range p.Candidates {
		rank := "-"
		if c.Rank > 0 {
			rank = fmt.Sprint(c.Rank)
		}
		fmt.Fprintf(&b, "%s %s: %d of term %d, lost %d; %s", rank, c.Name, c.LastIndex, c.LastTerm, c.Lost.Entries, c.Why)
		if len(c.Findings) > 0 {
			fmt.Fprintf(&b, " [%s]", kinds(c.Findings))
		}
		b.WriteString("\n")
	}
	if err != nil {
		fmt.Fprintf(&b, "error: %v\n", err)
		return b.String()
	}
	verdict := "unproven"
	if p.Proven {
		verdict = "proven"
	}
	fmt.Fprintf(&b, "chosen %s, %s: %s\n", p.Chosen, verdict, p.Why)
	if c := p.Candidate(p.Chosen); c.Kind == FromJoined {
		fmt.Fprintf(&b, "made: %s\n", c.Source.describe())
	}
	fmt.Fprintf(&b, "members: %s\nfence: %s\n", names(p.Members), p.Fence.Why)
	return b.String()
}

// checkPlan holds what is true of every plan.
func checkPlan(t *testing.T, d *datadriven.TestData, p *Plan, err error) {
	t.Helper()
	if (err != nil) != (p.Chosen == "") || p.Chosen != "" && p.Bump.Raise == p.Proven {
		t.Errorf("%s: chosen %q, proven %t, bump %+v, error %v", d.Pos, p.Chosen, p.Proven, p.Bump, err)
	}
	data, err := json.Marshal(p)
	var back Plan
	if err == nil {
		err = json.Unmarshal(data, &back)
	}
	require.NoError(t, err, "%s: JSON", d.Pos)
	for _, c := range p.Candidates {
		if c.Why == "" {
			t.Errorf("%s: %s has no reason", d.Pos, c.Name)
		}
		if c.Source == nil {
			continue
		}
		if end := endOf(*c.Source); end != c.LastIndex || end != c.Source.Index || c.Source.Term != c.LastTerm {
			t.Errorf("%s: %s ends with %d: %+v", d.Pos, c.Name, end, c.Source)
		}
	}
}

// endOf is where a way ends; 0 where its pieces do not follow each other.
func endOf(s Source) uint64 {
	at := s.Base.Index
	for _, piece := range s.Log {
		if piece.First != at+1 || piece.Last < piece.First {
			return 0
		}
		at = piece.Last
	}
	return at
}
