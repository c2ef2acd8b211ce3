package recovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/shell"
	"github.com/requorum/requorum/walreplay"
)

// preflight finds out what there is: hosts, what they know of recoveries, and whether a
// quorum serves.
func (d *coordinator) preflight(ctx context.Context) (_ *Preview, err error) {
	d.reporter.begin(PhasePreflight, "")
	began := time.Now()
	defer func() { d.reporter.end(PhasePreflight, "", "", time.Since(began), err) }()
	// Before anything is stopped for a backup that could not be taken at the end.
	if d.codec, err = codecOf(d.cfg); err != nil {
		return nil, err
	}
	p := &Preview{Cluster: d.cfg.Cluster, Build: d.req.Build}
	for {
		var all sync.WaitGroup
		var err error
		urls, known := d.clientURLs(nil), make(chan struct{})
		all.Go(func() {
			p.Quorum, err = d.quorumUnless(ctx, urls, func(voters []string) bool { <-known; return d.cannotElect(voters) })
		})
		stateErr := d.states(ctx)
		close(known)
		all.Wait()
		if err := errors.Join(stateErr, err); err != nil {
			return nil, err
		}
		// Members that are just starting or ending run, and answer nobody.
		if !d.silent(p.Quorum) || !d.mayElect() {
			break
		}
		d.reporter.waiting(PhasePreflight, fmt.Sprintf("members run, and none answers: they may be starting, and get %s for it", d.req.election))
		if err := pause(ctx, electionPause); err != nil {
			return nil, err
		}
	}
	if err := d.found(); err != nil {
		return nil, err
	}
	if err := d.askMore(ctx, p, nil); err != nil {
		return nil, err
	}
	d.setRun(newRunID(time.Now()), nil)
	if dec := d.newest(); dec != nil && (!dec.over() || dec.incomplete(p.Quorum)) {
		d.setRun(dec.Run, dec)
	}
	d.markDead()
	d.show(p)
	return p, nil
}

// silent reports whether most members run, and none of them answers.
func (d *coordinator) silent(q Quorum) bool {
	runs := 0
	for _, h := range d.hosts {
		if h.state.Runs {
			runs++
		}
	}
	return q.Unknown == "" && !q.Answered && runs*2 > len(d.hosts)
}

// show puts the hosts' states into a preview.
func (d *coordinator) show(p *Preview) {
	p.Hosts, p.Unsurveyed = nil, nil
	surveyable := d.surveyable()
	for _, h := range d.hosts {
		p.Hosts = append(p.Hosts, h.state)
		if h.state.Unreachable == "" && !slices.Contains(surveyable, h) {
			p.Unsurveyed = append(p.Unsurveyed, h.Member)
		}
	}
}

// survey reads what can be read, and plans.
func (d *coordinator) survey(ctx context.Context, p *Preview) error {
	if _, err := d.eachSurveyable(ctx, d.fetch); err != nil {
		return err
	}
	d.show(p)
	repos := d.repositories(ctx)
	var err error
	if p.Findings, err = d.findings(ctx, repos); err == nil {
		err = d.plan(ctx, p, repos)
	}
	if err == nil {
		err = d.countGivenUp(ctx, p, repos)
	}
	return errors.Join(err, repos.Close())
}

// countGivenUp counts what the plan leaves out of what is archived: only hosts can read
// their members' logs.
func (d *coordinator) countGivenUp(ctx context.Context, p *Preview, repos *Repositories) error {
	identities, err := d.identities()
	if err != nil {
		return err
	}
	p.GivenUp, err = p.Plan.GivenUp(ctx, p.Findings, sources.RebuildRequest{Target: d.asked().Target, Places: d.places(), Repositories: repos.Opened, Identities: identities})
	if err != nil && ctx.Err() == nil {
		p.Warnings = append(p.Warnings, fmt.Sprintf("not all that is given up is counted: %v", err))
	}
	return ctx.Err()
}

// plan decides what is done by what was found. Its error is that of
// sources.Decide.
func (d *coordinator) plan(ctx context.Context, p *Preview, repos *Repositories) error {
	a := d.asked()
	p.Plan, p.Members, p.Left, p.Next, p.Warnings, p.unreadable = nil, nil, nil, nil, nil, ""
	var err error
	p.Plan, err = sources.Decide(p.Findings, sources.DecideRequest{Source: a.Source, DeclareDead: a.DeclareDead, Hosts: d.hostNames(), Stopping: p.Unsurveyed, Target: a.Target, SourceVersion: a.Replay.SourceVersion})
	if err != nil && len(p.Unsurveyed) > 0 && len(a.DeclareDead) > 0 && !sources.AboutSource(err) {
		// Who the members are may be known only once those are read that still run.
		p.Plan, err = sources.Decide(p.Findings, sources.DecideRequest{Source: a.Source, Stopping: p.Unsurveyed, Target: a.Target, SourceVersion: a.Replay.SourceVersion})
	}
	if p.Plan == nil {
		return err
	}
	if qerr := d.askMore(ctx, p, p.Plan.Members); qerr != nil {
		return errors.Join(err, qerr)
	}
	if err == nil {
		err = d.decideMembers(p, a)
	}
	if d.req.Local != nil { // without a cluster file, the cluster is called by its ID
		d.cfg.Cluster = cmp.Or(p.Plan.Chosen, d.cfg.Cluster)
		if p.Plan.ClusterID != 0 {
			d.cfg.Cluster = p.Plan.ClusterID.String()
		}
		p.Cluster = d.cfg.Cluster
		return err
	}
	p.unreadable = d.unreadable(ctx, p.Plan, repos)
	d.show(p)
	d.warnings(p)
	return err
}

func (d *coordinator) hostNames() (all []string) {
	for _, h := range d.hosts {
		all = append(all, h.Member)
	}
	return all
}

// askMore asks for a quorum at client URLs that only members, or hosts, know.
func (d *coordinator) askMore(ctx context.Context, p *Preview, members []snapshot.Member) (err error) {
	more := d.clientURLs(members)
	if d.req.Local != nil || p.Quorum.Serves || len(more) <= len(p.Quorum.Asked) {
		return nil
	}
	p.Quorum, err = d.quorum(ctx, more)
	return err
}

func (d *coordinator) asked() Asked {
	if d.decision != nil {
		return d.decision.Asked
	}
	return d.req.Asked
}

// decideMembers says who the new members are, and how the revision rises.
func (d *coordinator) decideMembers(p *Preview, a Asked) error {
	if d.req.Local != nil {
		p.Bump = bumpOf(p.Plan, a)
		return d.membersHere(p, a)
	}
	change := a.Change
	change.Available = nil
	for _, h := range d.hosts {
		if h.state.Unreachable == "" {
			change.Available = append(change.Available, h.Member)
		}
	}
	var err error
	if p.Members, err = p.Plan.NewMembers(change); err != nil {
		return err
	}
	for i := range p.Members {
		m := &p.Members[i]
		if h := d.cfg.Host(m.Name); h != nil {
			if len(h.PeerURLs) > 0 {
				m.PeerURLs = h.PeerURLs
			}
			if len(h.ClientURLs) > 0 {
				m.ClientURLs = h.ClientURLs
			}
		}
	}
	for _, h := range d.hosts {
		gets := slices.ContainsFunc(p.Members, func(m sources.NewMember) bool { return m.Name == h.Member })
		if !gets && !h.empty && h.state.Unreachable == "" {
			p.Left = append(p.Left, h.Member)
		}
	}
	p.Bump = bumpOf(p.Plan, a)
	p.Next = d.staleFlags(p.Plan.Members, p.Members)
	return nil
}

// bumpOf is by how much every host raises the revision: whatever the replay ends with,
// the result is beyond all that clients may have seen.
func bumpOf(p *sources.Plan, a Asked) restore.BumpRequest {
	// Where nothing is lost that is no waiver of the raise, and no client has to mind.
	if !p.Bump.Raise && (a.Bump == (restore.BumpRequest{}) || a.Bump.Mode == restore.BumpOff) {
		return restore.BumpRequest{Mode: restore.BumpNone}
	}
	if a.Bump != (restore.BumpRequest{}) {
		return a.Bump
	}
	return restore.BumpRequest{Mode: restore.BumpBy, Amount: p.Bump.HighestKnown + restore.DefaultBump - lowest(p, a)}
}

// raises reports whether a revision rises.
func raises(b restore.BumpRequest) bool {
	return b.Mode != restore.BumpOff && b.Mode != restore.BumpNone
}

// lowest is the lowest revision that what is rebuilt can have. A point in the past
// may lie before all that is known of the source.
func lowest(p *sources.Plan, a Asked) int64 {
	if c := p.Candidate(p.Chosen); c != nil && a.Target.Kind == walreplay.Latest {
		return c.Revision.AtLeast
	}
	return 0
}

func (d *coordinator) warnings(p *Preview) {
	for _, h := range d.hosts {
		if h.passedBy() && p.Plan != nil && len(p.Plan.Members) > 0 && !slices.ContainsFunc(p.Plan.Members, func(m snapshot.Member) bool { return m.Name == h.Member }) {
			p.Warnings = append(p.Warnings, fmt.Sprintf("%s is declared dead, and was no member of the cluster that was found: take it out of the cluster file unless it is to come back", h.Member))
		}
		if h.failed != nil {
			p.Warnings = append(p.Warnings, fmt.Sprintf("%s is declared dead, and what lies on its host was not read: %v", h.Member, h.failed))
		}
	}
	for _, h := range d.hosts {
		if h.empty && !h.passedBy() {
			p.Warnings = append(p.Warnings, fmt.Sprintf("nothing of a member lies in %s on the host of %s: right for a new host or a lost disk; else mend data-dir in %s", h.state.DataDir, h.Member, d.cfg.File()))
		}
		for _, text := range h.state.Faults {
			p.Warnings = append(p.Warnings, h.Member+": "+text)
		}
	}
	if len(p.Unsurveyed) > 0 {
		p.Warnings = append(p.Warnings, fmt.Sprintf("%s may run, and can be read only once stopped: the plan is made anew then", strings.Join(p.Unsurveyed, ", ")))
	}
	if len(p.Left) > 0 {
		p.Warnings = append(p.Warnings, fmt.Sprintf("no new member for %s: what is there is set aside as well, so that no reboot starts it beside the new cluster", strings.Join(p.Left, ", ")))
	}
}

// blockers are what a recovery would not begin because of, without the quorum. unnamed
// says that there are some, and that naming members would end all of them: those that
// are dead, or those of the new cluster.
func (d *coordinator) blockers(p *Preview) (all []string, unnamed bool) {
	named := 0
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	name := func(format string, args ...any) {
		add(format, args...)
		named++
	}
	defer func() { unnamed = len(all) > 0 && named == len(all) }()
	for _, h := range d.hosts {
		switch s := h.state; {
		case s.Answers && !s.Dead:
			add("the host of %s cannot be worked with, though something answers there: %s. Mend that, or run of that host in %s; the host is not gone", h.Member, s.Unreachable, d.cfg.File())
		case s.Unreachable != "" && !s.Dead:
			name("the host of %s cannot be reached: %s. Mend that, or, if that host is gone for good: --declare-dead %s", h.Member, s.Unreachable, h.Member)
		case s.Dead && s.Runs:
			add("%s is declared dead, and runs: leave it out of --declare-dead, or stop it", h.Member)
		}
	}
	if clear := d.inTheClear(p); clear != "" {
		add("the backups in %s are encrypted, and it is not said for whom the full snapshot is to be that ends a recovery: give recipients or recipients-files in the cluster file, the same as the agents'", clear)
	}
	if p.Findings != nil && d.asked().Source == "" {
		if text := p.Findings.Mixed(); text != "" {
			add("%s", text)
		}
	}
	answers := slices.ContainsFunc(d.hosts, func(h *participant) bool { return h.state.Answers && !h.state.Dead })
	if why := d.unfenceable(p); why != "" && !answers {
		name("%s", why)
	}
	if p.Plan == nil || p.Plan.Chosen == "" {
		return all, false
	}
	// What those hold that still run may lead to another plan.
	if p.unreadable != "" && (len(p.Unsurveyed) == 0 || p.Plan.Named) {
		add("%s", p.unreadable)
	}
	haveURLs, reachable := false, 0
	for _, m := range p.Members {
		if h := d.host(m.Name); h != nil && h.state.Unreachable == "" {
			reachable++
		}
	}
	for _, m := range p.Members {
		haveURLs = haveURLs || len(m.ClientURLs) > 0
		switch h := d.host(m.Name); {
		case h == nil:
			name("%s is to get a member, and the cluster file has no host for it: add one, or say who the new members are with --members or --replace", m.Name)
		case h.state.Unreachable != "":
			name("%s is to get a member, and cannot be reached: put another host in its place (--replace %s=https://NEW-HOST:2380), or recover fewer members (--members %d)", m.Name, m.Name, max(1, reachable))
		}
	}
	if !haveURLs && len(p.Members) > 0 {
		add("no client URL of a new member is known, so that it could not be proved that it serves: give client-urls in the cluster file")
	}
	a := d.asked()
	if p.Plan.Bump.Raise && a.Bump.Mode == restore.BumpOff && p.Plan.Bump.HighestKnown > lowest(p.Plan, a) ||
		p.Plan.Bump.Raise && a.Bump.Mode == restore.BumpBy && lowest(p.Plan, a)+a.Bump.Amount <= p.Plan.Bump.HighestKnown {
		add("--bump-revision would leave the new cluster at revisions that clients may have seen with another content (up to %d): leave it out, or give more", p.Plan.Bump.HighestKnown)
	}
	return all, false
}

// unfenceable says why not even stopping all that can be reached would do; empty
// where it would, or where it is not known who the voters were.
func (d *coordinator) unfenceable(p *Preview) string {
	if p.Plan != nil && p.Plan.Fence.Enough {
		return ""
	}
	var voters []snapshot.Member
	if p.Plan != nil {
		for _, m := range p.Plan.Members {
			if !m.IsLearner {
				voters = append(voters, m)
			}
		}
	}
	if len(voters) == 0 {
		for _, h := range d.cfg.Hosts {
			voters = append(voters, snapshot.Member{Name: h.Member})
		}
	}
	gone, dead := 0, d.asked().DeclareDead
	var open, empty []string
	for _, m := range voters {
		h := d.host(m.Name)
		switch {
		case slices.Contains(dead, m.Name), m.ID != 0 && slices.Contains(dead, m.ID.String()):
			gone++
		case h != nil && h.state.Unreachable == "" && !h.empty && h.failed == nil:
			gone++
		default:
			open = append(open, sources.MemberName(m))
			if h != nil && h.empty && h.state.Stopped {
				empty = append(empty, m.Name)
			}
		}
	}
	need := sources.Majority(len(voters))
	if gone >= need {
		return ""
	}
	next := "Make their hosts reachable, or, if they are gone for good"
	if len(empty) > 0 {
		next = fmt.Sprintf("On the hosts of %s etcd does not run, and nothing of a member is in data-dir: correct that in %s, or, if the data is gone for good", strings.Join(empty, ", "), d.cfg.File())
		if len(empty) < len(open) {
			next = "Make the other hosts reachable. " + next
		}
	}
	return fmt.Sprintf("of %d old voters only %d are known to be stopped with their data, or are declared dead, and %d are needed: %s could come back on the old addresses and serve beside the new cluster. %s: --declare-dead %s",
		len(voters), gone, need, strings.Join(open, ", "), next, shell.Quote(strings.Join(open, ",")))
}

// quorumStops reports whether the answer to "does it serve?" forbids a recovery.
func (d *coordinator) quorumStops(q Quorum) *QuorumError {
	if q.Serves {
		return &QuorumError{Quorum: q, Next: d.replaceOne(q)}
	}
	may := 0
	for _, h := range d.hosts {
		if !h.state.Stopped && !h.passedBy() {
			may++
		}
	}
	switch {
	case len(q.Asked) == 0 && may == 0: // nobody needs to be asked
		return nil
	case d.silent(q):
		q.Unknown = fmt.Sprintf("most members run, and none answers at %s: look at the client URLs in the cluster file", strings.Join(q.Asked, ", "))
	case q.Unknown == "":
		return nil
	}
	return &QuorumError{Quorum: q}
}
