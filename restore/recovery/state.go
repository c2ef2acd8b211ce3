package recovery

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/requorum/requorum/restore/recovery/host"
)

// runState is what a journal says.
type runState struct {
	decision *decision
	surveyed map[string]surveyed
	steps    map[Phase]*step
	order    []Phase // as they were begun
	first    time.Time

	finished *Report
	undoing  bool
	closed   bool // undone, or declined
}

// step is how far a phase got.
type step struct {
	hosts map[string]*hostStep // by member; "" is the phase as a whole
	begun time.Time
}

type hostStep struct {
	ended  time.Time
	done   bool
	result json.RawMessage
	// at is when the attempt under way was begun; took is the time of those that came
	// to an end.
	at   time.Time
	took time.Duration
}

// surveyed is what a summary was made of.
type surveyed struct {
	Host string `json:"host"`
	// Of is whose set-aside was read: empty where it was the member's directories.
	Of string `json:"of,omitempty"`
	// Files are their names, sizes and times, in one sum.
	Files string `json:"files,omitempty"`
}

func newRunState() *runState {
	return &runState{surveyed: map[string]surveyed{}, steps: map[Phase]*step{}}
}

func read(r *host.Run) (*runState, error) {
	k := newRunState()
	for _, e := range r.Entries() {
		if err := k.take(e); err != nil {
			return nil, fmt.Errorf("its entry of %s: %w", e.Time.Format(time.RFC3339), err)
		}
	}
	return k, nil
}

// take takes up an entry.
func (k *runState) take(e host.Entry) error {
	switch e.Event {
	case host.EventDecided:
		k.decision = &decision{}
		return json.Unmarshal(e.Data, k.decision)
	case host.EventSurveyed:
		var s surveyed
		if err := json.Unmarshal(e.Data, &s); err != nil {
			return err
		}
		k.surveyed[s.Host] = s
	case host.EventBegun, host.EventDone, host.EventFailed:
		k.step(e)
	case host.EventFinished:
		k.finished = &Report{}
		return json.Unmarshal(e.Data, k.finished)
	case host.EventUndoing:
		k.undoing = true
	case host.EventUndone, host.EventDeclined:
		k.closed = true
	default:
		return fmt.Errorf("unknown event %q: the run was begun by a newer version", e.Event)
	}
	return nil
}

func (k *runState) step(e host.Entry) {
	p := Phase(e.Phase)
	s := k.steps[p]
	if s == nil {
		s = &step{hosts: map[string]*hostStep{}, begun: e.Time}
		k.steps[p] = s
		k.order = append(k.order, p)
	}
	h := s.hosts[e.Host]
	if h == nil {
		h = &hostStep{}
		s.hosts[e.Host] = h
	}
	if e.Event == host.EventBegun {
		h.done, h.at = false, e.Time
		if k.first.IsZero() {
			k.first = e.Time
		}
		return
	}
	if !h.at.IsZero() {
		h.took += max(0, e.Time.Sub(h.at))
	}
	h.ended, h.at = e.Time, time.Time{}
	if e.Event == host.EventDone {
		h.done, h.result = true, e.Data
	}
}

// begun reports whether a phase was begun on a host, or anywhere where host is "*".
func (k *runState) begun(p Phase, host string) bool {
	s := k.steps[p]
	return s != nil && (host == "*" || s.hosts[host] != nil)
}

func (k *runState) done(p Phase, host string) bool {
	s := k.steps[p]
	return s != nil && s.hosts[host] != nil && s.hosts[host].done
}

// result reads what a phase came to on a host into v, and reports whether it is done.
func (k *runState) result(p Phase, host string, v any) (bool, error) {
	if !k.done(p, host) {
		return false, nil
	}
	raw := k.steps[p].hosts[host].result
	if len(raw) == 0 {
		return true, nil
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return false, fmt.Errorf("the journal's result of %s on %s: %w", p, host, err)
	}
	return true, nil
}

// startFailed stands in the journal in place of a member's name: an undo put the data
// back, and members did not start. No member is called so.
const startFailed = "(failed)"

// putBack tells of an undo that has put back all data, and told the repositories, and
// where members did not start again: that is all that is left of it.
func (k *runState) putBack() bool {
	reinstated := !k.begun(PhaseLineage, "*") && !k.begun(PhaseSupersede, "*") || k.done(PhaseReinstate, "")
	return k.undoing && !k.closed && k.done(PhaseUndoStart, startFailed) && reinstated
}

// inheriting tells of a run that was killed while it wrote down what it inherits: it has
// changed nothing, and the run that it took over goes on where that was begun.
func (k *runState) inheriting() bool {
	return k.decision != nil && k.decision.Inherited != "" && !k.begun(PhaseStart, "*")
}

// over reports whether nothing is under way any more.
func (k *runState) over() bool {
	return k.closed || k.inheriting() || k.finished != nil && !k.undoing
}
