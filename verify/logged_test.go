package verify_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/verify"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay/logtest"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// logged is a repository of a log that was made by hand, and of backups that are
// what etcd makes of it.
type logged struct {
	*testing.T
	sink    *counting
	repo    *repository.Repository
	id      repository.TimelineID
	entries []raftlog.Entry // entry i has index i+1
}

// counting counts how often each object was opened.
type counting struct {
	sinks.Sink
	mu    sync.Mutex
	opens map[string]int
}

func (c *counting) Open(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	c.mu.Lock()
	c.opens[name]++
	c.mu.Unlock()
	return c.Sink.Open(ctx, name, offset, length)
}

func newLogged(t *testing.T) *logged {
	t.Helper()
	return newLoggedOn(t, sinktest.NewMemory())
}

func newLoggedOn(t *testing.T, s sinks.Sink) *logged {
	t.Helper()
	l := &logged{T: t, sink: &counting{Sink: s, opens: map[string]int{}}, id: repository.TimelineID{ClusterID: 7, N: 1}}
	var err error
	l.repo, err = repository.Init(t.Context(), l.sink, time.Now())
	l.must(err)
	l.must(l.repo.OpenTimeline(t.Context(), repository.Timeline{Format: 1, ID: l.id, Created: time.Now(), Reason: "test"}))
	l.entries = logtest.Begin(t)
	return l
}

func (l *logged) must(err error) {
	l.Helper()
	require.NoError(l, err)
}

// puts appends writes of n keys.
func (l *logged) puts(n int) {
	for i := range n {
		l.put(fmt.Sprintf("/key/%d", i), fmt.Sprint(len(l.entries)))
	}
}

func (l *logged) put(key, value string) {
	l.entries = append(l.entries, logtest.Entry(l, uint64(len(l.entries)+1), logtest.Put(key, value)))
}

// backup stores the state after the last entry so far; its ID is given back.
func (l *logged) backup() string {
	l.Helper()
	image, _ := logtest.Database(l, l.entries)
	at := time.Date(2026, 1, 2, 3, 0, len(l.entries), 0, time.UTC)
	id := fmt.Sprintf("%s-%06x", at.Format("20060102T150405Z"), len(l.entries))
	logtest.Full(l, l.repo, image, logtest.Stored{Timeline: l.id, ID: id, Started: at, Version: "3.6.11"})
	return id
}

// archive stores all entries, in segments of ten.
func (l *logged) archive() {
	l.Helper()
	logtest.ArchiveAll(l, l.repo, l.id, l.entries, 10, codec.Options{})
}

// last is the name of the log's newest segment.
func (l *logged) last() string {
	return repository.SegmentName{Timeline: l.id, First: uint64(len(l.entries)-1)/10*10 + 1}.String()
}

// flip alters the last byte of an object.
func (l *logged) flip(name string) {
	l.Helper()
	data, err := sinks.Get(l.Context(), l.sink, name, 1<<30)
	l.must(err)
	data = bytes.Clone(data)
	data[len(data)-1] ^= 1
	l.must(l.sink.Delete(l.Context(), name))
	_, err = sinks.Put(l.Context(), l.sink, name, data, sinks.CreateOptions{})
	l.must(err)
}

// drills verifies up to a drill; the scratch folder is to be empty afterwards.
// The drills are by the backup's ID.
func (l *logged) drills(backup string) (*report.Report, map[string]report.Check) {
	l.Helper()
	scratch := l.TempDir()
	clear(l.sink.opens)
	r, err := verify.Repository(l.Context(), l.repo, verify.Request{Backup: backup, Level: report.Drill, ScratchDir: scratch})
	l.must(err)
	if left, err := os.ReadDir(scratch); err != nil || len(left) > 0 {
		l.Errorf("the scratch folder has %v (%v)", left, err)
	}
	all := map[string]report.Check{}
	for _, c := range r.Checks {
		if c.Level == report.Drill {
			all[c.Object[strings.LastIndex(c.Object, "/")+1:]] = c
		}
	}
	return r, all
}
