package host

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
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

// What the other side asks for in parts is bounded all together, and not for each
// request alone.
func TestRequestsAreBounded(t *testing.T) {
	t.Parallel()
	part := strings.Repeat("A", 512<<10)
	var sent atomic.Int64
	in := endless(t, func(n int) string {
		sent.Store(int64(n))
		return fmt.Sprintf(`{"id":%d,"action":"fetch","part":%q,"more":true}`+"\n", n%maxRequests+1, part)
	})
	err := newConversation(bufio.NewReader(in), io.Discard, nil).Serve(t.Context())
	if bytes := int(sent.Load()) * len(part) / 4 * 3; err == nil || !strings.Contains(err.Error(), "at once") || bytes > maxValue+2*len(part) {
		t.Errorf("%d bytes were held: %v", bytes, err)
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

// Data that is more than one line has, or less than that says, ends the conversation.
func TestRawDataIsBounded(t *testing.T) {
	t.Parallel()
	for _, raw := range []int{-1, piece + 1, 6} {
		in := strings.NewReader(fmt.Sprintf(`{"id":1,"raw":%d}`+"\nhello", raw))
		if err := newConversation(bufio.NewReader(in), io.Discard, nil).Serve(t.Context()); err == nil || errors.Is(err, errEnded) {
			t.Errorf("%d bytes: %v", raw, err)
		}
	}
}
