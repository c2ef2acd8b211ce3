package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strings"
	"sync"

	"github.com/requorum/requorum/schedule/status"
)

// bodyLimit bounds what a request may send.
const bodyLimit = 64 << 10

// States of a run.
const (
	Pending   = "pending" // asked for here, and not begun yet
	Running   = "running"
	Succeeded = "succeeded"
	Failed    = "failed"
)

// Run is the answer about one run of a job.
type Run struct {
	Job   string `json:"job"`
	Slot  string `json:"slot"`
	State string `json:"state"` // pending, running, succeeded, failed
	// Run is what is known of it; nil while it is pending.
	Run *status.Run `json:"run,omitempty"`
}

func (a *api) demand(w http.ResponseWriter, r *http.Request) {
	job := r.PathValue("job")
	if a.ReadOnly {
		refuse(w, http.StatusForbidden, "this listener only tells: jobs are started over loopback, or with a client certificate (listen.client-ca)")
		return
	}
	args, code, err := arguments(w, r)
	if err != nil {
		refuse(w, code, err.Error())
		return
	}
	if a.known(w) == nil {
		return
	}
	slot, err := a.Demand(r.Context(), job, args)
	if err != nil {
		refuse(w, codeOf(err), err.Error())
		return
	}
	a.asked.add(job, slot)
	a.Logger.Info("job started through the API", slog.String("job", job), slog.String("slot", slot), slog.String("client", client(r)))
	w.Header().Set("Location", "/api/v1/jobs/"+job+"/"+slot)
	answer(w, http.StatusAccepted, Run{Job: job, Slot: slot, State: Pending})
}

// arguments reads the body: a JSON object, or nothing. The content type is one
// that a form or a script of another site cannot send unasked.
func arguments(w http.ResponseWriter, r *http.Request) (json.RawMessage, int, error) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return nil, http.StatusUnsupportedMediaType, errors.New("a job is started by a request with Content-Type: application/json")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyLimit))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, http.StatusRequestEntityTooLarge, fmt.Errorf("the body is larger than %d bytes", bodyLimit)
	case err != nil:
		return nil, http.StatusBadRequest, fmt.Errorf("the body cannot be read: %w", err)
	}
	if strings.TrimSpace(string(body)) == "" {
		return json.RawMessage("{}"), 0, nil
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(body, &object); err != nil || object == nil {
		return nil, http.StatusBadRequest, errors.New(`the body is not a JSON object, such as {}`)
	}
	return body, 0, nil
}

func codeOf(err error) int {
	switch {
	case errors.Is(err, ErrUnknownJob):
		return http.StatusNotFound
	case errors.Is(err, ErrRefused):
		return http.StatusConflict
	case errors.Is(err, ErrArguments):
		return http.StatusBadRequest
	default:
		return http.StatusInternalServerError
	}
}

// client is who asked: the name in the certificate, and the address.
func client(r *http.Request) string {
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		return r.TLS.PeerCertificates[0].Subject.String() + " " + r.RemoteAddr
	}
	return r.RemoteAddr
}

func (a *api) run(w http.ResponseWriter, r *http.Request) {
	st := a.known(w)
	if st == nil {
		return
	}
	job, slot := r.PathValue("job"), r.PathValue("slot")
	run := find(st, job, slot)
	if run == nil && a.Run != nil {
		var err error
		if run, err = a.Run(r.Context(), job, slot); err != nil {
			refuse(w, codeOf(err), err.Error())
			return
		}
	}
	got := Run{Job: job, Slot: slot, Run: run}
	switch {
	case run == nil && a.asked.has(job, slot):
		got.State = Pending
	case run == nil:
		refuse(w, http.StatusNotFound, fmt.Sprintf("no run of job %q with slot %q is known: GET /api/v1/jobs tells the newest", job, slot))
		return
	case run.Finished.IsZero():
		got.State = Running
	case run.OK:
		got.State = Succeeded
	default:
		got.State = Failed
	}
	answer(w, http.StatusOK, got)
}

// find looks for a run in the status. One that has ended counts before one that
// is still shown as under way.
func find(st *status.Status, job, slot string) *status.Run {
	for _, j := range st.Jobs {
		if j.Name != job {
			continue
		}
		for _, run := range []*status.Run{j.Last, j.LastSuccess, j.LastFailure, j.Running} {
			if run != nil && run.Slot == slot {
				return run
			}
		}
	}
	return nil
}

// remembered is how many slots are kept that were asked for: a run that waits
// for its turn is in no status yet.
const remembered = 256

// demanded are the runs that were asked for here last. The zero value is ready.
type demanded struct {
	mu    sync.Mutex
	slots []string
}

func (d *demanded) add(job, slot string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.slots = append(d.slots, job+"/"+slot)
	d.slots = d.slots[max(0, len(d.slots)-remembered):]
}

func (d *demanded) has(job, slot string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.slots {
		if s == job+"/"+slot {
			return true
		}
	}
	return false
}
