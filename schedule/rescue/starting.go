package rescue

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/schedule/control/protocol"
	"github.com/requorum/requorum/schedule/rescue/proof"
)

// start starts all new members at once: none of them serves alone. Those that run
// already stay as they are.
func (d *driver) start(ctx context.Context) error {
	// One that was lost since, and declared dead, is missing in the proof.
	alive := slices.DeleteFunc(d.getting(), func(h *host) bool { return h.passedBy() })
	return d.each(ctx, PhaseStart, alive, true, func(ctx context.Context, h *host) (outcome, error) {
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
const proveTimeout = proof.DefaultTimeout

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
		r, err := proof.Prove(ctx, req)
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
	Report *proof.Report `json:"report"`
	Left   int64         `json:"left_revision"`
}

func (d *driver) proofRequest(all map[string]*protocol.Rebuilt) (proof.Request, error) {
	dec := d.known.decision
	first := all[sortedKeys(all)[0]]
	req := proof.Request{
		ClientURLs: map[string][]string{}, ClusterID: dec.NewClusterID, Members: members(first),
		RevisionAtLeast: first.Restore.RevisionAfter, Timeout: d.proveTimeout, Logger: d.logger,
		Started: d.known.steps[PhaseStart].begun, Image: anyImage(all),
		Waiting: func(w proof.Waiting) { d.told.waiting(PhaseProve, waitingWords(w)) },
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

func anyImage(all map[string]*protocol.Rebuilt) *proof.Image {
	for _, b := range all {
		if b.Image != nil {
			return b.Image
		}
	}
	return nil
}

// members are those of the plan that all hosts carried out.
func members(b *protocol.Rebuilt) []restore.Member { return b.Restore.Plan.Members }

func waitingWords(w proof.Waiting) string {
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
