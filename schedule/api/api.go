package api

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"

	"github.com/requorum/requorum/schedule/page"
	"github.com/requorum/requorum/schedule/status"
)

// What Options.Demand fails with, so that a client is told whose turn it is. It
// wraps one of them; any other error counts as the agent's own failure.
var (
	// ErrUnknownJob: there is no job of that name. Answered 404.
	ErrUnknownJob = errors.New("no such job")
	// ErrRefused: the job does not run here or not now, such as while it runs
	// already. Answered 409.
	ErrRefused = errors.New("refused")
	// ErrArguments: the body asks for what the job does not know. Answered 400.
	ErrArguments = errors.New("wrong arguments")
)

// Options are what the API needs of the agent. Status and Demand are called by
// several goroutines at once.
type Options struct {
	// Status is what the agent knows now; nil as long as it starts.
	Status func() *status.Status
	// Demand starts a job outside its schedule, and names the slot of the run. It
	// doesn't wait for it. args is a JSON object, {} where none was sent. See the
	// errors above for those that a client can do something about.
	Demand func(ctx context.Context, job string, args json.RawMessage) (slot string, err error)
	// Run looks up a run that the status doesn't tell of, such as an older one;
	// nil and no error where there is none. A nil Run looks nowhere.
	Run func(ctx context.Context, job, slot string) (*status.Run, error)
	// Metrics answers /metrics; nil means that there are none.
	Metrics http.Handler
	// Logger is told of every job that is started; nil is silent.
	Logger *slog.Logger
	// ReadOnly refuses to start jobs: for listeners that anybody can reach. See
	// ListenConfig.Trusted.
	ReadOnly bool
}

// api answers requests.
type api struct {
	Options
	asked demanded
}

// New makes the handler of all routes.
func New(o Options) http.Handler {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	a := &api{Options: o}
	mux := http.NewServeMux()
	pages := page.Handler(o.Status)
	mux.Handle("GET "+page.Path+"{$}", pages)
	mux.Handle("GET "+page.ScriptPath, pages)
	mux.Handle("GET "+page.IconPath, pages)

	mux.HandleFunc("GET /healthz", healthz)
	mux.HandleFunc("GET /readyz", a.readyz)
	if o.Metrics != nil {
		mux.Handle("GET /metrics", o.Metrics)
	}

	for _, r := range []struct {
		method, path string
		answer       http.HandlerFunc
	}{
		{http.MethodGet, "/api/v1/status", a.status},
		{http.MethodGet, "/api/v1/backups", a.backups},
		{http.MethodGet, "/api/v1/jobs", a.jobs},
		{http.MethodPost, "/api/v1/jobs/{job}", a.demand},
		{http.MethodGet, "/api/v1/jobs/{job}/{slot}", a.run},
	} {
		mux.HandleFunc(r.method+" "+r.path, r.answer)
		mux.HandleFunc(r.path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Allow", r.method)
			refuse(w, http.StatusMethodNotAllowed, "this is for "+r.method+" only")
		})
	}
	mux.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, http.StatusNotFound, "there is no "+r.Method+" "+r.URL.Path+": docs/api.md lists what there is")
	})
	return guard(mux)
}
