package sources

import (
	"fmt"
	"slices"
	"strings"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay"
)

// Decide ranks what was found and chooses. It reads nothing and changes nothing.
//
// Where there is more than one history to choose from the error is a
// *NeedSourceError, where nothing can be rebuilt a *NothingError, and where the
// source that was named cannot be used a *SourceError. The plan that comes with
// these shows all that was found, and chooses nothing.
func Decide(f *Findings, req DecideRequest) (*Plan, error) {
	d := &decision{findings: f, req: req, ties: ties{f.Relations}, plan: &Plan{Format: PlanFormat, Target: req.Target.String()}}
	d.sort()
	d.list()
	chosen, err := d.choose()
	if err != nil {
		d.plan.Why = err.Error()
		return d.plan, err
	}
	return d.plan, d.decide(chosen)
}

type decision struct {
	findings  *Findings
	req       DecideRequest
	ties      ties
	plan      *Plan
	histories []*history
	rankings  []*ranking // of each history
	bare      []*Remains // databases without a log: of no history
}

// sort distinguishes the histories.
func (d *decision) sort() {
	var sources []*source
	for i := range d.findings.Survivors {
		m := &d.findings.Survivors[i]
		if m.Log == nil {
			d.bare = append(d.bare, m)
			continue
		}
		sources = append(sources, memberSource(m))
	}
	for i := range d.findings.Archives {
		if a := &d.findings.Archives[i]; len(a.Fulls) > 0 || len(a.Log) > 0 {
			sources = append(sources, archiveSource(a))
		}
	}
	d.histories = findHistories(sources, d.ties)
	markCandidates(d.histories, d.ties)
}

// list makes the candidates of all histories.
func (d *decision) list() {
	until := uint64(0)
	if d.req.Target.Kind == walreplay.AtIndex {
		until = d.req.Target.Index
	}
	d.plan.Histories, d.plan.Candidates = []History{}, []Candidate{}
	for _, h := range d.histories {
		end := h.end()
		shown := History{Number: h.number, ClusterID: h.clusterID(), Timelines: h.timelines(), LastIndex: end.index, LastTerm: end.term, Candidate: h.candidate, Why: h.why}
		for _, s := range h.survivors() {
			shown.Survivors = append(shown.Survivors, s.name)
		}
		d.plan.Histories = append(d.plan.Histories, shown)
		r := &ranking{history: h, ties: d.ties, proof: h.prove(d.bare), until: until, target: d.req.Target, timed: d.req.Target.Kind == walreplay.AtTime}
		d.rankings = append(d.rankings, r)
		for _, c := range r.candidates() {
			if d.plan.Candidate(c.Name) == nil { // one that ends before two histories part is in both
				d.plan.Candidates = append(d.plan.Candidates, c)
			}
		}
	}
	for _, m := range d.bare {
		d.plan.Candidates = append(d.plan.Candidates, bareCandidate(m))
	}
	d.markOthers()
}

// markOthers marks candidates of histories that are not chosen by themselves.
func (d *decision) markOthers() {
	for i := range d.plan.Candidates {
		c := &d.plan.Candidates[i]
		if c.History == 0 || d.histories[c.History-1].candidate {
			continue
		}
		c.Rank = 0
		h := d.histories[c.History-1]
		kind := KindHistory
		switch {
		case !slices.ContainsFunc(d.histories, func(o *history) bool { return o.candidate && o.clusterID() == h.clusterID() }):
			kind = KindCluster
		case slices.ContainsFunc(d.histories, func(o *history) bool { return slices.Contains(o.unconnected, h.sources[0]) }):
			kind = KindUnconnected
		}
		c.Findings = append(c.Findings, Finding{kind, "it is not of the history that is recovered: " + h.why, "it is used only when it is named"})
		c.Why = "of another history: it is used only when it is named"
	}
}

// bareCandidate is a database whose log is gone.
func bareCandidate(m *Remains) Candidate {
	c := Candidate{Name: m.Name, Kind: FromDatabase, Findings: m.Findings, Why: "it has no log: what had not reached its database is missing, and nothing can be compared. It is used only when it is named"}
	if db := m.newest(); db == nil {
		c.Why = "it has neither a log nor a database that can be used"
	} else {
		c.LastIndex, c.LastTerm, c.Revision = db.Index, db.Term, m.Revision
		c.Source = &Source{Base: Base{Owner: m.Name, Path: db.Path, Index: db.Index, Term: db.Term, Revision: db.Revision}, Log: []Piece{}, Index: db.Index, Term: db.Term}
		c.Lost = Loss{Text: "what its log held"}
	}
	return c
}

// choose finds the candidate: the one that was named, or the best of the only
// history that is a candidate.
func (d *decision) choose() (*Candidate, error) {
	if d.req.Source != "" {
		return d.named()
	}
	var candidates []History
	var only *history
	for i, h := range d.histories {
		if h.candidate {
			candidates, only = append(candidates, d.plan.Histories[i]), h
		}
	}
	if len(candidates) > 1 || only != nil && only.superseded() != nil {
		return nil, &NeedSourceError{candidates}
	}
	for i := range d.plan.Candidates {
		if c := &d.plan.Candidates[i]; only != nil && c.History == only.number && c.Rank == 1 {
			return c, nil
		}
	}
	return nil, d.nothing()
}

func (d *decision) nothing() error {
	e := &NothingError{}
	for _, c := range d.plan.Candidates {
		e.Reasons = append(e.Reasons, c.Name+": "+c.Why)
		if c.Source != nil {
			e.Nameable = append(e.Nameable, c.Name)
		}
	}
	for _, m := range d.findings.Survivors {
		for _, f := range m.Findings {
			if f.Kind == KindMixed {
				e.Mixed, e.Reasons = append(e.Mixed, m.DataDir), append(e.Reasons, m.Name+": "+f.String())
			}
		}
	}
	for _, u := range d.findings.Unread {
		e.Reasons = append(e.Reasons, fmt.Sprintf("repository %s could not be read: %s", u.Repository, u.Reason))
	}
	return e
}

// named finds the candidate that was asked for, or another way to where one leads.
// "archive" and a timeline's ID will do where they mean one.
func (d *decision) named() (*Candidate, error) {
	var found []*Candidate
	var all []string
	for i := range d.plan.Candidates {
		c := &d.plan.Candidates[i]
		all = append(all, c.Name)
		if c.Name == d.req.Source {
			found = []*Candidate{c}
			break
		}
		if c.Kind == FromArchive && (d.req.Source == "archive" || strings.Contains(c.Name, ":"+d.req.Source)) {
			found = append(found, c)
		}
	}
	if len(found) == 0 {
		if c := d.compose(d.req.Source); c != nil {
			found = []*Candidate{c}
		}
	}
	switch {
	case len(found) != 1:
		return nil, &SourceError{d.req.Source, "there is no such candidate, or more than one: they are " + strings.Join(all, ", ")}
	case found[0].Source == nil:
		return nil, &SourceError{d.req.Source, found[0].Why}
	case d.req.Target.Kind == walreplay.AtIndex && found[0].Source.Index != d.req.Target.Index:
		return nil, &SourceError{d.req.Source, fmt.Sprintf("it does not reach raft index %d", d.req.Target.Index)}
	case d.req.Target.Kind == walreplay.AtTime && found[0].Kind != FromArchive:
		return nil, &SourceError{d.req.Source, "only an archive can show what the state was at a time: give an index"}
	}
	return found[0], nil
}

// decide says of what was chosen what it proves, loses and needs.
func (d *decision) decide(c *Candidate) error {
	p := d.plan
	p.Chosen, p.Named, p.Loss = c.Name, d.req.Source != "", c.Lost
	p.Bump.HighestKnown = d.highest()
	if c.History == 0 {
		return d.decideBare(c)
	}
	r := d.rankings[c.History-1]
	p.ClusterID = r.history.clusterID()
	p.Why = r.proof.why
	others := d.otherCandidates(c.History)
	switch {
	case d.req.Target.Kind != walreplay.Latest:
		p.Why = "a point in the past was asked for, " + d.req.Target.String() + ": what came after it is left out on purpose. Of the newest state: " + p.Why
	case len(others) > 0:
		p.Why = "writes that were acknowledged in another history are not in it (" + strings.Join(others, "; ") + "). Within its own: " + p.Why
	case r.proof.proven && !r.holdsAll(c.LastIndex):
		end, owners := r.need()
		p.Why = fmt.Sprintf("acknowledged writes may be among the entries after raft index %d, up to %d, that it does not hold and the log of %s does. Of the best: %s", c.LastIndex, end, strings.Join(owners, ", "), p.Why)
	default:
		p.Proven = r.proof.proven
	}
	steps := r.proof.steps
	if len(steps) == 0 {
		steps = r.history.remembered()
	}
	if n := len(steps); n > 0 {
		p.Members = steps[n-1].Members
	}
	d.bump(c)
	if p.Proven {
		p.Warnings = append(p.Warnings, r.proof.stale()...)
	}
	d.warn(c)
	var err error
	p.Fence, err = newFence(d.findings, steps, &d.req)
	return err
}

func (d *decision) decideBare(c *Candidate) error {
	p := d.plan
	p.Why = "only a database was chosen, without the log behind it: what was acknowledged after raft index " + fmt.Sprint(c.LastIndex) + " is missing"
	var err error
	for _, m := range d.bare {
		if m.Name == c.Name {
			p.Members = m.Membership.Members
			p.Fence, err = newFence(d.findings, m.Steps, &d.req)
		}
	}
	d.bump(c)
	d.warn(c)
	return err
}

func (d *decision) otherCandidates(number int) []string {
	var all []string
	for _, h := range d.histories {
		if h.candidate && h.number != number {
			all = append(all, fmt.Sprintf("history %d, %s", h.number, h.why))
		}
	}
	return all
}

// highest is the highest revision that anything can have reached.
func (d *decision) highest() int64 {
	var highest int64
	for _, m := range d.findings.Survivors {
		highest = max(highest, m.Revision.AtMost)
	}
	for _, a := range d.findings.Archives {
		highest = max(highest, a.Revision, a.Highest)
	}
	return highest
}

func (d *decision) bump(c *Candidate) {
	b := &d.plan.Bump
	b.Raise = !d.plan.Proven
	if !b.Raise {
		b.Reason = "nothing that was acknowledged is lost: clients go on with the revisions that they know"
		return
	}
	b.Reason = "clients may have seen revisions that the new cluster will not have: theirs have to end with \"compacted\", so that they list anew"
	b.HighestKnown = max(b.HighestKnown, c.Revision.AtMost)
}

// warn says what the operator has to know before agreeing.
func (d *decision) warn(c *Candidate) {
	p := d.plan
	add := func(format string, args ...any) { p.Warnings = append(p.Warnings, fmt.Sprintf(format, args...)) }
	for _, u := range d.findings.Unread {
		add("repository %s could not be read, and may hold more: %s", u.Repository, u.Reason)
	}
	if c.Kind == FromJoined {
		add("it is put together: %s", c.Source.describe())
	}
	if c.Source.Unguarded() && len(c.Source.Peers) == 0 {
		add("the database of %s has no checksums, and there is no other one to compare with: its structure is checked, damage inside keys and values would go unnoticed", c.Source.Base.Owner)
	}
	if v := d.rulesOf(c); v != "" {
		add("authentication is on, the cluster is of etcd %s, and which patch its members ran is in no log: etcd older than 3.5.30 or 3.6.11 permitted some requests by other rules than later ones. If theirs was older, say so with --source-version (what etcd --version prints, such as %s.20): otherwise such a request may be replayed differently", v, v)
	}
	if p.Named && c.Rank != 1 {
		add("%s was asked for by name; by itself it would not have been chosen: %s", c.Name, c.Why)
	}
	for _, h := range p.Histories {
		if c.History != 0 && h.Number != c.History && h.Candidate {
			add("another history is left out: %s", h.Why)
		}
	}
}

// rulesOf is the minor version of etcd by whose rules a candidate's log may have been
// applied otherwise than by today's, where nobody said which patch it was; empty where
// that makes no difference, or a backup says it. The rules are about authentication:
// see walreplay.Options.SourceVersion.
func (d *decision) rulesOf(c *Candidate) string {
	if d.req.SourceVersion != "" || c.Source == nil || c.Source.Base.Backup != "" || len(c.Source.Log) == 0 {
		return ""
	}
	for i := range d.findings.Survivors {
		for _, db := range d.findings.Survivors[i].Databases {
			if db.Path != c.Source.Base.Path || d.findings.Survivors[i].Name != c.Source.Base.Owner || !db.AuthEnabled {
				continue
			}
			for _, v := range []string{"3.5", "3.6"} {
				if strings.HasPrefix(db.ClusterVersion, v+".") {
					return v
				}
			}
		}
	}
	return ""
}

// newFence says which old voters cannot come back. A name that is declared dead may be
// that of several: a member that was removed, and the one that took its place. It may
// be a host's that has no member of this cluster: then it counts for nothing.
func newFence(f *Findings, steps []Membership, req *DecideRequest) (Fence, error) {
	out := Fence{Stopped: []string{}, DeclaredDead: []string{}, Open: []string{}}
	gone := map[snapshot.ID]bool{}
	var known []snapshot.Member
	for _, s := range steps {
		for _, m := range append(slices.Clone(s.Members), s.Removed...) {
			if !slices.ContainsFunc(known, func(o snapshot.Member) bool { return o.ID == m.ID }) {
				known = append(known, m)
			}
		}
	}
	for _, name := range req.DeclareDead {
		found := false
		for _, m := range known {
			if m.Name != name && m.ID.String() != name {
				continue
			}
			gone[m.ID], found = true, true
			if called := MemberName(m); !slices.Contains(out.DeclaredDead, called) {
				out.DeclaredDead = append(out.DeclaredDead, called)
			}
		}
		if !found && !slices.Contains(req.Hosts, name) {
			return out, fmt.Errorf("--declare-dead %s: there is no such member: they are %s", name, names(known))
		}
	}
	for _, m := range f.Survivors {
		if m.MemberID != 0 && !gone[m.MemberID] {
			gone[m.MemberID] = true
			out.Stopped = append(out.Stopped, m.Name)
		}
	}
	if len(steps) == 0 {
		out.Why = "who the voters of the old cluster were is not known: make sure yourself that none of them can start again"
		return out, nil
	}
	out.Enough, out.Closes = true, true
	for _, s := range steps {
		out.weigh(s, s.Voters(), gone, req.Stopping)
	}
	return out, nil
}

// weigh looks whether enough of some voters cannot come back, or will not be able to
// once those are stopped that can be.
func (f *Fence) weigh(s Membership, voters []snapshot.ID, gone map[snapshot.ID]bool, stopping []string) {
	n, will := 0, 0
	for _, id := range voters {
		if gone[id] {
			n++
			continue
		}
		name := id.String()
		if m := s.Find(id); m != nil {
			name = MemberName(*m)
		}
		list := &f.Open
		if slices.Contains(stopping, name) {
			list = &f.Stopping
			will++
		}
		if !slices.Contains(*list, name) {
			*list = append(*list, name)
		}
	}
	need := Majority(len(voters))
	f.Enough = f.Enough && n >= need
	switch {
	case n+will < need:
		f.Closes = false
		f.Why = fmt.Sprintf("of %d old voters %d are known to be stopped or dead, %sand %d are needed: %s could come back on the old addresses and serve beside the new cluster. Stop them, or if their hosts are gone for good: --declare-dead %s",
			len(voters), n, more(will), need, strings.Join(f.Open, ", "), strings.Join(f.Open, ","))
	case n < need && f.Closes:
		f.Why = fmt.Sprintf("%d of %d old voters are stopped or declared dead, and %d are needed: %s may run, and are stopped first", n, len(voters), need, strings.Join(f.Stopping, ", "))
	case f.Enough && n == len(voters):
		f.Why = fmt.Sprintf("all old voters (%d) are stopped or declared dead", n)
	case f.Enough:
		f.Why = fmt.Sprintf("%d of %d old voters are stopped or declared dead: the others are no majority", n, len(voters))
	}
}

func more(will int) string {
	if will == 0 {
		return ""
	}
	return fmt.Sprintf("%d more can be stopped, ", will)
}

func names(all []snapshot.Member) string {
	var list []string
	for _, m := range all {
		list = append(list, MemberName(m))
	}
	if len(list) == 0 {
		return "not known"
	}
	return strings.Join(list, ", ")
}
