package sinks_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/requorum/requorum/sinks"
)

var errBusy = errors.New("slow down")

func busy(err error) bool { return errors.Is(err, errBusy) }

// failing fails so often with err, and then no more.
func failing(often int, err error) (call func() error, calls *int) {
	calls = new(int)
	return func() error {
		if *calls++; *calls <= often {
			return err
		}
		return nil
	}, calls
}

func TestRetryOutlastsWhatPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		call, calls := failing(5, fmt.Errorf("stat a: %w", errBusy))
		err := sinks.Retry{For: time.Minute, Logger: slog.New(slog.NewTextHandler(&log, nil))}.Do(t.Context(), busy, call)
		if err != nil || *calls != 6 {
			t.Errorf("after %d calls: %v", *calls, err)
		}
		if lines := strings.Count(log.String(), "slow down"); lines != 5 {
			t.Errorf("%d of 5 failures are logged:\n%s", lines, &log)
		}
	})
}

// TestRetryGivesUp after its time, with growing pauses, and says how often it tried.
func TestRetryGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		call, calls := failing(1000, errBusy)
		began := time.Now()
		err := sinks.Retry{For: time.Minute, Longest: 8 * time.Second}.Do(t.Context(), busy, call)
		took := time.Since(began)
		if !errors.Is(err, errBusy) || !strings.Contains(err.Error(), fmt.Sprintf("attempt %d,", *calls)) {
			t.Errorf("after %d calls: %v", *calls, err)
		}
		// Pauses of 0.5, 1, 2, 4, 8, 8… seconds, each half as long at least.
		if took > time.Minute || took < 40*time.Second || *calls < 10 || *calls > 20 {
			t.Errorf("%d calls in %s", *calls, took)
		}
	})
}

// TestRetryOnlyWhatMayPass: every other error comes back at once, as it is, and so
// does any without a time.
func TestRetryOnlyWhatMayPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		for want, retry := range map[error]sinks.Retry{sinks.ErrDenied: {For: time.Hour}, errBusy: {}} {
			call, calls := failing(1000, want)
			if err := retry.Do(t.Context(), busy, call); !errors.Is(err, want) || *calls != 1 || time.Since(began) > 0 {
				t.Errorf("%d calls in %s: %v", *calls, time.Since(began), err)
			}
		}
	})
}

// TestRetryEndsWithItsContext, in a pause as well, and says why it was waiting.
func TestRetryEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
		defer cancel()
		call, _ := failing(1000, errBusy)
		began := time.Now()
		err := sinks.Retry{For: time.Hour}.Do(ctx, busy, call)
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errBusy) || took != 7*time.Second {
			t.Errorf("after %s: %v", took, err)
		}
	})
}
