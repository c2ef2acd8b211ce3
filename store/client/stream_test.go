package client_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/store/storetest"
)

// Every way a stream can end, against one member with some 20 MB.
func TestStream(t *testing.T) {
	t.Parallel()
	member := startMember(t, memberConfig(t, "one"))
	storetest.Fill(t, member.Endpoints(), storetest.Load{Keys: 2500, ValueSize: 8 << 10})
	for name, check := range map[string]func(*testing.T, *storetest.Proxy, client.Config){
		"stalls":      streamStalls,
		"trickles":    streamTrickles,
		"slow reader": streamSlowReader,
		"cut":         streamCut,
		"cancelled":   streamCancelled,
		"flat memory": streamReadsAheadWithinBounds,
	} {
		t.Run(name, func(t *testing.T) {
			proxy := storetest.NewProxy(t, "127.0.0.1", strings.TrimPrefix(member.Endpoints()[0], "http://"))
			check(t, proxy, client.Config{Endpoints: []string{"http://" + proxy.Addr()}})
		})
	}
}

func drain(stream *client.SnapshotStream) error {
	for {
		if _, err := stream.Next(); err != nil {
			return err
		}
	}
}

// begin starts a stream. On a busy machine a member's first bytes can take longer than
// the StallTimeout of a test.
func begin(t *testing.T, cli *client.Client, member client.MemberStatus) *client.SnapshotStream {
	t.Helper()
	var err error
	for range 20 {
		var stream *client.SnapshotStream
		if stream, err = cli.Stream(t.Context(), member); err == nil {
			t.Cleanup(func() { stream.Close() })
			return stream
		}
		if !errors.Is(err, client.ErrStalled) {
			break
		}
	}
	t.Fatal(err)
	return nil
}

func streamStalls(t *testing.T, proxy *storetest.Proxy, config client.Config) {
	config.StallTimeout = 500 * time.Millisecond
	cli := dial(t, config)
	s := survey(t, cli)
	proxy.StallAfter(5 << 20)
	stream := begin(t, cli, s.Members[0])
	began := time.Now()
	err := drain(stream)
	if !errors.Is(err, client.ErrStalled) || !strings.Contains(err.Error(), "member one") || !strings.Contains(err.Error(), "bytes received") {
		t.Errorf("got %v", err)
	}
	if took := time.Since(began); took > client.DefaultStallTimeout/2 {
		t.Errorf("noticing took %s", took)
	}
	// A stall before the first byte is noticed too.
	_, err = cli.Stream(t.Context(), s.Members[0])
	require.ErrorIs(t, err, client.ErrStalled, "stalled from the start")
}

// A member that sends a little all the time holds its read transaction as one does
// that sends nothing.
func streamTrickles(t *testing.T, proxy *storetest.Proxy, config client.Config) {
	config.StallTimeout, config.MinStreamRate = time.Second, 8<<20
	cli := dial(t, config)
	stream := begin(t, cli, survey(t, cli).Members[0])
	proxy.StallAfter(1)
	pumped := make(chan struct{})
	defer func() { <-pumped }()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		defer close(pumped)
		defer proxy.Resume()
		for tick := time.NewTicker(20 * time.Millisecond); ctx.Err() == nil; <-tick.C { // 16 KiB each time
			proxy.StallAfter(1)
		}
	}()
	before := proxy.Forwarded()
	if err := drain(stream); !errors.Is(err, client.ErrStalled) || !strings.Contains(err.Error(), "8388608 are the least") {
		t.Errorf("got %v", err)
	}
	if n := proxy.Forwarded() - before; n < 32<<10 {
		t.Errorf("%d bytes came: that is silence", n)
	}
}

// A reader that pauses for longer than StallTimeout is no stall.
func streamSlowReader(t *testing.T, _ *storetest.Proxy, config client.Config) {
	config.StallTimeout = time.Second
	cli := dial(t, config)
	stream := begin(t, cli, survey(t, cli).Members[0])
	_, err := stream.Next()
	require.NoError(t, err)
	time.Sleep(config.StallTimeout * 3 / 2)
	require.ErrorIs(t, drain(stream), io.EOF)
}

func streamCut(t *testing.T, proxy *storetest.Proxy, config client.Config) {
	cli := dial(t, config)
	stream := begin(t, cli, survey(t, cli).Members[0])
	proxy.Cut()
	if err := drain(stream); !errors.Is(err, client.ErrUnreachable) || !strings.Contains(err.Error(), "member one") || !strings.Contains(err.Error(), "the connection broke") {
		t.Errorf("got %v", err)
	}
}

func streamCancelled(t *testing.T, _ *storetest.Proxy, config client.Config) {
	cli := dial(t, config)
	member := survey(t, cli).Members[0]
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	stream, err := cli.Stream(ctx, member)
	require.NoError(t, err)
	cancel(why)
	require.ErrorIs(t, drain(stream), why)
	stream, err = cli.Stream(t.Context(), member)
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, stream.Close())
	}
	require.ErrorIs(t, drain(stream), context.Canceled, "after Close")
}

// While nobody calls Next, no more than the flow control windows is taken from
// the member.
func streamReadsAheadWithinBounds(t *testing.T, proxy *storetest.Proxy, config client.Config) {
	cli := dial(t, config)
	stream := begin(t, cli, survey(t, cli).Members[0])
	var before int64 = -1
	for deadline := time.Now().Add(10 * time.Second); proxy.Forwarded() != before; time.Sleep(200 * time.Millisecond) {
		before = proxy.Forwarded()
		if time.Now().After(deadline) {
			t.Fatal("bytes keep coming although nobody reads")
		}
	}
	// The proxy's own socket buffers hold some megabytes of it.
	if before > 10<<20 {
		t.Errorf("%d bytes were read ahead", before)
	}
	require.ErrorIs(t, drain(stream), io.EOF)
	if after := proxy.Forwarded(); after < 20<<20 {
		t.Errorf("%d bytes in all", after)
	}
}

// A stream that is held sends no more than fits into its window and the member's buffers,
// however long it is held, and then goes on to its end; it needs the same login and
// certificates as all else.
func TestHeldStream(t *testing.T) {
	t.Parallel()
	c := storetest.Start(t, storetest.Options{Version: "3.6", TLS: true, Auth: true})
	c.Fill(t, storetest.Load{Keys: 1000, ValueSize: 8 << 10})
	proxy := storetest.NewProxy(t, "127.0.0.1", strings.TrimPrefix(c.Endpoints()[0], "https://"))
	config := c.ClientConfig()
	config.Endpoints = []string{"https://" + proxy.Addr()}
	cli := dial(t, config)
	member := survey(t, cli).Members[0]
	before := proxy.Forwarded()
	stream, err := cli.HeldStream(t.Context(), member)
	require.NoError(t, err)
	t.Cleanup(func() { stream.Close() })
	size := stream.Size()
	_, err = stream.Next()
	require.NoError(t, err)
	for range 20 { // the member is asked on another connection, and answers: time passes for both
		_, err := cli.CountKeys(t.Context(), member, 0)
		require.NoError(t, err)
	}
	if sent := proxy.Forwarded() - before; sent > 256<<10 || size < 8<<20 {
		t.Errorf("%d bytes were sent of a database of %d", sent, size)
	}
	if got := stream.Size(); got != size {
		t.Errorf("it was of %d bytes, and is of %d", size, got)
	}
	require.ErrorIs(t, drain(stream), io.EOF)

	other := member
	other.MemberID++
	_, err = cli.HeldStream(t.Context(), other)
	require.ErrorContains(t, err, "now answers as member")
}
