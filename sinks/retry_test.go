package sinks_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/sinktest"
)

var errBusy = sinks.MarkTemporary(errors.New("slow down"))

func TestRetryConforms(t *testing.T) {
	sinktest.Conformance(t, func(*testing.T) sinks.Sink {
		return sinks.Retry(sinktest.NewMemory(), sinks.RetryPolicy{})
	}, sinktest.Options{})
}

// TestRetryConformsThroughFaults: calls that fail now and then change nothing
// of what a sink promises.
func TestRetryConformsThroughFaults(t *testing.T) {
	sinktest.Conformance(t, func(t *testing.T) sinks.Sink {
		// The first call of each kind fails. Commit and Write are not repeated.
		return sinks.Retry(sinktest.NewFaulty(sinktest.NewMemory(),
			sinktest.Fail(sinktest.Create, 1, errBusy), sinktest.Fail(sinktest.Open, 1, errBusy), sinktest.Fail(sinktest.Stat, 1, errBusy),
			sinktest.Fail(sinktest.List, 1, errBusy), sinktest.Fail(sinktest.Delete, 1, errBusy), sinktest.Lose(sinktest.Delete, 2, errBusy),
			sinktest.CutRead(1, 5, errBusy), sinktest.CutRead(2, 0, errBusy), sinktest.CutList(1, 1, errBusy),
		), sinks.RetryPolicy{First: time.Microsecond})
	}, sinktest.Options{Many: 50, Big: 1 << 20})
}

func TestRetryEachCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faulty := sinktest.NewFaulty(sinktest.NewMemory(),
			sinktest.Fail(sinktest.Create, 1, errBusy), sinktest.Fail(sinktest.Create, 2, errBusy),
			sinktest.Fail(sinktest.Open, 1, errBusy), sinktest.Fail(sinktest.Stat, 1, errBusy),
			sinktest.Fail(sinktest.List, 1, errBusy), sinktest.Fail(sinktest.Delete, 1, errBusy))
		var log strings.Builder
		s := sinks.Retry(faulty, sinks.RetryPolicy{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if _, err := sinks.Put(t.Context(), s, "a", []byte("data"), sinks.CreateOptions{}); err != nil {
			t.Error(err)
		}
		if data, err := sinks.Get(t.Context(), s, "a", 10); err != nil || string(data) != "data" {
			t.Errorf("%q, %v", data, err)
		}
		if _, err := s.Stat(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		for _, err := range s.List(t.Context(), "", "") {
			if err != nil {
				t.Error(err)
			}
		}
		if err := s.Delete(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		faulty.AllFired(t)
		if lines := strings.Count(log.String(), "slow down"); lines != 6 {
			t.Errorf("%d of 6 failures are logged:\n%s", lines, &log)
		}
		if s.(interface{ Unwrap() sinks.Sink }).Unwrap() != sinks.Sink(faulty) {
			t.Error("Unwrap")
		}
	})
}

// TestRetryGivesUp after the time of the policy, with growing waits, and says
// how often it tried.
func TestRetryGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faulty := sinktest.NewFaulty(sinktest.NewMemory(), sinktest.Fail(sinktest.Stat, 1, errBusy).Always())
		s := sinks.Retry(faulty, sinks.RetryPolicy{First: time.Second, Longest: 8 * time.Second, For: time.Minute})
		began := time.Now()
		_, err := s.Stat(t.Context(), "a")
		took := time.Since(began)
		calls := faulty.Calls(sinktest.Stat)
		if !errors.Is(err, errBusy) || !strings.Contains(err.Error(), fmt.Sprintf("attempt %d", calls)) {
			t.Errorf("after %d calls: %v", calls, err)
		}
		// Waits of 1, 2, 4, 8, 8… seconds, each half as long to half as long again.
		if took > time.Minute || took < 40*time.Second || calls < 6 || calls > 18 {
			t.Errorf("%d calls in %s", calls, took)
		}
	})
}

// TestRetryOnlyWhatMayPass: every other error comes back at once, as it is.
func TestRetryOnlyWhatMayPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faulty := sinktest.NewFaulty(sinktest.NewMemory(), sinktest.Fail(sinktest.Create, 1, sinks.ErrDenied))
		s := sinks.Retry(faulty, sinks.RetryPolicy{})
		began := time.Now()
		_, err := s.Create(t.Context(), "a", sinks.CreateOptions{})
		if !errors.Is(err, sinks.ErrDenied) || strings.Contains(err.Error(), "attempt") {
			t.Error(err)
		}
		if _, err := s.Stat(t.Context(), "nothing"); !errors.Is(err, sinks.ErrNotFound) {
			t.Error(err)
		}
		if time.Since(began) > 0 || faulty.Calls(sinktest.Create) != 1 {
			t.Errorf("%d calls in %s", faulty.Calls(sinktest.Create), time.Since(began))
		}
		faulty.AllFired(t)
	})
}

// TestRetryEndsWithItsContext, while it waits, and tells why it was waiting.
func TestRetryEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faulty := sinktest.NewFaulty(sinktest.NewMemory(), sinktest.Fail(sinktest.Stat, 1, errBusy).Always())
		s := sinks.Retry(faulty, sinks.RetryPolicy{})
		ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
		defer cancel()
		began := time.Now()
		_, err := s.Stat(ctx, "a")
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errBusy) {
			t.Error(err)
		}
		if took := time.Since(began); took != 7*time.Second {
			t.Errorf("after %s", took)
		}
	})
}

// TestRetryNotTheWriter: bytes that are gone cannot be sent again.
func TestRetryNotTheWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faulty := sinktest.NewFaulty(sinktest.NewMemory(), sinktest.Fail(sinktest.Write, 1, errBusy), sinktest.Fail(sinktest.Commit, 1, errBusy))
		s := sinks.Retry(faulty, sinks.RetryPolicy{})
		for _, call := range []sinktest.Op{sinktest.Write, sinktest.Commit} {
			if _, err := sinks.Put(t.Context(), s, "a", []byte("x"), sinks.CreateOptions{}); !errors.Is(err, errBusy) {
				t.Errorf("%s: %v", call, err)
			}
		}
		if n := faulty.Calls(sinktest.Commit); n != 1 {
			t.Errorf("%d commits", n)
		}
		faulty.AllFired(t)
	})
}

// TestResumedRead: a read that breaks goes on where it was, in any range, and
// gives every byte once.
func TestResumedRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := sinktest.Random(1, 10_000)
		for _, r := range []struct{ offset, length int64 }{{0, -1}, {0, 10_000}, {100, 5_000}, {100, -1}, {100, 20_000}} {
			want := data[r.offset:]
			if r.length >= 0 {
				want = want[:min(int(r.length), len(want))]
			}
			faulty := sinktest.NewFaulty(sinktest.NewMemory(),
				sinktest.CutRead(1, 1, io.ErrUnexpectedEOF), sinktest.CutRead(2, 0, errBusy), sinktest.CutRead(3, 1000, errBusy),
				sinktest.Fail(sinktest.Open, 4, errBusy), sinktest.CutRead(4, 3000, io.ErrUnexpectedEOF))
			s := sinks.Retry(faulty, sinks.RetryPolicy{})
			if _, err := sinks.Put(t.Context(), s, "a", data, sinks.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			body, err := s.Open(t.Context(), "a", r.offset, r.length)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(body)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("offset %d, length %d: %d bytes, want %d; %v", r.offset, r.length, len(got), len(want), err)
			}
			if err := body.Close(); err != nil {
				t.Error(err)
			}
			faulty.AllFired(t)
		}
	})
}

// TestResumedReadOfATruncatedObject: a sink that says "cut short" and then
// "this is the end" has lost bytes. That must not look like a whole object.
func TestResumedReadOfATruncatedObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, length := range []int64{-1, 100} {
			faulty := sinktest.NewFaulty(sinktest.NewMemory(), sinktest.CutRead(1, 50, io.ErrUnexpectedEOF), sinktest.CutRead(2, 0, errBusy))
			s := sinks.Retry(faulty, sinks.RetryPolicy{})
			if _, err := sinks.Put(t.Context(), s, "a", make([]byte, 50), sinks.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			body, err := s.Open(t.Context(), "a", 0, length)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // the error stays
				if n, err := io.Copy(io.Discard, body); !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("%d bytes, %v", n, err)
				}
			}
			faulty.AllFired(t)
		}
	})
}

// TestResumedReadStandsStill: the time counts from the last byte that came.
func TestResumedReadStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faulty := sinktest.NewFaulty(sinktest.NewMemory(),
			sinktest.CutRead(1, 10, errBusy), sinktest.Delay(sinktest.Open, 2, time.Hour), // it still comes
			sinktest.CutRead(2, 10, errBusy), sinktest.CutRead(3, 0, errBusy).Always())
		s := sinks.Retry(faulty, sinks.RetryPolicy{For: time.Minute})
		if _, err := sinks.Put(t.Context(), s, "a", make([]byte, 50), sinks.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		body, err := s.Open(t.Context(), "a", 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		n, err := io.Copy(io.Discard, body)
		if n != 20 || !errors.Is(err, errBusy) || !strings.Contains(err.Error(), "attempt") {
			t.Errorf("%d bytes, %v", n, err)
		}
		if took := time.Since(began) - time.Hour; took > time.Minute || took < 20*time.Second {
			t.Errorf("gave up after %s", took)
		}
		if err := body.Close(); err != nil {
			t.Error(err)
		}
		faulty.AllFired(t)
	})
}

// TestResumedList: each name once, in order, though pages fail.
func TestResumedList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faulty := sinktest.NewFaulty(sinktest.NewMemory(), sinktest.CutList(1, 3, errBusy), sinktest.CutList(2, 0, errBusy), sinktest.CutList(3, 4, errBusy))
		s := sinks.Retry(faulty, sinks.RetryPolicy{})
		var want, got []string
		for _, name := range strings.Split("abcdefghij", "") {
			want = append(want, name)
			if _, err := sinks.Put(t.Context(), s, name, nil, sinks.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		for object, err := range s.List(t.Context(), "", "") {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, object.Name)
		}
		if strings.Join(got, "") != strings.Join(want, "") {
			t.Errorf("%q", got)
		}
		faulty.AllFired(t)

		faulty.Add(sinktest.CutList(1, 2, sinks.ErrDenied))
		got = nil
		var last error
		for object, err := range s.List(t.Context(), "", "c") {
			if err != nil {
				last = err
				continue
			}
			got = append(got, object.Name)
		}
		if strings.Join(got, "") != "de" || !errors.Is(last, sinks.ErrDenied) {
			t.Errorf("%q, %v", got, last)
		}
		faulty.AllFired(t)
	})
}

// TestRetryCutInAnAttempt: a context that ends while an attempt is under way does
// not hide what the attempts before failed with.
func TestRetryCutInAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faulty := sinktest.NewFaulty(sinktest.NewMemory(), sinktest.Fail(sinktest.Stat, 1, errBusy), sinktest.Delay(sinktest.Stat, 2, time.Hour))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := sinks.Retry(faulty, sinks.RetryPolicy{}).Stat(ctx, "a")
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "slow down") || sinks.Temporary(err) {
			t.Errorf("got %v", err)
		}
		faulty.AllFired(t)
	})
}
