package rescue

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/schedule/rescue/proof"
	"github.com/requorum/requorum/snapshot"
)

// report sums up what the journal says was done.
func (d *driver) report(incomplete []string) (*Report, error) {
	dec, k := d.known.decision, d.known
	all, err := d.rebuilt()
	if err != nil {
		return nil, err
	}
	first := all[sortedKeys(all)[0]]
	r := &Report{
		Cluster: d.cfg.Cluster, Run: d.run, WentOn: d.wentOn, Inherited: dec.Inherited, Plan: dec.Plan, Proven: dec.Plan.Proven, Lost: dec.Plan.Loss,
		OldClusterID: dec.Plan.ClusterID, NewClusterID: dec.NewClusterID, InitialCluster: dec.InitialCluster, Members: dec.Members,
		RevisionBefore: first.Revision, RevisionAfter: first.Restore.RevisionAfter,
		Phases: k.times(), Began: k.first, Incomplete: incomplete,
	}
	for _, h := range d.hosts {
		one := HostReport{Member: h.Member, Address: h.Control, Left: slices.Contains(dec.Left, h.Member), Dead: h.passedBy()}
		var aside restore.Aside
		if done, err := k.result(PhaseSetAside, h.Member, &aside); err != nil {
			return nil, err
		} else if done {
			one.Aside = &aside
		}
		if b := all[h.Member]; b != nil {
			one.Brought, one.Phases = b.Brought, b.Phases
			for _, m := range b.Restore.Members {
				one.Flags = append(one.Flags, m.Flags...)
			}
		}
		r.Hosts = append(r.Hosts, one)
	}
	was := proved{Report: &proof.Report{}}
	if _, err := k.result(PhaseProve, "", &was); err != nil {
		return nil, err
	}
	r.Proof = was.Report
	if _, err := k.result(PhaseLineage, "", &r.Lineage); err != nil {
		return nil, err
	}
	if _, err := k.result(PhaseSupersede, "", &r.Lineage); err != nil {
		return nil, err
	}
	for _, host := range []string{snapshotsKept, ""} {
		if _, err := k.result(PhaseSnapshot, host, &r.Snapshots); err != nil {
			return nil, err
		}
	}
	r.RTO, r.ClientsBack = k.since(PhaseProve), k.since(PhaseResume)
	if r.Flags, err = d.reportFlags(); err != nil {
		return nil, err
	}
	r.Warnings, r.Next = d.after(r), d.next(r.Flags)
	return r, nil
}

// times are how long the phases took.
func (k *known) times() (all []PhaseTime) {
	for _, p := range k.order {
		s := k.steps[p]
		t := PhaseTime{Phase: p}
		if h := s.hosts[""]; h != nil {
			t.Took = h.took
		}
		for _, name := range sortedKeys(s.hosts) {
			if h := s.hosts[name]; name != "" && name != snapshotsKept && name != startFailed && h.done {
				t.Hosts = append(t.Hosts, HostTime{Member: name, Took: h.took})
			}
		}
		all = append(all, t)
	}
	return all
}

// since is the time from the first change to the end of a phase; 0 where it is not
// done.
func (k *known) since(p Phase) time.Duration {
	s := k.steps[p]
	if s == nil || !k.done(p, "") {
		return 0
	}
	return max(0, s.hosts[""].ended.Sub(k.first))
}

// after are the warnings that still count when all is done.
func (d *driver) after(r *Report) []string {
	dec := d.known.decision
	all := slices.Clone(dec.Plan.Warnings)
	if text := d.alone(); text != "" {
		all = append(all, text)
	}
	for _, m := range r.Proof.Missing {
		all = append(all, fmt.Sprintf("member %s of the new cluster is not up: %s", m.Name, m.Why))
	}
	for _, u := range r.Proof.Unproved {
		all = append(all, "not proved: "+u)
	}
	for _, l := range r.Lineage {
		for _, w := range l.Warnings {
			all = append(all, l.Repository+": "+w)
		}
	}
	if len(dec.Left) > 0 {
		all = append(all, fmt.Sprintf("no new member for %s: what was there is set aside, and a placeholder that no etcd starts from is in its place", strings.Join(dec.Left, ", ")))
	}
	for _, dead := range dec.Plan.Fence.DeclaredDead {
		all = append(all, fmt.Sprintf("%s was declared dead: should its host come back, stop its member before it reaches clients", dead))
	}
	return all
}

// next are the operator's next steps.
func (d *driver) next(flags []HostFlags) (all []string) {
	dec := d.known.decision
	for _, f := range flags {
		all = append(all, f.next()...)
	}
	endpoint := "URL"
	for _, m := range dec.Members {
		if len(m.ClientURLs) > 0 {
			endpoint = strings.Join(m.ClientURLs, ",")
			break
		}
	}
	for _, m := range dec.Plan.Members {
		if slices.ContainsFunc(dec.Members, func(n recovery.NewMember) bool { return n.Old == m.Name || n.Old == m.ID.String() || n.Name == m.Name }) {
			continue
		}
		name, url := m.Name, "https://HOST:2380"
		if name == "" {
			name = "NAME"
		}
		if len(m.PeerURLs) > 0 {
			url = strings.Join(m.PeerURLs, ",")
		}
		promote := ", start it there with an empty data directory" + d.placeholder(m.Name) + ", then: etcdctl --endpoints=" + endpoint + " member promote ID"
		if m.IsLearner {
			promote = ", and start it there with an empty data directory" + d.placeholder(m.Name)
		}
		all = append(all, "to have "+name+" back: etcdctl --endpoints="+endpoint+" member add "+name+" --learner --peer-urls="+url+promote)
	}
	for _, h := range d.hosts {
		if text := d.oldData(h); text != "" {
			all = append(all, text)
		}
	}
	return all
}

// placeholder says what has to be removed first on a host whose data was set aside
// without a new member in its place.
func (d *driver) placeholder(name string) string {
	var aside restore.Aside
	done, err := d.known.result(PhaseSetAside, name, &aside)
	if err != nil || !done || aside.DataDir == "" || aside.Empty {
		return ""
	}
	what := filepath.Join(aside.DataDir, "member")
	if aside.WALDir != "" {
		what += " and the *.wal in " + aside.WALDir
	}
	return " (remove " + what + " there first, which is a placeholder)"
}

// changed tells whether an old --initial-cluster is another one than the new.
func changed(old []snapshot.Member, now []recovery.NewMember) bool {
	return len(old) != len(now) || slices.ContainsFunc(now, func(n recovery.NewMember) bool {
		return !slices.ContainsFunc(old, func(o snapshot.Member) bool {
			return o.Name == n.Name && slices.Equal(slices.Sorted(slices.Values(o.PeerURLs)), slices.Sorted(slices.Values(n.PeerURLs)))
		})
	})
}
