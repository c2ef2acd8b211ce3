package recovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/requorum/requorum/restore/recovery/host"
	"github.com/requorum/requorum/restore/recovery/sources"
)

// adopted is a run without its coordinator's journal, as its hosts remember it.
type adopted struct {
	run   string
	built map[string]*host.Rebuilt // by member; none where nothing was built
	was   *host.Built
	ago   time.Duration // since the first host had built its member
	// proved: clients were let on the new cluster already, which comes after the proof.
	proved bool
}

// adopt looks whether the run that has hosts, and whose coordinator is lost, only has to be
// completed: the cluster serves that it made, or the one that it had not touched yet.
// It changes nothing.
func (d *coordinator) adopt(ctx context.Context, q Quorum) (*adopted, error) {
	held := d.holders()
	a := &adopted{run: held.Holder, built: map[string]*host.Rebuilt{}}
	for _, h := range d.present() {
		if r := h.state.Holder; r != "" && r != a.run && slices.Contains(held.Hosts, h.Member) {
			return nil, fmt.Errorf("the cluster serves, and more than one run has hosts: %s has %s, and %s others: complete them one by one, each with a cluster file of its hosts", r, h.Member, a.run)
		}
		was, built, err := h.client.Built(ctx)
		if err != nil {
			return nil, err
		}
		aside := slices.Contains(h.state.Aside, a.run)
		if was != nil && was.Run == a.run && aside {
			a.was, a.built[h.Member], a.ago = was, built, max(a.ago, was.Ago)
		}
	}
	a.proved = d.letOn(a.run)
	asides := slices.ContainsFunc(d.present(), func(h *participant) bool { return slices.Contains(h.state.Aside, a.run) })
	switch {
	case len(a.built) == 0 && !asides:
		if all := d.away(); len(all) > 0 { // where it may have set aside, and built
			return nil, fmt.Errorf("cluster %s serves, and it cannot be told how far run %s got: %w", q.ClusterID, a.run, &HostsError{Phase: PhasePreflight, Errs: all})
		}
		return a, nil
	case len(a.built) == 0:
		return nil, fmt.Errorf("cluster %s serves, and run %s has set data aside, and built nothing: stop what serves and take over then, or undo that run where it was begun", q.ClusterID, a.run)
	case a.was.New != q.ClusterID:
		return nil, fmt.Errorf("it is cluster %s that serves, and not %s, which run %s has built: stop what serves and take over then, or undo that run where it was begun", q.ClusterID, a.was.New, a.run)
	}
	return a, d.onePiece(a)
}

// onePiece fails where what the hosts remember is not all of one cluster.
func (d *coordinator) onePiece(a *adopted) error {
	for name, b := range a.built {
		if b.Restore == nil || b.Restore.Plan == nil {
			return fmt.Errorf("run %s: %s does not remember what it built: undo that run where it was begun", a.run, name)
		}
	}
	if what := unlike(a.was.New, a.built); len(what) > 0 {
		return fmt.Errorf("run %s: the hosts have not built the same: %s: undo that run where it was begun", a.run, strings.Join(what, "; "))
	}
	for _, m := range members(a.built[sortedKeys(a.built)[0]]) {
		if h := d.host(m.Name); h != nil && h.state.Unreachable == "" && !h.state.Dead && a.built[m.Name] == nil {
			return fmt.Errorf("run %s: cluster %s serves, and %s was to have a member of it, and has built none: go on with that run where it was begun, or, to do without that member until it is replaced: --declare-dead %s", a.run, a.was.New, m.Name, m.Name)
		}
	}
	return nil
}

// letOn reports whether a run's clients were let on the cluster that it built, on any
// host, or begun to: that comes after the proof.
func (d *coordinator) letOn(run string) bool {
	return slices.ContainsFunc(d.present(), func(h *participant) bool { return slices.Contains(h.state.Aside, run) && h.resumed() })
}

// resumed tells of a host whose clients were let on the new cluster, or begun to.
func (h *participant) resumed() bool {
	if len(h.state.Clients) > 0 && h.state.Holder == "" {
		return true
	}
	return slices.ContainsFunc(h.state.Clients, func(c host.ClientState) bool {
		switch c.Phase {
		case host.ClientStarting, host.ClientStarted, host.ClientRestarting, host.ClientRestarted, host.ClientLeft:
			return true
		default:
			return false
		}
	})
}

// wouldComplete says what --take-over would do where the cluster serves; empty where it
// would do nothing of the kind, or where why says that it cannot.
func (d *coordinator) wouldComplete(ctx context.Context, q Quorum) (does string, why error) {
	if !q.Serves || !d.req.TakeOver || d.req.Force || d.holders() == nil {
		return "", nil
	}
	a, err := d.adopt(ctx, q)
	switch {
	case err != nil:
		return "", err
	case len(a.built) == 0:
		return fmt.Sprintf("run %s is given up: the cluster serves, and it has set nothing aside. Clients that it stopped are started again", a.run), nil
	}
	return fmt.Sprintf("run %s is completed, and nothing is rebuilt: the cluster serves that it has built", a.run), nil
}

// completeOther completes a run whose coordinator is lost, in the name of one of this
// folder's own.
func (d *coordinator) completeOther(ctx context.Context, folder *host.Folder, q Quorum) (*Report, error) {
	a, err := d.adopt(ctx, q)
	if err != nil {
		return nil, err
	}
	held := strings.Join(d.holders().Hosts, ", ")
	if len(a.built) == 0 {
		if err := d.askOf(ctx, a, q, Question{Kind: AskBegin, Text: fmt.Sprintf("Cluster %s serves, and run %s has set nothing aside. Give it up, and start the clients on %s that it stopped?", d.cfg.Cluster, a.run, held)}); err != nil {
			return nil, err
		}
		return d.release(ctx, a)
	}
	if err := d.mayStore(ctx); err != nil {
		return nil, err
	}
	if err := d.askOf(ctx, a, q, Question{Kind: AskBegin, Text: fmt.Sprintf("Run %s has built cluster %s, which serves. Complete it from here: prove the cluster, start the clients on %s, and end the old timeline?", a.run, a.was.New, held), Reasons: d.passedOver(a.run)}); err != nil {
		return nil, err
	}
	if d.journal, err = folder.Begin(d.run); err != nil {
		return nil, err
	}
	if err := d.inherit(a); err != nil {
		return nil, err
	}
	return d.execute(ctx, nil)
}

// askOf asks, and looks once more then: a coordinator that was not lost goes on meanwhile.
func (d *coordinator) askOf(ctx context.Context, a *adopted, serves Quorum, question Question) error {
	if err := d.ask(ctx, question); err != nil {
		return err
	}
	if err := d.states(ctx); err != nil {
		return err
	}
	held := d.holders()
	if held != nil && held.Holder == a.run {
		if now, err := d.adopt(ctx, serves); err != nil || len(now.built) == len(a.built) {
			return err
		}
	}
	return fmt.Errorf("run %s has gone on meanwhile, so that its coordinator is not lost: nothing was changed. Look again with --dry-run", a.run)
}

// mayStore looks, as before a recovery of one's own, whether what it stores in the end
// would be as readable as what is there. Repositories are asked for that alone.
func (d *coordinator) mayStore(ctx context.Context) error {
	repos, err := d.repositories(ctx)
	if err != nil {
		return err
	}
	p := &Preview{}
	p.Findings, err = d.findings(ctx, repos)
	if err := errors.Join(err, repos.close()); err != nil {
		return err
	}
	if all := d.lacks(p); len(all) > 0 {
		return &BlockedError{Blockers: all}
	}
	return nil
}

// passedOver says which options count for nothing, as what they are about is done.
func (d *coordinator) passedOver(run string) (all []string) {
	a := d.req.asked()
	members := len(a.Change.Replace)+len(a.Change.Names)+a.Change.Count > 0
	if members || a.Source != "" || a.Target != (asked{}).Target || a.Bump != (asked{}).Bump {
		all = append(all, fmt.Sprintf("what is recovered, to which point and as which members was decided by run %s: what this command says about that is passed over", run))
	}
	return all
}

// release starts the clients that a run stopped which got no further. It may be repeated,
// and stands in no journal.
func (d *coordinator) release(ctx context.Context, a *adopted) (*Report, error) {
	r := &Report{Cluster: d.cfg.Cluster, Run: d.run, GivenUp: a.run}
	errs := map[string]error{}
	for _, h := range d.present() {
		if h.state.Holder != a.run {
			continue
		}
		d.reporter.begin(PhaseResume, h.Member)
		began := time.Now()
		out, err := d.resumeHost(ctx, h)
		d.reporter.end(PhaseResume, h.Member, out.detail, time.Since(began), err)
		if err != nil {
			errs[h.Member] = err
			continue
		}
		r.Hosts = append(r.Hosts, HostReport{Member: h.Member, Address: h.Address()})
		if h.state.Stopped {
			r.Warnings = append(r.Warnings, fmt.Sprintf("the member of %s is stopped, as that run may have left it: start it", h.Member))
		}
	}
	if len(errs) > 0 {
		return nil, d.phaseError(PhaseResume, errs)
	}
	return r, nil
}

// inherit writes down what the other coordinator's journal must say, so that this one goes
// on behind the start of the new members.
func (d *coordinator) inherit(a *adopted) error {
	first := a.built[sortedKeys(a.built)[0]]
	dec, err := d.inherited(a, first)
	if err != nil {
		return err
	}
	if err := d.write(host.Entry{Event: host.EventDecided}, dec); err != nil {
		return err
	}
	for _, h := range d.getting() {
		built := a.built[h.Member]
		if built == nil { // it is away: what was built is the same on all hosts
			other := *first
			other.Brought, other.Phases = nil, nil
			built = &other
		}
		if err := d.write(host.Entry{Event: host.EventDone, Phase: string(PhaseRebuild), Host: h.Member}, built); err != nil {
			return err
		}
	}
	if err := d.inheritAsides(a.run); err != nil {
		return err
	}
	if a.proved {
		if err := d.alreadyProved(a.run); err != nil {
			return err
		}
	}
	// The last one: without it what is inherited is not known whole.
	return d.write(host.Entry{Event: host.EventBegun, Phase: string(PhaseStart)}, nil)
}

// alreadyProved writes down that a run had proved the cluster.
func (d *coordinator) alreadyProved(run string) error {
	d.reporter.note(fmt.Sprintf("Clients were let on the cluster that run %s built, so that it had been proved: it is not proved again", run))
	return d.write(host.Entry{Event: host.EventDone, Phase: string(PhaseProve)}, nil)
}

// inherited is the decision, as far as it can be told from what was built.
func (d *coordinator) inherited(a *adopted, first *host.Rebuilt) (*decision, error) {
	why := "run " + a.run + " decided it, and its journal is where it was begun"
	dec := &decision{
		Run: d.run, Cluster: d.cfg.Cluster, Asked: d.req.asked(), TakesOver: []string{a.run}, Inherited: a.run, Built: d.now().Add(-a.ago), Final: true,
		Plan: &sources.Plan{ClusterID: a.was.Old, Why: why, Loss: sources.Loss{Text: "what was said when run " + a.run + " was begun: " + raisedWords(first)}},
	}
	for _, h := range d.hosts {
		dec.Hosts = append(dec.Hosts, decidedHost{h.Member})
	}
	for _, m := range first.Restore.Plan.Members {
		n := sources.NewMember{Name: m.Name, PeerURLs: m.PeerURLs, Learner: m.Learner, Old: m.Name}
		if h := d.cfg.Host(m.Name); h != nil {
			n.ClientURLs = h.ClientURLs
		}
		dec.Members = append(dec.Members, n)
	}
	if len(dec.clientURLs()) == 0 {
		return nil, errors.New("no client URL of a new member is known, so that it cannot be proved that it serves: give client-urls in the cluster file")
	}
	dec.ClusterToken = first.Restore.Plan.ClusterToken
	dec.InitialCluster, dec.NewClusterID = initialCluster(dec.Members), a.was.New
	dec.Left = d.leftBy(a.run, dec.names())
	if w := first.Source; w != nil && w.Base.Backup != "" {
		dec.Branch = &branch{Timeline: w.Base.Timeline, Backup: w.Base.Backup}
	}
	return dec, nil
}

// raisedWords says what the revision lets one conclude.
func raisedWords(b *host.Rebuilt) string {
	if b.Restore.RevisionAfter == b.Revision {
		return "its revision was left as it was"
	}
	return "its revision was raised, as where acknowledged writes may be missing"
}
