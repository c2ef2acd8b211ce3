package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/requorum/requorum/schedule/status"
)

const (
	// look is how often the Status is looked at: a failure is told at once, and
	// not with the next ping.
	look = 5 * time.Second
	// failAgain is how often a failure that lasts is told again.
	failAgain = time.Hour
	// retryAfter is the pause after a ping that failed on all its attempts.
	retryAfter = 30 * time.Second
	// attempts that a ping has, a second and then two apart.
	attempts = 3
	// staleAfter is how old a Status may be beyond Every: an agent that no longer
	// looks has nothing to say.
	staleAfter = 2 * time.Minute
	// bodyLimit is what such services show, and more than enough.
	bodyLimit = 1 << 10
)

// Heartbeat pings a service.
type Heartbeat struct {
	o       Options
	url     *url.URL
	send    *sender
	get     func() *status.Status
	trouble trouble

	active  bool      // this agent is the one that pings
	failing bool      // the service was told so last
	next    time.Time // when the next ping is due
	retry   time.Time // no ping before, since the last one failed
}

// New checks the options. Nothing is sent yet.
func New(o Options, get func() *status.Status) (*Heartbeat, error) {
	o, u, err := o.check("heartbeat")
	if err != nil {
		return nil, err
	}
	return &Heartbeat{o: o, url: u, send: newSender(o), get: get, trouble: trouble{what: "the heartbeat", logger: o.Logger}}, nil
}

// Problem is that pings cannot be delivered; false where they can.
func (h *Heartbeat) Problem() (status.Problem, bool) { return h.trouble.problem() }

// Run pings until ctx ends; that is no error. To /start when this agent becomes
// the writer, to the URL itself every Every while no problem is critical, and to
// /fail as soon as one is. Where the agent archives no log there is no writer,
// and it pings like one.
func (h *Heartbeat) Run(ctx context.Context) error {
	tick := time.NewTicker(min(look, h.o.Every))
	defer tick.Stop()
	for {
		h.round(ctx, time.Now())
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Once is for a single run: it pings /start, does the work, and pings the exit
// status that it returns, with its text. What could not be sent is a Problem and
// logged; the work is done all the same.
func (h *Heartbeat) Once(ctx context.Context, work func(context.Context) (exit int, text string)) int {
	h.ping(ctx, "start", "")
	exit, text := work(ctx)
	// The work may have ended because ctx did: that is to be told.
	ctx = context.WithoutCancel(ctx)
	h.ping(ctx, strconv.Itoa(exit), text)
	return exit
}

func (h *Heartbeat) round(ctx context.Context, now time.Time) {
	s := h.get()
	if s == nil || s.Repository.Listed.IsZero() || now.Sub(s.Time) > h.o.Every+staleAfter || now.Before(h.retry) {
		return // it has not looked yet, or does not look any more
	}
	if !s.Writer && s.Archives || s.Waiting != "" {
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
	every, path, text := h.o.Every, "", summary(s)
	if !ready {
		every, path, text = failAgain, "fail", s.Agent+": "+why
	}
	if !h.ping(ctx, path, text) {
		return // the next look tries again
	}
	h.failing, h.next = !ready, now.Add(every)
}

// ping posts to a path below the URL, a few times where that fails, and tells
// whether it arrived.
func (h *Heartbeat) ping(ctx context.Context, path, text string) bool {
	u := *h.url
	if path != "" {
		u = *u.JoinPath(path)
	}
	var err error
	for n := range attempts {
		if n > 0 && !sleep(ctx, time.Duration(n)*time.Second) {
			return false
		}
		if err = h.send.post(ctx, &u, "text/plain; charset=utf-8", []byte(short(text))); err == nil {
			h.trouble.worked()
			return true
		}
	}
	h.retry = time.Now().Add(min(h.o.Every, retryAfter))
	if !errors.Is(err, context.Canceled) {
		h.trouble.failed(err.Error())
	}
	return false
}

// summary is what a ping of success says: the agent, what would be lost, how long
// a restore takes, and problems that are not critical.
func summary(s *status.Status) string {
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
	if len(text) > bodyLimit {
		text = text[:bodyLimit-len("…")] + "…"
	}
	return strings.ToValidUTF8(text, "")
}

// sleep waits, and tells whether ctx still goes on.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
