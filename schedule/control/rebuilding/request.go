package rebuilding

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/schedule/control"
	"github.com/requorum/requorum/schedule/control/protocol"
)

// request is one that was read and found to make sense.
type request struct {
	control.Rebuild
	plan   protocol.RebuildPlan
	source protocol.RebuildSource
}

// parse reads a plan strictly: half of one would be another cluster.
func parse(r control.Rebuild) (*request, error) {
	q := &request{Rebuild: r}
	if err := strict(r.Plan, &q.plan); err != nil {
		return nil, fmt.Errorf("the plan: %w", err)
	}
	if r.Source != nil {
		if err := strict(r.Source, &q.source); err != nil {
			return nil, fmt.Errorf("where the data lies: %w", err)
		}
	}
	p := q.plan
	switch {
	case p.ID == "":
		return nil, errors.New("the plan has no ID")
	case p.Old == 0 || p.New == 0 || p.Old == p.New:
		return nil, fmt.Errorf("the plan is to put cluster %s in the place of cluster %s: want two that differ", p.New, p.Old)
	case p.ClusterToken == "":
		return nil, errors.New("the plan has no cluster token: each host would draw another one")
	}
	id, err := restore.ClusterID(p.InitialCluster, p.ClusterToken)
	if err != nil {
		return nil, fmt.Errorf("the plan: %w", err)
	}
	if id != p.New {
		return nil, fmt.Errorf("the plan is for cluster %s, and its token and its members give cluster %s: it was altered, or made by another version of requorum", p.New, id)
	}
	if !names(p.InitialCluster, r.Member) {
		return nil, fmt.Errorf("this host's member is none of the plan's members %s", p.InitialCluster)
	}
	for name, l := range q.source.Owners {
		if err := protocol.CheckRun(l.Run); err != nil {
			return nil, fmt.Errorf("where the data of %s lies: %w", name, err)
		}
	}
	return q, nil
}

// names tells whether a member is among those that etcd's flag lists.
func names(initialCluster, member string) bool {
	for part := range strings.SplitSeq(initialCluster, ",") {
		if name, _, _ := strings.Cut(part, "="); strings.TrimSpace(name) == member {
			return true
		}
	}
	return false
}

func strict(raw json.RawMessage, v any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("%w: is this host's requorum of the same version?", err)
	}
	return nil
}

// ways are the source and its others, each without others.
func (q *request) ways() []recovery.Source {
	all := append([]recovery.Source{q.plan.Source}, q.plan.Source.Others...)
	for i := range all {
		all[i].Others = nil
		all[i].Log = slices.Clone(all[i].Log)
	}
	return all
}

// location is where an owner's data lies. This host's own has no address.
func (q *request) location(owner string) (protocol.Location, error) {
	l, given := q.source.Owners[owner]
	switch {
	case !given && owner == q.Member:
		return protocol.Location{Member: q.Member, Run: q.Run}, nil
	case !given:
		return l, fmt.Errorf("the request does not say where the data of %s lies", owner)
	case l.Member == q.Member:
		l.Address = ""
	}
	return l, nil
}
