package recovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery/host"
	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/restore/recovery/supervisor"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/serve"
)

const (
	// patience is how long a host may be unreachable in the middle of an action: one
	// that is started anew takes longer, and the same command goes on then.
	patience = 30 * time.Second
	// again is how long to wait before an action is repeated.
	again = 250 * time.Millisecond
	// tellEvery is how often it is said what is waited for.
	tellEvery = 5 * time.Second
)

// outcome is what a step came to on a host: for the journal, and in a few words.
type outcome struct {
	result any
	detail string
}

// each carries a phase out on hosts, at the same time. Those where the journal has
// it as done are passed by, unless anew. What fails on one host does not end it on
// the others.
func (d *driver) each(ctx context.Context, p Phase, hosts []*participant, anew bool, do func(context.Context, *participant) (outcome, error)) error {
	var (
		all  sync.WaitGroup
		mu   sync.Mutex
		errs = map[string]error{}
	)
	if err := d.write(host.Entry{Event: host.EventBegun, Phase: string(p)}, nil); err != nil {
		return err
	}
	for _, h := range hosts {
		if !anew && d.isDone(p, h.Member) {
			continue
		}
		all.Go(func() {
			if err := d.one(ctx, p, h, do); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs[h.Member] = err
			}
		})
	}
	all.Wait()
	if len(errs) > 0 {
		return errors.Join(d.phaseError(p, errs), d.write(host.Entry{Event: host.EventFailed, Phase: string(p)}, nil))
	}
	return d.write(host.Entry{Event: host.EventDone, Phase: string(p)}, nil)
}

// one carries a phase out on one host.
func (d *driver) one(ctx context.Context, p Phase, h *participant, do func(context.Context, *participant) (outcome, error)) error {
	e := host.Entry{Phase: string(p), Host: h.Member}
	e.Event = host.EventBegun
	if err := d.write(e, nil); err != nil {
		return err
	}
	d.told.begin(p, h.Member)
	began := time.Now()
	out, err := do(ctx, h)
	d.told.end(p, h.Member, out.detail, time.Since(began), err)
	if err != nil {
		e.Event, e.Error = host.EventFailed, err.Error()
		return errors.Join(err, d.write(e, nil))
	}
	e.Event = host.EventDone
	return d.write(e, out.result)
}

// whole carries out a phase that is no host's.
func (d *driver) whole(ctx context.Context, p Phase, do func(context.Context) (outcome, error)) error {
	e := host.Entry{Event: host.EventBegun, Phase: string(p)}
	if err := d.write(e, nil); err != nil {
		return err
	}
	d.told.begin(p, "")
	began := time.Now()
	out, err := do(ctx)
	d.told.end(p, "", out.detail, time.Since(began), err)
	if err != nil {
		e.Event, e.Error = host.EventFailed, err.Error()
		return errors.Join(err, d.write(e, nil))
	}
	e.Event = host.EventDone
	return d.write(e, out.result)
}

// phaseError sums up what failed. That another run has hosts is a *HeldError.
func (d *driver) phaseError(p Phase, errs map[string]error) error {
	held := &HeldError{}
	for _, name := range sortedKeys(errs) {
		var refused *host.RefusedError
		if errors.As(errs[name], &refused) && refused.Refusal.Code == host.Held {
			held.Holder, held.Hosts = refused.Refusal.Holder, append(held.Hosts, name)
		}
	}
	if len(held.Hosts) > 0 {
		return errors.Join(held, &HostsError{Phase: p, Errs: errs})
	}
	return &HostsError{Phase: p, Errs: errs}
}

func (d *driver) isDone(p Phase, host string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.known.done(p, host)
}

// act has a host do something that may be repeated. An action that is under way
// there is waited for, and a host that cannot be reached for a while is asked again.
func act[T any](ctx context.Context, d *driver, p Phase, h *participant, do func(context.Context) (T, error)) (T, error) {
	var away time.Time // since when it cannot be reached
	var told time.Time
	wait := func(text string) {
		if time.Since(told) > tellEvery {
			told = time.Now()
			d.told.waiting(p, h.Member+": "+text)
		}
	}
	defer d.patiently(ctx, p, h)()
	for {
		v, err := do(ctx)
		if err == nil || ctx.Err() != nil {
			return v, err
		}
		var refused *host.RefusedError
		switch {
		case errors.As(err, &refused) && refused.Refusal.Code == host.Busy:
			away = time.Time{}
			wait("an action that was begun before is still under way")
		case errors.As(err, &refused):
			return v, err
		case away.IsZero():
			away = time.Now()
		case time.Since(away) > d.patience:
			return v, fmt.Errorf("%w (asked for %s)", err, d.patience)
		default:
			wait(err.Error())
		}
		if err := pause(ctx, again); err != nil {
			return v, err
		}
	}
}

func shown(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}

func sameJSON(a, b any) bool { return shown(a) == shown(b) }

// start starts all new members at once: none of them serves alone. Those that run
// already stay as they are.
func (d *driver) start(ctx context.Context) error {
	// One that was lost since, and declared dead, is missing in the proof.
	alive := slices.DeleteFunc(d.getting(), func(h *participant) bool { return h.passedBy() })
	return d.each(ctx, PhaseStart, alive, true, func(ctx context.Context, h *participant) (outcome, error) {
		done, err := act(ctx, d, PhaseStart, h, h.client.Start)
		if err != nil && h.state.Dead && ctx.Err() == nil { // the proof tells whether the others do
			d.told.warn(fmt.Sprintf("%s is declared dead, and its new member is not started: %v", h.Member, err))
			return outcome{result: started{[]string{err.Error()}}, detail: "declared dead, and not started"}, nil
		}
		if err != nil {
			return outcome{}, err
		}
		d.warnAll(h, done.Warnings)
		return outcome{result: started{done.Warnings}, detail: "started"}, nil
	})
}

type started struct {
	Warnings []string `json:"warnings,omitempty"`
}

// proveTimeout is how long the new members may take to find a quorum.
const proveTimeout = serve.DefaultTimeout

// prove holds the new cluster against what was rebuilt.
func (d *driver) prove(ctx context.Context) error {
	all, err := d.rebuilt()
	if err != nil {
		return err
	}
	req, err := d.proofRequest(all)
	if err != nil {
		return err
	}
	return d.whole(ctx, PhaseProve, func(ctx context.Context) (outcome, error) {
		r, err := serve.Prove(ctx, req)
		if err != nil {
			return outcome{}, fmt.Errorf("%w. Clients stay stopped. Run the same command again to go on, or --undo to put everything back", err)
		}
		for _, m := range r.Missing {
			d.told.warn(fmt.Sprintf("member %s is not up: %s", m.Name, m.Why))
		}
		d.elected = time.Time{} // these are others than those that were waited for
		q, err := d.quorum(ctx, req.Client.Endpoints)
		if err == nil && !q.Serves {
			err = fmt.Errorf("the new cluster was proved, and then did not answer: %s. Run the same command again to go on", strings.Join(q.Answers, "; "))
		}
		if err != nil {
			return outcome{}, err
		}
		return outcome{result: proved{r, q.Revision}, detail: fmt.Sprintf("a quorum after %s", r.Quorum.Round(10*time.Millisecond))}, nil
	})
}

// proved is the proof, and the revision that it left: before any client wrote.
type proved struct {
	Report *serve.Report `json:"report"`
	Left   int64         `json:"left_revision"`
}

func (d *driver) proofRequest(all map[string]*host.Rebuilt) (serve.Request, error) {
	dec := d.known.decision
	first := all[sortedKeys(all)[0]]
	req := serve.Request{
		ClientURLs: map[string][]string{}, ClusterID: dec.NewClusterID, Members: members(first),
		RevisionAtLeast: first.Restore.RevisionAfter, Timeout: d.proveTimeout, Logger: d.logger,
		Started: d.known.steps[PhaseStart].begun, Expected: anyImage(all),
		Waiting: func(w serve.Waiting) { d.told.waiting(PhaseProve, waitingWords(w)) },
	}
	if dec.Inherited != "" {
		req.Started = dec.Built
	}
	for _, m := range dec.Members {
		req.ClientURLs[m.Name] = m.ClientURLs
	}
	if first.Restore.Plan.Bump == nil && first.HashKV.Hash != 0 {
		hash := first.HashKV
		req.HashKV = &hash
	}
	var err error
	req.Client, err = d.clientConfig(dec.clientURLs())
	return req, err
}

func anyImage(all map[string]*host.Rebuilt) *serve.Expected {
	for _, b := range all {
		if b.Image != nil {
			return b.Image
		}
	}
	return nil
}

// members are those of the plan that all hosts carried out.
func members(b *host.Rebuilt) []restore.Member { return b.Restore.Plan.Members }

func waitingWords(w serve.Waiting) string {
	var missing []string
	for _, m := range w.Missing {
		missing = append(missing, m.Name+" ("+m.Why+")")
	}
	switch {
	case w.Quorum && len(missing) == 0:
		return "all members serve"
	case w.Quorum:
		return "a quorum serves; waiting for " + strings.Join(missing, ", ")
	case len(missing) == 0:
		return "waiting for a quorum"
	}
	return "waiting for a quorum: " + strings.Join(missing, ", ")
}

// HostFlags are those of etcd's flags on a host that are stale: the member starts
// from its data whatever they say, but they count once that is lost.
type HostFlags struct {
	Member  string                  `json:"member"`
	In      string                  `json:"in"` // where they stand
	Changes []supervisor.FlagChange `json:"changes"`
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
func (d *driver) wantedFlags(m sources.NewMember, all []sources.NewMember) supervisor.Flags {
	f := supervisor.Flags{
		Name: m.Name, InitialAdvertisePeerURLs: strings.Join(m.PeerURLs, ","),
		InitialCluster: initialCluster(all), InitialClusterState: "existing",
	}
	if d.known.decision != nil {
		f.InitialClusterToken = d.known.decision.ClusterToken
	}
	return f
}

// staleFlags holds what hosts have against the new members.
func (d *driver) staleFlags(old []snapshot.Member, members []sources.NewMember) (all []HostFlags) {
	for _, m := range members {
		h := d.host(m.Name)
		if h == nil || h.state.Unreachable != "" {
			continue
		}
		wanted := d.wantedFlags(m, members)
		found := h.state.Flags
		if found == nil {
			found = &supervisor.FlagsFound{In: "its configuration", ByHand: "its host does not tell them"}
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
	return d.each(ctx, PhaseFlags, d.getting(), true, func(ctx context.Context, h *participant) (outcome, error) {
		i := slices.IndexFunc(dec.Members, func(m sources.NewMember) bool { return m.Name == h.Member })
		wanted := d.wantedFlags(dec.Members[i], dec.Members)
		done, err := act(ctx, d, PhaseFlags, h, func(ctx context.Context) (*host.Done, error) { return h.client.Flags(ctx, wanted) })
		if ctx.Err() != nil {
			return outcome{}, err
		}
		if err != nil {
			d.told.warn(fmt.Sprintf("%s: etcd's flags are not brought in line, and the recovery goes on: %v", h.Member, err))
			f := host.FlagsDone{In: "its configuration", ByHand: err.Error()}
			if s := h.state.Flags; s != nil {
				f.In, f.Changes = s.In, s.Flags.Changes(wanted)
			}
			return outcome{result: f, detail: "not brought in line"}, nil
		}
		return outcome{result: done.Flags, detail: flagWords(done.Flags)}, nil
	})
}

func flagWords(f *host.FlagsDone) string {
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
		var done host.FlagsDone
		if was, err := d.known.result(PhaseFlags, f.Member, &done); err != nil {
			return nil, err
		} else if !was {
			all = append(all, f)
		}
	}
	for _, h := range d.getting() {
		var done host.FlagsDone
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
