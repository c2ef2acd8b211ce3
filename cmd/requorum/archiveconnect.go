package main

import (
	"context"
	"errors"
	"time"

	"github.com/requorum/requorum/store"
)

// connectAgain is how soon a login is tried again.
const connectAgain = time.Second

// connect waits until the cluster lets the archiver log in: it is started
// together with the member, which may still be looking for its leader. What
// waiting does not change is an error at once, and with --once everything is.
func (a *archiving) connect(ctx context.Context) (*store.Client, error) {
	told := ""
	for {
		client, err := a.options.conn.connect(ctx, a.globals)
		var asked *store.EndpointError
		if err == nil || a.options.once || !errors.As(err, &asked) || errors.Is(err, store.ErrLogin) {
			return client, err
		}
		if text := err.Error(); text != told {
			a.report.note(text)
			told = text
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(connectAgain):
		}
	}
}
