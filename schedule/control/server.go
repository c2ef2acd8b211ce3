package control

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/schedule/control/clients"
	"github.com/requorum/requorum/schedule/control/config"
	"github.com/requorum/requorum/schedule/control/journal"
	"github.com/requorum/requorum/schedule/control/member"
	"github.com/requorum/requorum/schedule/control/protocol"
	"github.com/requorum/requorum/snapshot"
)

// Hooks are what a control process can do with the help of packages above it.
// Each may be nil.
type Hooks struct {
	// Survey says what the directories of a stopped member hold; it reads only. What
	// it returns is sent as JSON.
	Survey func(ctx context.Context, dataDir, walDir string) (any, error)
	// Digest writes what a recovery's survey needs of the directories of a stopped
	// member, and reads only; nil where this process cannot.
	Digest func(ctx context.Context, w io.Writer, s recovery.Survivor) error
	// Repositories says what can be read here of the repositories that the
	// configuration names; nil where this process reads none. It takes some seconds at
	// most.
	Repositories func(ctx context.Context, pieces []protocol.Stored) []protocol.Repository
	// MayStart fails where a member of this cluster must not be started, such as one
	// whose timeline was superseded: its error names that timeline. takenBack are
	// clusters that had taken its place, and whose rebuild was undone on this host:
	// that they superseded it counts for nothing. What could not be asked is a
	// warning.
	MayStart func(ctx context.Context, cluster snapshot.ID, takenBack []snapshot.ID) (warnings []string, err error)
	// Rebuild builds the member's directories; nil where this process cannot. What
	// it returns is sent as JSON.
	Rebuild func(ctx context.Context, r Rebuild) (any, error)
}

// Rebuild is what Hooks.Rebuild is asked for. The member is proved to be stopped,
// and its data was set aside by the same run.
type Rebuild struct {
	Run                     string
	Member, DataDir, WALDir string
	Plan, Source            json.RawMessage
	// Aside is what a run set aside on this host, nil where nothing is.
	Aside func(run string) *restore.Aside
	// Built is what the same run built before, or began to; nil where nothing.
	Built *journal.Built
	// Building records, durably, that the directories are about to be built, and
	// Superseded that they were.
	Building, Superseded func(journal.Built) error
}

// Options are what a server needs.
type Options struct {
	Config     *config.Config
	Controller member.Controller
	Journal    *journal.Journal
	// Clients are the configured ones, in their order.
	Clients []clients.Client
	Audit   *Audit
	Hooks   Hooks
	// Logger is told of what a client is told too, and of what it can't be told; nil
	// is silent.
	Logger *slog.Logger
}

type server struct {
	Options
	replays *replays
	acting  sync.Mutex // held while an action is under way
}

// New makes the handler. It answers over TLS with client certificates only: see
// Serve.
func New(o Options) http.Handler {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &server{Options: o, replays: newReplays()}
}

// route is a verb's.
type route struct {
	verb   protocol.Verb
	method string
	answer func(*server, *call)
}

// routes are compared whole: nothing in a path is cleaned, followed or guessed.
func routes(path string) (route, bool) {
	switch path {
	case protocol.MemberPath:
		return route{protocol.Observe, http.MethodGet, (*server).member}, true
	case protocol.SurveyPath:
		return route{protocol.Observe, http.MethodGet, (*server).survey}, true
	case protocol.RepositoriesPath:
		return route{protocol.Observe, http.MethodGet, (*server).repositories}, true
	case protocol.DataPath:
		return route{protocol.Copy, http.MethodGet, (*server).data}, true
	case protocol.StopPath:
		return route{protocol.Stop, http.MethodPost, action((*server).stop)}, true
	case protocol.StartPath:
		return route{protocol.Start, http.MethodPost, action((*server).start)}, true
	case protocol.SetAsidePath:
		return route{protocol.SetAside, http.MethodPost, action((*server).setAside)}, true
	case protocol.UndoPath:
		return route{protocol.Undo, http.MethodPost, action((*server).undo)}, true
	case protocol.RebuildPath:
		return route{protocol.Rebuild, http.MethodPost, action((*server).rebuild)}, true
	case protocol.QuiescePath:
		return route{protocol.Quiesce, http.MethodPost, action((*server).quiesce)}, true
	case protocol.ResumePath:
		return route{protocol.Resume, http.MethodPost, action((*server).resume)}, true
	case protocol.FlagsPath:
		return route{protocol.Flags, http.MethodPost, action((*server).flags)}, true
	}
	return route{}, false
}

// call is one request on its way.
type call struct {
	w       http.ResponseWriter
	r       *http.Request
	line    Line // what the audit says of it
	audited bool
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	c := &call{w: w, r: r, line: Line{Remote: r.RemoteAddr, Method: r.Method, Path: r.URL.Path}}
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || len(r.TLS.VerifiedChains[0]) == 0 {
		s.refuse(c, refused(protocol.Forbidden, errors.New("no certificate of the CA for control")))
		return
	}
	c.line.Client, c.line.Certificate, c.line.Roles = identity(r.TLS.VerifiedChains[0][0])
	route, known := routes(r.URL.Path)
	if !known {
		s.refuse(c, refused(protocol.NotFound, errors.New("there is nothing of that path")))
		return
	}
	c.line.Verb = route.verb
	if r.Method != route.method {
		s.refuse(c, refused(protocol.BadRequest, errors.New("this is for "+route.method+" only")))
		return
	}
	if role := route.verb.Role(); !slices.Contains(c.line.Roles, role) {
		s.refuse(c, refused(protocol.Forbidden, errors.New("the certificate has not the organisational unit "+role)))
		return
	}
	route.answer(s, c)
}

// allow audits that a request is answered, or refuses it.
func (s *server) allow(c *call) bool {
	l := c.line
	l.Event = Allowed
	if err := s.Audit.Write(l); err != nil {
		s.Logger.Error("a request was refused because it could not be audited", "error", err)
		send(c.w, http.StatusInternalServerError, protocol.Refusal{Code: protocol.Failed, Error: "the audit file cannot be written: this host's log says why"})
		return false
	}
	c.audited = true
	return true
}

// outcome audits how an action ended.
func (s *server) outcome(c *call, began time.Time, err error) {
	l := c.line
	l.Event, l.Took = Done, time.Since(began).Seconds()
	if err != nil {
		l.Event, l.Code, l.Why = Failed, asRefusal(err).Code, err.Error()
	}
	if err := s.Audit.Write(l); err != nil {
		s.Logger.Error("how an action ended could not be audited", "verb", l.Verb, "nonce", l.Nonce, "error", err)
	}
}

// refuse audits and answers a refusal.
func (s *server) refuse(c *call, err error) {
	why := asRefusal(err)
	l := c.line
	l.Event, l.Code, l.Why = Refused, why.Code, why.Refusal.Error
	if err := s.Audit.Write(l); err != nil {
		s.Logger.Error("a refused request could not be audited", "error", err)
	}
	send(c.w, why.status(), why.Refusal)
}

// send answers with JSON.
func send(w http.ResponseWriter, status int, v any) {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"code": "failed", "error": "the answer cannot be written as JSON"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the client has gone
}
