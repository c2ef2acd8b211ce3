package rescue

import (
	"errors"
	"fmt"

	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/schedule/control/protocol"
	"github.com/requorum/requorum/schedule/rescue/journal"
)

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
	if err := d.inheritAsides(a.run); err != nil {
		return err
	}
	if a.proved {
		if err := d.alreadyProved(a.run); err != nil {
			return err
		}
	}
	// The last one: without it what is inherited is not known whole.
	return d.write(journal.Entry{Event: journal.Begun, Phase: string(PhaseStart)}, nil)
}

// alreadyProved writes down that a run had proved the cluster.
func (d *driver) alreadyProved(run string) error {
	d.told.note(fmt.Sprintf("Clients were let on the cluster that run %s built, so that it had been proved: it is not proved again", run))
	return d.write(journal.Entry{Event: journal.Done, Phase: string(PhaseProve)}, nil)
}

// inherited is the decision, as far as it can be told from what was built.
func (d *driver) inherited(a *adopted, first *protocol.Rebuilt) (*decision, error) {
	why := "run " + a.run + " decided it, and its journal is where it was begun"
	dec := &decision{
		Run: d.run, Cluster: d.cfg.Cluster, Asked: d.req.asked(), TakesOver: []string{a.run}, Inherited: a.run, Built: d.now().Add(-a.ago), Final: true,
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
	dec.Left = d.leftBy(a.run, dec.names())
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
