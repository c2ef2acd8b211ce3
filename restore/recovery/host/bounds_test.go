package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// endless is another side that goes on until it is not listened to any more.
func endless(t *testing.T, line func(n int) string) io.Reader {
	r, w := io.Pipe()
	t.Cleanup(func() { r.Close() })
	go func() {
		for n := 0; ; n++ {
			if _, err := io.WriteString(w, line(n)); err != nil {
				return
			}
		}
	}()
	return r
}

// What the other side asks for is bounded all together, and not for each request alone:
// whatever part of it is long, and also where it takes no answer.
func TestRequestsAreBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("A", 4<<20)
	waiting := func(ctx context.Context, _ *incoming) (any, error) { <-ctx.Done(); return nil, ctx.Err() }
	answering := func(context.Context, *incoming) (any, error) { return nil, nil }
	for _, c := range []struct {
		part   string
		takes  bool
		handle func(context.Context, *incoming) (any, error)
	}{{"value", true, waiting}, {"member", true, waiting}, {"value", false, answering}} {
		var sent atomic.Int64
		in := endless(t, func(n int) string {
			sent.Store(int64(n))
			return fmt.Sprintf(`{"id":%d,"action":"fetch",%q:%q}`+"\n", n+1, c.part, long)
		})
		taken, out := io.Pipe()
		if c.takes {
			go io.Copy(io.Discard, taken)
		}
		asked := newConversation(in, out, c.handle)
		ended := make(chan error, 1)
		go func() { ended <- asked.Serve(t.Context()) }()
		require.Eventually(t, func() bool {
			asked.mu.Lock()
			defer asked.mu.Unlock()
			return asked.held > maxLine || len(ended) > 0
		}, time.Minute, time.Millisecond)
		taken.Close() // who is at an answer ends
		require.ErrorContains(t, <-ended, "bytes came at once", c.part)
		require.LessOrEqual(t, int(sent.Load())*len(long), maxLine+2*len(long))
	}
}

// Data comes behind a short line, so that what waits to be taken is bounded too.
func TestDataBehindALongLine(t *testing.T) {
	t.Parallel()
	line := fmt.Sprintf(`{"id":1,"raw":1,"value":%q}`+"\nx", strings.Repeat("A", piece))
	require.ErrorContains(t, newConversation(strings.NewReader(line), io.Discard, nil).Serve(t.Context()), "data of 1 bytes came at once")
}

// A value that is longer than a piece comes whole, either way; one that is too long for a
// line is an error of who asked for it, and the conversation goes on.
func TestLongValues(t *testing.T) {
	t.Parallel()
	in, toUs := io.Pipe()
	fromUs, out := io.Pipe()
	echo := func(_ context.Context, r *incoming) (any, error) {
		var size int
		if r.Decode(&size) == nil {
			return strings.Repeat("A", size), nil
		}
		return r.Arguments, nil
	}
	us := newConversation(in, out, nil)
	go func() { _ = us.Serve(context.Background()) }()
	go func() { _ = newConversation(fromUs, toUs, echo).Serve(context.Background()) }()
	t.Cleanup(func() { in.Close(); fromUs.Close() })
	want := strings.Repeat("0123456789", piece)
	for range 2 {
		var got string
		require.NoError(t, us.Call(t.Context(), Header{}, verbData, want, &got, nil))
		require.True(t, got == want, "%d bytes came back of %d", len(got), len(want))
		err := us.Call(t.Context(), Header{}, verbData, maxLine, &got, nil)
		require.ErrorContains(t, err, "too long to be sent")
	}
}

// What a host says its log is, is taken up to a bound.
func TestDigestIsBounded(t *testing.T) {
	old := summaryLimit
	summaryLimit = 1 << 20
	defer func() { summaryLimit = old }()
	host := NewRemote(RemoteOptions{Member: "m1", Version: "test", Command: []string{"/bin/sh", "-c", `
		echo '{"requorum":"test"}'
		read -r configure
		echo '{"id":1,"done":true,"value":{}}'
		read -r survey
		while echo '{"id":2,"raw":49152}' && head -c 49152 /dev/zero; do :; done`}})
	defer host.Close()
	var got bytes.Buffer
	err := host.As("run").Survey(t.Context(), &got, "")
	if err == nil || !strings.Contains(err.Error(), "more than 1048576 bytes came") || int64(got.Len()) > summaryLimit {
		t.Errorf("%d bytes were taken: %v", got.Len(), err)
	}
}

// Small values take far more memory than their text.
func TestAnswer_ManyValues_IsRefused(t *testing.T) {
	t.Parallel()
	var files Sent
	_, err := take(frame{Done: true, Value: []byte(`{"files":[{}` + strings.Repeat(",{}", maxValues+1) + "]}")}, &files, nil)
	require.ErrorContains(t, err, "values came")
	require.Empty(t, files.Files)
}

// Data that is more than one line has, or less than that says, ends the conversation.
func TestRawDataIsBounded(t *testing.T) {
	t.Parallel()
	for _, raw := range []int{-1, piece + 1, 6} {
		in := strings.NewReader(fmt.Sprintf(`{"id":1,"raw":%d}`+"\nhello", raw))
		if err := newConversation(in, io.Discard, nil).Serve(t.Context()); err == nil || errors.Is(err, errEnded) {
			t.Errorf("%d bytes: %v", raw, err)
		}
	}
}
