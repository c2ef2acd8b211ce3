package heartbeat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/requorum/requorum/schedule/status"
)

const (
	webhookName = "the webhook"
	// eventLimit bounds the events that wait; a receiver that was away that long
	// has other worries than the oldest of them.
	eventLimit = 256
	// eventAge is how long an event waits at most.
	eventAge = time.Hour
	// firstWait after a failed delivery; waits double up to longestWait.
	firstWait   = time.Second
	longestWait = time.Minute
	// lastWords is how long the end waits for what is still to be told.
	lastWords = 5 * time.Second
)

// Webhook tells a receiver of problems that come and go.
type Webhook struct {
	o       Options
	url     *url.URL
	send    *sender
	get     func() *status.Status
	trouble trouble

	edges   edges
	queue   []Event
	dropped int // since the last one that was delivered
	wait    time.Duration
	next    time.Time // no delivery before
}

// NewWebhook checks the options. Nothing is sent yet.
func NewWebhook(o Options, get func() *status.Status) (*Webhook, error) {
	o, u, err := o.check("webhook")
	if err != nil {
		return nil, err
	}
	return &Webhook{o: o, url: u, send: newSender(o), get: get, trouble: trouble{what: webhookName, logger: o.Logger}}, nil
}

// Problem is that events cannot be delivered, or that one was dropped and none
// delivered since.
func (w *Webhook) Problem() (status.Problem, bool) { return w.trouble.problem() }

// Run tells of this agent's problems until ctx ends, and then takes a few seconds
// for what is still to be told. What was there before Run began is told as well:
// nobody knows whether it was told before.
func (w *Webhook) Run(ctx context.Context) error {
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		w.look(time.Now())
		w.deliver(ctx)
		timer := time.NewTimer(w.pause(time.Now()))
		select {
		case <-ctx.Done():
			timer.Stop()
			w.end(ctx)
			return nil
		case <-tick.C:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// look adds the events of what came and went.
func (w *Webhook) look(now time.Time) {
	if s := w.get(); s != nil {
		w.queue = append(w.queue, w.edges.look(s, now)...)
	}
	for len(w.queue) > eventLimit {
		w.drop(fmt.Sprintf("more than %d wait", eventLimit))
	}
}

// deliver sends what waits, in order, until one fails.
func (w *Webhook) deliver(ctx context.Context) {
	for len(w.queue) > 0 && ctx.Err() == nil && !time.Now().Before(w.next) {
		err := w.post(ctx, w.queue[0])
		var answer statusError
		switch {
		case err == nil:
			w.queue, w.dropped, w.wait = w.queue[1:], 0, 0
			w.trouble.worked()
		case errors.Is(err, context.Canceled):
			return
		case errors.As(err, &answer) && answer.refused():
			w.drop("the receiver refuses it: " + err.Error())
		default:
			w.wait = min(max(2*w.wait, firstWait), longestWait)
			w.next = time.Now().Add(w.wait)
			if time.Since(w.queue[0].Time) >= eventAge {
				w.drop(fmt.Sprintf("after %s %s", eventAge, err))
				continue
			}
			w.trouble.failed(fmt.Sprintf("%s; waiting: %d%s", err, len(w.queue), w.lost()))
		}
	}
}

func (w *Webhook) post(ctx context.Context, e Event) error {
	body, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("event %d: %w", e.Sequence, err)
	}
	return w.send.post(ctx, w.url, "application/json", body)
}

// drop gives up the oldest event.
func (w *Webhook) drop(why string) {
	e := w.queue[0]
	w.queue = w.queue[1:]
	w.dropped++
	w.o.Logger.Error("an event for the webhook is dropped", "event", e.Event, "kind", e.Kind, "sequence", e.Sequence, "reason", why)
	w.trouble.failed(why + w.lost())
}

func (w *Webhook) lost() string {
	if w.dropped == 0 {
		return ""
	}
	return fmt.Sprintf("; dropped: %d", w.dropped)
}

// pause is the time until a delivery is to be tried again.
func (w *Webhook) pause(now time.Time) time.Duration {
	if len(w.queue) == 0 {
		return look
	}
	return max(0, w.next.Sub(now))
}

// end tries each event that waits once more.
func (w *Webhook) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer cancel()
	w.look(time.Now())
	w.next = time.Time{}
	w.deliver(ctx)
	if len(w.queue) > 0 {
		w.o.Logger.Warn("events for the webhook were not delivered", "events", len(w.queue))
	}
}
