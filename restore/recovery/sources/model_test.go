package sources

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// model is raft without time and messages: who reaches whom is drawn by lot.
type model struct {
	r     *rand.Rand
	nodes []*node
	// acked is the longest log that a leader ever reported as committed.
	acked []raftlog.Entry
	next  int
}

type node struct {
	term, commit uint64
	log          []raftlog.Entry
	leads        bool
	match        map[*node]uint64
}

func (n *node) last() (term, index uint64) {
	if len(n.log) == 0 {
		return 0, 0
	}
	e := n.log[len(n.log)-1]
	return e.Term, e.Index
}

func (m *model) write(n *node) {
	m.next++
	n.log = append(slices.Clip(n.log), raftlog.Entry{Index: uint64(len(n.log) + 1), Term: n.term, Data: fmt.Appendf(nil, "\xff%d", m.next)})
}

// elect lets one of those who reach each other ask the others for their votes.
func (m *model) elect() {
	c := m.nodes[m.r.IntN(len(m.nodes))]
	term := c.term
	var reached []*node
	for _, n := range m.nodes {
		if n == c || m.r.IntN(3) > 0 {
			reached, term = append(reached, n), max(term, n.term)
		}
	}
	term++
	votes := 0
	ct, ci := c.last()
	for _, n := range reached {
		n.term, n.leads = term, false
		if t, i := n.last(); t < ct || t == ct && i <= ci {
			votes++
		}
	}
	if votes > len(m.nodes)/2 {
		c.leads, c.match = true, map[*node]uint64{}
		m.write(c)
	}
}

// replicate sends a part of a leader's log to a follower.
func (m *model) replicate(l, f *node) {
	if l == f || f.term > l.term {
		return
	}
	f.term, f.leads = l.term, false
	k := uint64(1 + m.r.IntN(len(l.log)))
	for i := range k {
		if i < uint64(len(f.log)) && !f.log[i].Equal(l.log[i]) {
			f.log = slices.Clip(f.log[:i])
		}
		if i >= uint64(len(f.log)) {
			f.log = append(f.log, l.log[i])
		}
	}
	l.match[f] = max(l.match[f], k)
	f.commit = max(f.commit, min(l.commit, k))
	for k := uint64(len(l.log)); k > l.commit && l.log[k-1].Term == l.term; k-- {
		n := 1
		for _, match := range l.match {
			if match >= k {
				n++
			}
		}
		if n > len(m.nodes)/2 {
			l.commit = k
			for i := range min(k, uint64(len(m.acked))) {
				if !l.log[i].Equal(m.acked[i]) {
					panic("the model is not raft")
				}
			}
			if k > uint64(len(m.acked)) {
				m.acked = slices.Clone(l.log[:k])
			}
		}
	}
}

func (m *model) step() {
	n := m.nodes[m.r.IntN(len(m.nodes))]
	switch draw := m.r.IntN(20); {
	case draw == 0:
		m.elect()
	case !n.leads:
	case draw < 7:
		m.write(n)
	default:
		m.replicate(n, m.nodes[m.r.IntN(len(m.nodes))])
	}
}

// scenario is what is left: the logs of some nodes, with what they had recorded
// of the commit index, and maybe an archive of what was committed.
func (m *model) scenario(here []int) *scenario {
	s := &scenario{logs: map[string][]raftlog.Entry{}, broken: map[string]bool{}}
	var members []snapshot.Member
	for i := range m.nodes {
		members = append(members, snapshot.Member{ID: snapshot.ID(i + 1), Name: fmt.Sprint("m", i+1)})
	}
	for _, i := range here {
		n, name := m.nodes[i], fmt.Sprint("m", i+1)
		if len(n.log) == 0 {
			continue
		}
		term, index := n.last()
		commit := uint64(m.r.IntN(int(n.commit) + 1))
		first := uint64(1)
		db := Database{Path: name + "/db", Index: uint64(m.r.IntN(int(n.commit) + 1)), Revision: 1}
		if db.Index > 0 {
			db.Term = n.log[db.Index-1].Term
			first = 1 + uint64(m.r.IntN(int(db.Index)))
		}
		db.facts = snapshot.Facts{RaftIndex: db.Index, RaftTerm: db.Term, Members: members}
		if m.r.IntN(4) == 0 {
			db.Damage, s.damaged = "a page is damaged", true
		}
		s.logs[name] = n.log[first-1:]
		s.members = append(s.members, &memberDir{Survivor: Survivor{Name: name}, remains: &Remains{Name: name, ClusterID: 7, MemberID: snapshot.ID(i + 1),
			Databases: []Database{db}, Log: &Log{FirstIndex: first, LastIndex: index, LastTerm: term, Commit: commit, Ranges: []Range{{first, index}}, Restored: true}}})
	}
	if len(m.acked) > 0 && m.r.IntN(2) == 0 {
		last := 1 + m.r.IntN(len(m.acked))
		full := 1 + m.r.IntN(last)
		a := Archive{Name: "archive:7-1", Timeline: repository.TimelineID{ClusterID: 7, N: 1}, Log: []Range{{1, uint64(last)}}, LastTerm: m.acked[last-1].Term,
			Fulls: []Full{{ID: "b", Index: uint64(full), Term: m.acked[full-1].Term, Members: members}}}
		s.archives, s.logs[a.Name] = append(s.archives, a), m.acked[:last]
	}
	return s
}

// Promise 2 of the design, against a model of raft that knows what was ever
// acknowledged: with a majority of the logs the plan says proven and what it
// chooses holds every acknowledged entry; with fewer it says unproven; what it
// would rebuild is always the log of one history, put together of equal entries;
// the ways from peers that it names are of the same entries; and no two logs of the
// model pass for two histories where both can be compared with a third.
func TestPromise2AgainstAModel(t *testing.T) {
	t.Parallel() // it computes while others wait
	runs := 20_000
	if testing.Short() {
		runs = 4000
	}
	refused, lost, joined, two, proven, ways := 0, 0, 0, 0, 0, 0
	for seed := range uint64(runs) {
		m := &model{r: rand.New(rand.NewPCG(seed, 7))}
		size := 1 + 2*m.r.IntN(3)
		for range size {
			m.nodes = append(m.nodes, &node{})
		}
		for range 30 + m.r.IntN(250) {
			m.step()
		}
		here := m.r.Perm(size)[:1+m.r.IntN(size)]
		s := m.scenario(here)
		if len(s.members) == 0 {
			continue
		}
		p, err := Decide(s.findings(t), DecideRequest{})
		if err != nil {
			var need *NeedSourceError
			var nothing *NothingError
			if errors.As(err, &need) && unconnectable(s) || errors.As(err, &nothing) && s.damaged {
				continue
			}
			t.Fatalf("seed %d: %v", seed, err)
		}
		c := p.Candidate(p.Chosen)
		got := s.assemble(c.Source)
		holds := uint64(len(m.acked)) <= c.LastIndex
		for _, e := range got {
			holds = holds && (e.Index > uint64(len(m.acked)) || e.Equal(m.acked[e.Index-1]))
		}
		if p.Proven && !holds {
			t.Fatalf("seed %d: proven, and %s to %d does not hold the %d that were acknowledged: %s", seed, c.Name, c.LastIndex, len(m.acked), p.Why)
		}
		if p.Proven && len(s.members) <= size/2 {
			t.Errorf("seed %d: %d of %d members prove: %s", seed, len(s.members), size, p.Why)
		}
		if !p.Proven && len(s.members) > size/2 && !unconnectable(s) && !s.damaged {
			t.Errorf("seed %d: %d of %d members do not prove: %s", seed, len(s.members), size, p.Why)
		}
		if p.Proven {
			proven++
		}
		if !holds {
			lost++
		}
		if c.Kind == FromJoined {
			joined++
		}
		switch survivors, archives := kindsOf(c.Source.Log); {
		case survivors > 2 || archives > 1:
			t.Errorf("seed %d: more logs are joined than a second one and an archive: %+v", seed, c.Source)
		case survivors == 2:
			two++
		}
		for _, peer := range c.Source.Peers {
			if peer.Source == "" {
				continue
			}
			ways++
			named, err := Decide(s.findings(t), DecideRequest{Source: peer.Source})
			if err != nil || named.Candidate(peer.Source).Source.Base.Owner != peer.Owner || !s.equal(c.Source, named.Candidate(peer.Source).Source) {
				t.Errorf("seed %d: %s and %s do not lead to the same: %+v, %v", seed, c.Name, peer.Source, c.Source, err)
			}
		}
		for _, c := range p.Candidates {
			if has(c.Findings, KindRefused) {
				refused++
			}
		}
	}
	if refused == 0 || lost == 0 || joined == 0 || two == 0 || proven == 0 || ways == 0 {
		t.Errorf("%d proven, %d refused tails, %d that lost something, %d joined, %d of two survivors' logs, %d ways from peers: the test shows too little", proven, refused, lost, joined, two, ways)
	}
	t.Logf("%d runs: %d proven, %d refused tails, %d that lost something, %d joined, %d of two survivors' logs, %d ways from peers", runs, proven, refused, lost, joined, two, ways)
}

// kindsOf counts whose logs are in the pieces.
func kindsOf(log []Piece) (survivors, archives int) {
	seen := map[string]bool{}
	for _, p := range log {
		switch {
		case seen[p.Owner]:
		case strings.HasPrefix(p.Owner, ArchivePrefix):
			archives++
		default:
			survivors++
		}
		seen[p.Owner] = true
	}
	return survivors, archives
}

// unconnectable reports whether some logs have no index in common.
func unconnectable(s *scenario) bool {
	for _, a := range s.logs {
		for _, b := range s.logs {
			if a[0].Index > b[len(b)-1].Index {
				return true
			}
		}
	}
	return false
}

// equal reports whether two ways end with the same entry and agree wherever both
// hold something, also in the term that the one's database ends with.
func (s *scenario) equal(a, b *Source) bool {
	if a.Index != b.Index || a.Term != b.Term || endOf(*b) != b.Index {
		return false
	}
	held := map[uint64]raftlog.Entry{}
	for _, e := range s.assemble(a) {
		held[e.Index] = e
	}
	for _, e := range s.assemble(b) {
		if o, ok := held[e.Index]; ok && !o.Equal(e) || e.Index == a.Base.Index && e.Term != a.Base.Term {
			return false
		}
	}
	o, ok := held[b.Base.Index]
	return !ok || o.Term == b.Base.Term
}

// assemble is the log that a source says to replay.
func (s *scenario) assemble(from *Source) []raftlog.Entry {
	var all []raftlog.Entry
	for _, p := range from.Log {
		for _, e := range s.logs[p.Owner] {
			if p.First <= e.Index && e.Index <= p.Last {
				all = append(all, e)
			}
		}
	}
	return all
}
