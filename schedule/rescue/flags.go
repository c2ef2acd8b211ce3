package rescue

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/schedule/control/flagfile"
	"github.com/requorum/requorum/schedule/control/protocol"
	"github.com/requorum/requorum/snapshot"
)

// HostFlags are those of etcd's flags on a host that are stale: the member starts
// from its data whatever they say, but they count once that is lost.
type HostFlags struct {
	Member  string            `json:"member"`
	In      string            `json:"in"` // where they stand
	Changes []flagfile.Change `json:"changes"`
	// Known says that what etcd is started with could be read: otherwise Changes are
	// the flags that it should have.
	Known bool `json:"known"`
	// Updated says that they were brought in line; Kept is the old text then.
	Updated bool   `json:"updated,omitempty"`
	Kept    string `json:"kept,omitempty"`
	// ByHand says why only a person can; empty where --update-flags does it.
	ByHand string `json:"by_hand,omitempty"`
}

// Words are what is stale, such as: --name a → b, …
func (f HostFlags) Words() string {
	var all []string
	for _, c := range f.Changes {
		if !f.Known {
			c.Old = c.New
		}
		all = append(all, c.String())
	}
	return strings.Join(all, ", ")
}

// next is the operator's next step.
func (f HostFlags) next() []string {
	switch {
	case f.Updated:
		return []string{fmt.Sprintf("%s: etcd's flags in %s were brought in line; the old text is in %s", f.Member, f.In, f.Kept)}
	case f.ByHand != "":
		return []string{fmt.Sprintf("%s: etcd's flags are stale: change them by hand, before the data of %s is ever lost: %s (in %s: %s)", f.Member, f.Member, f.Words(), f.In, f.ByHand)}
	}
	return []string{fmt.Sprintf("%s: etcd's flags in %s are stale: %s. Change them before the data of %s is ever lost; that restarts the member, which --update-flags would have spared", f.Member, f.In, f.Words(), f.Member)}
}

// wantedFlags are those of a new member. The token is known once it is decided.
func (d *driver) wantedFlags(m recovery.NewMember, all []recovery.NewMember) flagfile.Flags {
	f := flagfile.Flags{
		Name: m.Name, InitialAdvertisePeerURLs: strings.Join(m.PeerURLs, ","),
		InitialCluster: initialCluster(all), InitialClusterState: "existing",
	}
	if d.known.decision != nil {
		f.InitialClusterToken = d.known.decision.ClusterToken
	}
	return f
}

// staleFlags holds what hosts have against the new members.
func (d *driver) staleFlags(old []snapshot.Member, members []recovery.NewMember) (all []HostFlags) {
	for _, m := range members {
		h := d.host(m.Name)
		if h == nil || h.state.Unreachable != "" {
			continue
		}
		wanted := d.wantedFlags(m, members)
		found := h.state.Flags
		if found == nil {
			found = &flagfile.Found{In: "its configuration", ByHand: "its control process does not tell them"}
		}
		if !found.Known && !changed(old, members) {
			continue // whatever they are, they are as good as before
		}
		if changes := found.Flags.Changes(wanted); len(changes) > 0 {
			all = append(all, HostFlags{Member: m.Name, In: found.In, Changes: changes, Known: found.Known, ByHand: found.ByHand})
		}
	}
	return all
}

// updateFlags brings flags in line where that was asked for, while all members are
// stopped: later it would restart them. No cluster stays down for its flags.
func (d *driver) updateFlags(ctx context.Context) error {
	dec := d.known.decision
	if !dec.Asked.UpdateFlags {
		return nil
	}
	return d.each(ctx, PhaseFlags, d.getting(), true, func(ctx context.Context, h *host) (outcome, error) {
		i := slices.IndexFunc(dec.Members, func(m recovery.NewMember) bool { return m.Name == h.Member })
		wanted := d.wantedFlags(dec.Members[i], dec.Members)
		done, err := act(ctx, d, PhaseFlags, h, func(ctx context.Context) (*protocol.Done, error) { return h.client.Flags(ctx, wanted) })
		if ctx.Err() != nil {
			return outcome{}, err
		}
		if err != nil {
			d.told.warn(fmt.Sprintf("%s: etcd's flags are not brought in line, and the recovery goes on: %v", h.Member, err))
			f := protocol.FlagsDone{In: "its configuration", ByHand: err.Error()}
			if s := h.state.Flags; s != nil {
				f.In, f.Changes = s.In, s.Flags.Changes(wanted)
			}
			return outcome{result: f, detail: "not brought in line"}, nil
		}
		return outcome{result: done.Flags, detail: flagWords(done.Flags)}, nil
	})
}

func flagWords(f *protocol.FlagsDone) string {
	switch {
	case f == nil || len(f.Changes) == 0 && f.ByHand == "":
		return "nothing is stale"
	case f.ByHand != "":
		return "to be changed by hand: " + f.ByHand
	}
	return fmt.Sprintf("%d brought in line in %s", len(f.Changes), f.In)
}

// reportFlags are those of the hosts that got a member, after all is done.
func (d *driver) reportFlags() (all []HostFlags, err error) {
	dec := d.known.decision
	for _, f := range d.staleFlags(dec.Plan.Members, dec.Members) {
		var done protocol.FlagsDone
		if was, err := d.known.result(PhaseFlags, f.Member, &done); err != nil {
			return nil, err
		} else if !was {
			all = append(all, f)
		}
	}
	for _, h := range d.getting() {
		var done protocol.FlagsDone
		was, err := d.known.result(PhaseFlags, h.Member, &done)
		if err != nil {
			return nil, err
		}
		if was && len(done.Changes) > 0 {
			all = append(all, HostFlags{Member: h.Member, In: done.In, Changes: done.Changes, Known: h.state.Flags != nil && h.state.Flags.Known, Updated: done.ByHand == "", Kept: done.Kept, ByHand: done.ByHand})
		}
	}
	return all, nil
}
