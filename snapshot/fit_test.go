package snapshot_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/store/storetest"
)

// listener is called with the message of each line of a log.
type listener func(message string)

func (listener) Enabled(context.Context, slog.Level) bool { return true }
func (l listener) WithAttrs([]slog.Attr) slog.Handler     { return l }
func (l listener) WithGroup(string) slog.Handler          { return l }
func (l listener) Handle(_ context.Context, r slog.Record) error {
	l(r.Message)
	return nil
}

// takeWhen takes a backup and calls on with each line of its log, and with each
// phase of waiting for a member that is fit.
func takeWhen(t *testing.T, client *client.Client, fit time.Duration, on func(event string)) *snapshot.Manifest {
	t.Helper()
	result, err := snapshot.Take(t.Context(), snapshot.Request{
		Client: client, Tool: "test", Sink: newDisk(t), Fit: fit, Logger: slog.New(listener(on)),
		Progress: func(p snapshot.Progress) {
			if p.Phase == "fit" {
				on("waits")
			}
		},
	})
	require.NoError(t, err)
	return result.Manifest
}

func fitClient(t *testing.T, members int) (*storetest.Cluster, *client.Client) {
	t.Helper()
	c := storetest.Start(t, storetest.Options{Version: "3.7", Members: members})
	c.Fill(t, storetest.Load{Keys: 200})
	// A busy machine thaws a member late: keepalive would end the connection by then,
	// and with it the only member's stream.
	config := c.ClientConfig()
	config.KeepAliveTimeout = 5 * time.Minute
	client, err := client.Dial(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	return c, client
}

// The member that would be read first stops answering: another one is read.
func TestTakeReadsUnfitLast(t *testing.T) {
	c, client := fitClient(t, 3)
	first := takeWhen(t, client, 0, func(string) {}).Source
	if first.IsLeader {
		t.Fatal("all are well, and the leader was read")
	}
	frozen, unfit := false, 0
	m := takeWhen(t, client, 0, func(event string) {
		switch event {
		case "barrier":
			for i, endpoint := range c.Endpoints() {
				if endpoint == first.Endpoint {
					c.Freeze(t, i)
					frozen = true
				}
			}
		case "member unfit to be read now":
			unfit++
		}
	})
	if !frozen || unfit == 0 || m.Source.Endpoint == first.Endpoint {
		t.Errorf("frozen %v, seen to be unfit %d times, read from %s after %s", frozen, unfit, m.Source.Endpoint, first.Endpoint)
	}
}

// Where no member is fit the backup waits for one, as long as it was asked to, and
// then reads one that is not.
func TestTakeWaitsForFit(t *testing.T) {
	c, client := fitClient(t, 1)
	waits := 0
	takeWhen(t, client, time.Minute, func(event string) {
		switch event {
		case "barrier":
			c.Freeze(t, 0)
		case "waits":
			waits++
			c.Thaw(t, 0)
		}
	})
	if waits == 0 {
		t.Error("the only member was frozen, and nobody waited")
	}
	waits, unfit := 0, 0
	takeWhen(t, client, time.Nanosecond, func(event string) {
		switch event {
		case "barrier":
			c.Freeze(t, 0)
		case "waits":
			waits++
		case "member unfit to be read now":
			unfit++
			c.Thaw(t, 0) // it was judged, and is read although it was unfit
		}
	})
	if waits != 0 || unfit != 1 {
		t.Errorf("read after having waited %d times and judged %d times, with no time to wait", waits, unfit)
	}
}
