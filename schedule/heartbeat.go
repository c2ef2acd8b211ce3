package schedule

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/requorum/requorum/schedule/config"
	"github.com/requorum/requorum/schedule/web"
	"github.com/requorum/requorum/walreplay/archive"
)

const (
	// pingLook is how often the Status is looked at: a failure is reported at once, and
	// not with the next ping.
	pingLook = 5 * time.Second
	// pingFailAgain is how often a failure that lasts is reported again.
	pingFailAgain = time.Hour
	// pingRetry is the pause after a ping that failed on all its pingAttempts.
	pingRetry = 30 * time.Second
	// pingAttempts are a second and then two apart.
	pingAttempts = 3
	// pingStale is how old a Status may be beyond Every: an agent that no longer
	// looks has nothing to say.
	pingStale = 2 * time.Minute
	// pingLimit is what such services show, and more than enough.
	pingLimit = 1 << 10
	// pingAnswer is how much of an answer is read, so that the connection can be
	// used again.
	pingAnswer = 64 << 10
)

// heartbeat pings, in the convention of healthchecks, a service that raises the
// alarm when the pings stay away. It promises:
//
//  1. A ping of success says that this agent writes the archive, and that its
//     status is of a moment ago and has no critical problem. An agent that stands
//     by, that hangs or that is gone sends none.
//  2. The URL is a secret: no error, log line or problem has a part of it, and no
//     redirect is followed.
type heartbeat struct {
	url    *url.URL
	config config.Heartbeat
	client *http.Client
	logger *slog.Logger
	status func() *web.Status

	// Of run alone.
	active  bool      // this agent is the one that pings
	failing bool      // this was reported last
	next    time.Time // when the next ping is due
	retry   time.Time // no ping before, since the last one failed

	mu      sync.Mutex
	since   time.Time // when pings could not be delivered any more
	trouble string    // why; empty where they are
}

// newHeartbeat sends nothing yet.
func newHeartbeat(to string, c config.Heartbeat, logger *slog.Logger, status func() *web.Status) (*heartbeat, error) {
	u, err := url.Parse(to)
	if err != nil {
		return nil, errURL // the parser's own error has the URL
	}
	return &heartbeat{url: u, config: c, client: &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, logger: logger, status: status}, nil
}

var errURL = errors.New("the heartbeat's URL (which is not shown, since it is a secret) is none: write it as https://HOST/PATH")

// run pings until ctx ends: to /start when this agent becomes
// the writer, to the URL itself in intervals while no problem is critical, and to
// /fail as soon as one is. Where the agent archives no log there is no writer,
// and it pings like one.
func (h *heartbeat) run(ctx context.Context) {
	every(ctx, min(pingLook, h.config.Every.Std()), func() { h.round(ctx, time.Now()) })
}

func (h *heartbeat) round(ctx context.Context, now time.Time) {
	s, interval := h.status(), h.config.Every.Std()
	if s.Repository.Listed.IsZero() || now.Sub(s.Time) > interval+pingStale || now.Before(h.retry) {
		return // it has not looked yet, or does not look any more
	}
	writes := s.Writer || s.Archive != nil && s.Archive.Role == archive.Spooling
	if !writes && s.Archives {
		h.active = false
		return
	}
	if !h.active {
		if !h.ping(ctx, "start", s.Agent+" begins to write the archive") {
			return
		}
		h.active, h.failing, h.next = true, false, time.Time{}
	}
	ready, why := s.Ready()
	if now.Before(h.next) && ready != h.failing {
		return
	}
	path, text := "", summary(s)
	if !ready {
		interval, path, text = pingFailAgain, "fail", s.Agent+": "+why
	}
	if !h.ping(ctx, path, text) {
		return // the next look tries again
	}
	h.failing, h.next = !ready, now.Add(interval)
}

// ping posts to a path below the URL, a few times where that fails, and reports
// whether it arrived.
func (h *heartbeat) ping(ctx context.Context, path, text string) bool {
	u := h.url
	if path != "" {
		u = u.JoinPath(path)
	}
	var err error
	for n := range pingAttempts {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(time.Duration(n) * time.Second):
		}
		if err = h.post(ctx, u, short(text)); err == nil {
			h.note("")
			return true
		}
	}
	h.retry = time.Now().Add(min(h.config.Every.Std(), pingRetry))
	if !errors.Is(err, context.Canceled) {
		h.note(err.Error())
	}
	return false
}

// note takes down why pings cannot be delivered; it is logged when that changes.
func (h *heartbeat) note(trouble string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case trouble != "" && h.trouble == "":
		h.since = time.Now()
		h.logger.Warn("the heartbeat cannot be delivered", "reason", trouble)
	case trouble == "" && h.trouble != "":
		h.logger.Info("the heartbeat is delivered again", "after", time.Since(h.since).Round(time.Second))
	}
	h.trouble = trouble
}

// problem is that pings cannot be delivered; false where they can.
func (h *heartbeat) problem() (web.Problem, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return web.Problem{
		Kind: web.KindHeartbeat, Severity: web.Warning, Since: h.since,
		Text: "the heartbeat cannot be delivered: " + h.trouble,
		Next: "look whether the service behind its URL is there, and whether this host may reach it",
	}, h.trouble != ""
}

// summary is what a ping of success says: the agent, what would be lost, how long
// a restore takes, and problems that are not critical.
func summary(s *web.Status) string {
	lines := []string{fmt.Sprintf("%s, %s", s.Agent, s.Tool)}
	for _, text := range []string{s.RPO.Text, s.RTO.Text} {
		if text != "" {
			lines = append(lines, text)
		}
	}
	for _, p := range s.Problems {
		lines = append(lines, string(p.Severity)+": "+p.Text)
	}
	return strings.Join(lines, "\n")
}

// short cuts a text at the limit, between two characters.
func short(text string) string {
	if len(text) > pingLimit {
		text = text[:pingLimit-len("…")] + "…"
	}
	return strings.ToValidUTF8(text, "")
}

// post sends a text to u and returns when the receiver answered 2xx.
func (h *heartbeat) post(ctx context.Context, u *url.URL, text string) error {
	ctx, cancel := context.WithTimeout(ctx, h.config.Timeout.Std())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), strings.NewReader(text))
	if err != nil {
		return errURL
	}
	req.Header.Set("Content-Type", "text/plain; charset=utf-8")
	req.Header.Set("User-Agent", "requorum")
	resp, err := h.client.Do(req)
	if err != nil {
		return h.reason(err)
	}
	defer resp.Body.Close()
	if _, err := io.CopyN(io.Discard, resp.Body, pingAnswer); err != nil && err != io.EOF {
		return h.reason(err)
	}
	if resp.StatusCode/100 == 3 {
		return fmt.Errorf("it answers %d %s, and redirects are not followed: set the URL that it leads to", resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("it answers %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	return nil
}

// reason says why a request failed, without the URL that the client's errors begin with,
// and without the host that those of the network name.
func (h *heartbeat) reason(err error) error {
	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err
	}
	if errors.Is(err, context.Canceled) {
		return context.Canceled
	}
	return errors.New(strings.ReplaceAll(err.Error(), h.url.Hostname(), "its host"))
}
