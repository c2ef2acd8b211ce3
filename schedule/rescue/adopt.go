package rescue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/schedule/control/protocol"
	"github.com/requorum/requorum/schedule/rescue/journal"
)

// adopted is what is known of a run whose driver is lost: of its journal nothing, and
// of what it came to all that the hosts remember.
type adopted struct {
	run   string
	built map[string]*protocol.Rebuilt // by member; none where nothing was built
	was   *protocol.Built
	// proved: clients were let on the new cluster already, which comes after the proof.
	proved bool
}

// adopt looks whether the run that has hosts, and whose driver is lost, only has to be
// completed: the cluster serves that it made, or the one that it had not touched yet.
// It changes nothing.
func (d *driver) adopt(ctx context.Context, q Quorum) (*adopted, error) {
	held := d.holders()
	a := &adopted{run: held.Holder, built: map[string]*protocol.Rebuilt{}}
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
			a.was, a.built[h.Member] = was, built
		}
		a.proved = a.proved || aside && h.resumed()
	}
	asides := slices.ContainsFunc(d.present(), func(h *host) bool { return slices.Contains(h.state.Aside, a.run) })
	switch {
	case len(a.built) == 0 && !asides:
		return a, nil
	case len(a.built) == 0 || a.was.New != q.ClusterID:
		return nil, fmt.Errorf("cluster %s serves, and run %s has set data aside without having built it: stop what serves and take over then, or undo that run where it was begun", q.ClusterID, a.run)
	}
	for name, b := range a.built {
		if b.Restore == nil || b.Restore.Plan == nil || b.Restore.Plan.ClusterID != a.was.New {
			return nil, fmt.Errorf("run %s: what %s remembers of its rebuild is of another cluster than %s: undo that run where it was begun", a.run, name, a.was.New)
		}
	}
	return a, nil
}

// resumed tells of a host whose clients were let on the new cluster, or begun to.
func (h *host) resumed() bool {
	if len(h.state.Clients) > 0 && h.state.Holder == "" {
		return true
	}
	return slices.ContainsFunc(h.state.Clients, func(c protocol.ClientState) bool {
		switch c.Phase {
		case protocol.ClientStarting, protocol.ClientStarted, protocol.ClientRestarting, protocol.ClientRestarted, protocol.ClientLeft:
			return true
		default:
			return false
		}
	})
}

// wouldComplete says what --take-over would do where the cluster serves; empty where it
// would do nothing of the kind, or where why tells that it cannot.
func (d *driver) wouldComplete(ctx context.Context, q Quorum) (does string, why error) {
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

// completeOther completes a run whose driver is lost, in the name of one of this
// folder's own.
func (d *driver) completeOther(ctx context.Context, folder *journal.Folder, q Quorum) (*Report, error) {
	a, err := d.adopt(ctx, q)
	if err != nil {
		return nil, err
	}
	held := strings.Join(d.holders().Hosts, ", ")
	if len(a.built) == 0 {
		if err := d.ask(ctx, Question{Kind: AskBegin, Text: fmt.Sprintf("Cluster %s serves, and run %s has set nothing aside. Give it up, and start the clients on %s that it stopped?", d.cfg.Cluster, a.run, held)}); err != nil {
			return nil, err
		}
		return d.letGo(ctx, a)
	}
	if err := d.ask(ctx, Question{Kind: AskBegin, Text: fmt.Sprintf("Run %s has built cluster %s, which serves. Complete it from here: prove the cluster, start the clients on %s, and end the old timeline?", a.run, a.was.New, held)}); err != nil {
		return nil, err
	}
	if d.book, err = folder.Begin(d.run); err != nil {
		return nil, err
	}
	if err := d.inherit(a); err != nil {
		return nil, err
	}
	return d.carryOut(ctx, nil)
}

// letGo starts the clients that a run stopped which got no further. It may be repeated,
// and stands in no journal.
func (d *driver) letGo(ctx context.Context, a *adopted) (*Report, error) {
	r := &Report{Cluster: d.cfg.Cluster, Run: d.run, GivenUp: a.run}
	errs := map[string]error{}
	for _, h := range d.present() {
		if h.state.Holder != a.run {
			continue
		}
		d.told.begin(PhaseResume, h.Member)
		began := time.Now()
		out, err := d.resumeHost(ctx, h)
		d.told.end(PhaseResume, h.Member, out.detail, time.Since(began), err)
		if err != nil {
			errs[h.Member] = err
			continue
		}
		r.Hosts = append(r.Hosts, HostReport{Member: h.Member, Address: h.Control})
	}
	if len(errs) > 0 {
		return nil, d.phaseError(PhaseResume, errs)
	}
	return r, nil
}

// inherit writes down what the other driver's journal must say, so that this one goes
// on behind the start of the new members.
func (d *driver) inherit(a *adopted) error {
	first := a.built[sortedKeys(a.built)[0]]
	dec, err := d.inherited(a, first)
	if err != nil {
		return err
	}
	if err := d.write(journal.Entry{Event: journal.Decided}, dec); err != nil {
		return err
	}
	for _, h := range d.getting() {
		built := a.built[h.Member]
		if built == nil { // it is away: what was built is the same on all hosts
			other := *first
			other.Brought, other.Phases = nil, nil
			built = &other
		}
		if err := d.write(journal.Entry{Event: journal.Done, Phase: string(PhaseRebuild), Host: h.Member}, built); err != nil {
			return err
		}
	}
	if err := d.write(journal.Entry{Event: journal.Begun, Phase: string(PhaseStart)}, nil); err != nil || !a.proved {
		return err
	}
	d.told.note(fmt.Sprintf("Run %s had proved the cluster, and begun to let clients on it: it is not proved again", a.run))
	return d.write(journal.Entry{Event: journal.Done, Phase: string(PhaseProve)}, nil)
}

// inherited is the decision, as far as it can be told from what was built.
func (d *driver) inherited(a *adopted, first *protocol.Rebuilt) (*decision, error) {
	why := "run " + a.run + " decided it, and its journal is where it was begun"
	dec := &decision{
		Run: d.run, Cluster: d.cfg.Cluster, Asked: d.req.asked(), TakesOver: []string{a.run}, Inherited: a.run, Final: true,
		Plan: &recovery.Plan{ClusterID: a.was.Old, Why: why, Loss: recovery.Loss{Text: "what was said when run " + a.run + " was begun: " + raisedWords(first)}},
	}
	for _, h := range d.hosts {
		dec.Hosts = append(dec.Hosts, decidedHost{h.Member, h.Control})
	}
	for _, m := range first.Restore.Plan.Members {
		n := recovery.NewMember{Name: m.Name, PeerURLs: m.PeerURLs, Learner: m.Learner, Old: m.Name}
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
	if w := first.Way; w != nil && w.Base.Backup != "" {
		dec.Branch = &branch{Timeline: w.Base.Timeline, Backup: w.Base.Backup}
	}
	return dec, nil
}

// raisedWords tells what the revision lets one conclude.
func raisedWords(b *protocol.Rebuilt) string {
	if b.Restore.RevisionAfter == b.Revision {
		return "its revision was left as it was"
	}
	return "its revision was raised, as where acknowledged writes may be missing"
}
