package repository_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
)

// A document that readers would refuse is not written.
func TestLargeDocumentIsNotWritten(t *testing.T) {
	s := sinktest.NewMemory()
	r := jobRepo(t, s)
	pin := repository.Pin{Timeline: repository.TimelineID{ClusterID: 1, N: 1}, Backup: "20260102T150405Z-000001"}
	for what, reason := range map[string]string{"long": strings.Repeat("x", repository.DocumentLimit), "many values": strings.Repeat(",", 5000)} {
		pin.Reason = reason
		err := r.WritePin(t.Context(), pin)
		if err == nil || !strings.Contains(err.Error(), "pins/") || !strings.Contains(err.Error(), "than the") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if all, err := r.Pins(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("%v, %v", all, err)
	}
}

// mostRead counts the bytes that are asked for.
type mostRead struct {
	sinks.Sink
	bytes int
}

func (m *mostRead) Open(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	r, err := m.Sink.Open(ctx, name, offset, length)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(r)
	m.bytes = max(m.bytes, len(data))
	return io.NopCloser(bytes.NewReader(data)), errors.Join(err, r.Close())
}

// What is no document is damaged by its own fault alone: it is not read whole, and
// its neighbours are what they were.
func TestHostileDocuments(t *testing.T) {
	memory := sinktest.NewMemory()
	r := jobRepo(t, memory)
	timeline := repository.TimelineID{ClusterID: 1, N: 1}
	good := repository.Pin{Timeline: timeline, Backup: "20260102T150405Z-000001", Reason: "mine"}
	require.NoError(t, r.WritePin(t.Context(), good))
	seal := func(v any) []byte {
		data, err := repository.Seal(v)
		require.NoError(t, err)
		return data
	}
	hostile := [][]byte{
		bytes.Repeat([]byte(" "), 8<<20),
		seal(map[string]any{"format": "one"}),
		seal(map[string]any{"format": 1, "timeline": []int{1}}),
		seal(map[string]any{"format": 99}),
		seal([]int{}),
	}
	for i, data := range hostile {
		name := repository.PinName(timeline, "20260102T150406Z-00000"+string(rune('1'+i)))
		_, err := sinks.Put(t.Context(), memory, name, data, sinks.CreateOptions{})
		require.NoError(t, err)
	}
	counted := &mostRead{Sink: memory}
	r, err := repository.Open(t.Context(), counted)
	require.NoError(t, err)
	all, err := r.Pins(t.Context())
	mine := repository.PinName(timeline, good.Backup)
	if err != nil || len(all) != 1+len(hostile) || all[mine] == nil || all[mine].Reason != "mine" {
		t.Fatalf("%+v, %v", all, err)
	}
	delete(all, mine)
	for _, p := range all {
		if p.Timeline != timeline || p.Backup == "" || !strings.Contains(p.Reason, "cannot be read") {
			t.Errorf("%+v", p)
		}
	}
	if counted.bytes != repository.DocumentLimit+1 {
		t.Errorf("%d bytes of one document were asked for", counted.bytes)
	}
}
