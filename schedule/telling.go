package schedule

import (
	"context"
	"sync"

	"github.com/requorum/requorum/schedule/heartbeat"
	"github.com/requorum/requorum/schedule/status"
)

// teller tells somebody else how the agent is.
type teller interface {
	Run(ctx context.Context) error
	Problem() (status.Problem, bool)
}

// tellers are those that the configuration names.
func (t *term) newTellers() ([]teller, error) {
	var all []teller
	url, err := t.cfg.HeartbeatURL()
	if err != nil {
		return nil, err
	}
	if url != "" {
		h := t.cfg.Heartbeat
		one, err := heartbeat.New(heartbeat.Options{URL: url, Every: h.Every.Std(), Timeout: h.Timeout.Std(), Logger: t.Logger}, t.Status)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	if url, err = t.cfg.WebhookURL(); err != nil {
		return nil, err
	}
	if url != "" {
		one, err := heartbeat.NewWebhook(heartbeat.Options{URL: url, Timeout: t.cfg.Webhook.Timeout.Std(), Logger: t.Logger}, t.Status)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// tell runs the tellers until ctx ends.
func (t *term) tell(ctx context.Context) {
	var all sync.WaitGroup
	for _, one := range t.tellers {
		all.Go(func() {
			if err := one.Run(ctx); err != nil {
				t.Logger.Error("telling of this agent ended", "err", err)
			}
		})
	}
	all.Wait()
}
