package rescue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/restore/recovery/rebuild"
	"github.com/requorum/requorum/schedule/control/protocol"
)

// ways are those to the chosen state, each without others: a host may go any of them.
func (p *Prospect) ways() (all []recovery.Source) {
	if p.Plan == nil || p.Plan.Candidate(p.Plan.Chosen) == nil {
		return nil
	}
	source := p.Plan.Candidate(p.Plan.Chosen).Source
	if source == nil {
		return nil
	}
	all = []recovery.Source{*source}
	if !p.Plan.Named {
		all = append(all, source.Others...)
	}
	return all
}

// storedOf is what a way reads of repositories.
func storedOf(way recovery.Source) (all []protocol.Stored) {
	if way.Base.Backup != "" {
		all = append(all, protocol.Stored{Timeline: way.Base.Timeline, Backup: way.Base.Backup})
	}
	for _, piece := range way.Log {
		if t, is := rebuild.TimelineOf(piece.Owner); is && !slices.Contains(all, protocol.Stored{Timeline: t}) {
			all = append(all, protocol.Stored{Timeline: t})
		}
	}
	return all
}

// membersOf are those whose data a way reads.
func membersOf(way recovery.Source) (all []string) {
	return slices.DeleteFunc(owners(&way), func(name string) bool {
		_, is := rebuild.TimelineOf(name)
		return is
	})
}

// askRepositories has the hosts that may build from a repository say what they can read
// there, with their own credentials and keys, while nothing is stopped yet.
func (d *driver) askRepositories(ctx context.Context, p *Prospect) error {
	var pieces []protocol.Stored
	for _, way := range p.ways() {
		for _, s := range storedOf(way) {
			if !slices.Contains(pieces, s) {
				pieces = append(pieces, s)
			}
		}
	}
	var all sync.WaitGroup
	for _, h := range d.present() {
		h.state.Repositories, h.state.Unasked = nil, ""
		gets := len(p.Members) == 0 || slices.ContainsFunc(p.Members, func(m recovery.NewMember) bool { return m.Name == h.Member })
		// What those hold that still run may lead to another plan, which may need them.
		if gets && (len(pieces) > 0 || len(p.Unsurveyed) > 0) {
			all.Go(func() { d.askRepositoriesOf(ctx, h, pieces) })
		}
	}
	all.Wait()
	return ctx.Err()
}

func (d *driver) askRepositoriesOf(ctx context.Context, h *host, pieces []protocol.Stored) {
	ctx, cancel := context.WithTimeoutCause(ctx, askTimeout, errors.New("no answer within "+askTimeout.String()))
	defer cancel()
	found, err := h.client.Repositories(ctx, pieces)
	switch {
	case isRefusal(err, protocol.NotFound):
		h.state.Unasked = "its requorum is older than this one"
		return
	case err != nil:
		h.state.Unasked = err.Error()
		return
	}
	h.state.Repositories = append([]protocol.Repository{}, found...)
}

// withheld is a host that cannot go all ways of a plan, for what it cannot read of
// repositories.
type withheld struct {
	host *host
	what []protocol.Stored // of the first of these ways
	why  string
	// instead are the members whose data the first way is made of that is left.
	instead []string
	none    bool // no way is left
}

// withheldFrom are these hosts. One that did not say is none of them, nor one that has
// built its member already.
func (d *driver) withheldFrom(p *Prospect) (all []withheld) {
	for _, h := range d.present() {
		if h.state.Repositories == nil || d.known.done(PhaseRebuild, h.Member) {
			continue
		}
		w := withheld{host: h, none: true}
		for _, way := range p.ways() {
			pieces := storedOf(way)
			if h.state.reads(pieces) {
				if members := membersOf(way); w.none || slices.Equal(members, []string{h.Member}) {
					w.instead, w.none = members, false
				}
			} else if w.what == nil {
				w.what, w.why = pieces, h.state.unreadable(pieces)
			}
		}
		if w.what != nil {
			all = append(all, w)
		}
	}
	return all
}

// reads tells whether one of the host's repositories has all of these.
func (h *HostState) reads(pieces []protocol.Stored) bool {
	return len(pieces) == 0 || slices.ContainsFunc(h.Repositories, func(r protocol.Repository) bool { return r.Unread(pieces) == "" })
}

// unreadable says why none of them has.
func (h *HostState) unreadable(pieces []protocol.Stored) string {
	if len(h.Repositories) == 0 {
		return "its configuration names no repository"
	}
	var all []string
	for _, r := range h.Repositories {
		all = append(all, r.URL+": "+r.Unread(pieces))
	}
	return strings.Join(all, "; ")
}

func (w *withheld) words() string {
	var all []string
	for _, s := range w.what {
		all = append(all, s.What())
	}
	return fmt.Sprintf("the control process of %s cannot read %s (%s)", w.host.Member, strings.Join(all, " and "), w.why)
}

// mend is the next step.
func (w *withheld) mend() string {
	return "mend repositories, identity-files or the credentials of that process (docs/agent-control.md, Repositories)"
}

// obstacle says why a recovery would end half-way at this host; empty where it would
// not, as far as is known.
func (w *withheld) obstacle(p *Prospect) string {
	if !w.none || len(p.Unsurveyed) > 0 && !p.Plan.Named {
		return ""
	}
	return fmt.Sprintf("%s, and there is no other way by which it could build its member: %s, and run it again", w.words(), w.mend())
}

// warning says what that changes; empty where it is nothing, or an obstacle.
func (w *withheld) warning(p *Prospect) string {
	switch {
	case w.obstacle(p) != "", slices.Equal(w.instead, []string{w.host.Member}):
		return ""
	case w.none:
		return fmt.Sprintf("%s: unless what %s holds is another way, the run ends once that is stopped and read, with nothing set aside: %s first", w.words(), strings.Join(p.Unsurveyed, ", "), w.mend())
	case len(w.instead) == 0:
		return ""
	}
	return fmt.Sprintf("%s: it builds its member from the data of %s", w.words(), strings.Join(w.instead, ", "))
}
