package walfile

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"

	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// allOf is what etcd's own reader gives of a log, all in memory.
func allOf(t testing.TB, dir string) []raftlog.Entry {
	t.Helper()
	w, err := wal.OpenForRead(nil, dir, &walpb.Snapshot{})
	check(t, err)
	_, _, list, err := w.ReadAll()
	check(t, err)
	var out []raftlog.Entry
	for _, e := range list {
		out = append(out, raftlog.Entry{Index: e.GetIndex(), Term: e.GetTerm(), Type: e.GetType(), Data: e.Data})
	}
	return out
}

// follow polls until stop is closed, and once more then. What it gives was
// released as soon as the log itself recorded it as committed.
func follow(t testing.TB, dir string, stop <-chan struct{}) <-chan []raftlog.Entry {
	tail := openTail(t, dir, TailOptions{})
	out := make(chan []raftlog.Entry, 1)
	go func() {
		var got []raftlog.Entry
		defer func() { out <- got }()
		for last := false; ; {
			if err := tail.Poll(t.Context()); err != nil {
				t.Error(err)
				return
			}
			got = append(got, tail.Release(tail.Recorded())...)
			if o := tail.Overwritten(); o > 0 {
				t.Errorf("overwritten: %d", o)
			}
			if last {
				return
			}
			select {
			case <-stop:
				last = true
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	return out
}

func puts(t testing.TB, client *clientv3.Client, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i := range n {
		for ; ; time.Sleep(50 * time.Millisecond) {
			_, err := client.Put(ctx, fmt.Sprintf("/key/%04d", i), strings.Repeat("v", i))
			if err == nil {
				break
			}
			if ctx.Err() != nil { // an election of busy members may refuse one try
				t.Fatal(err)
			}
		}
	}
}

// TestVersions reads the logs of real members of each version, while they are
// written and afterwards, and compares with etcd's own reader.
func TestVersions(t *testing.T) {
	t.Parallel()
	for _, version := range storetest.Some(storetest.Versions()...) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := storetest.Start(t, storetest.Options{Version: version, ExtraArgs: []string{"--snapshot-count=50"}})
			dir := filepath.Join(c.Member(0).DataDir, "member", "wal")
			stop := make(chan struct{})
			followed := follow(t, dir, stop)
			client := c.Client(t)
			puts(t, client, 150)
			status, err := client.Status(t.Context(), c.Endpoints()[0])
			check(t, err)
			c.Kill(0)
			close(stop)
			got := <-followed

			l, err := Open(dir)
			check(t, err)
			if want := (Identity{status.Header.ClusterId, status.Header.MemberId}); l.Identity() != want {
				t.Fatalf("log of %s, want %s", l.Identity(), want)
			}
			s, err := l.Summary(t.Context())
			check(t, err)
			want := allOf(t, dir)
			if s.LastIndex < status.RaftIndex || s.LastTerm != status.RaftTerm || s.Snapshot.Index < 100 || s.FirstIndex != 1 {
				t.Fatalf("summary %+v, status %v", s, status)
			}
			entries, err := entriesIn(t, dir, 0)
			check(t, err)
			wantEntries(t, entries, want)
			if len(got) < 150 {
				t.Fatalf("%d entries were followed", len(got))
			}
			wantEntries(t, got, want[:len(got)])
		})
	}
}

// TestLeadersSnapshot lets a member fall so far behind that the leader sends it a
// snapshot: the records that real servers write then are the ones that a gap is
// known by.
func TestLeadersSnapshot(t *testing.T) {
	t.Parallel()
	versions := []string{"3.6", "3.7"}
	if testing.Short() {
		versions = versions[1:]
	}
	for _, version := range versions { // older ones keep 5000 entries, whatever they are set to
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := storetest.Start(t, storetest.Options{Version: version, Members: 3, ExtraArgs: []string{"--snapshot-count=50", "--snapshot-catchup-entries=5"}})
			status, err := c.Client(t).Status(t.Context(), c.Endpoints()[0])
			check(t, err)
			behind := 0
			if status.Leader == status.Header.MemberId { // a follower: an election would cost a second
				behind = 1
			}
			dir := filepath.Join(c.Member(behind).DataDir, "member", "wal")
			puts(t, c.Client(t), 20)
			tail := openTail(t, dir, TailOptions{})
			// The other two are a quorum without it.
			for began := time.Now(); tail.Last() < 20 && time.Since(began) < time.Minute; time.Sleep(5 * time.Millisecond) {
				poll(t, tail)
			}
			c.Kill(behind)
			puts(t, c.Client(t, 1-behind, 2), 200)
			c.Restart(t, behind)
			var gap *GapError
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for gap == nil {
				if err := tail.Poll(ctx); err != nil && !errors.As(err, &gap) {
					t.Fatal(err)
				}
				if ctx.Err() != nil {
					t.Fatal("no gap is reported")
				}
				time.Sleep(5 * time.Millisecond)
			}
			if gap.After < 20 || gap.Next < gap.After+100 || tail.Last() != gap.After {
				t.Fatalf("%v, pending to %d", gap, tail.Last())
			}
			puts(t, c.Client(t, 2), 10) // the gap is reported before there is any entry behind it
			got := tail.Release(tail.Last())
			for len(got) == 0 || got[len(got)-1].Index < gap.Next+4 {
				check(t, tail.Poll(ctx))
				got = append(got, tail.Release(tail.Recorded())...)
				if ctx.Err() != nil {
					t.Fatalf("nothing comes after %v", gap)
				}
				time.Sleep(5 * time.Millisecond)
			}
			for i := range c.Size() { // a clean end takes seconds
				c.Kill(i)
			}
			whole := allOf(t, filepath.Join(c.Member(2).DataDir, "member", "wal"))
			for _, e := range got {
				if e.Index > gap.After && e.Index < gap.Next || !e.Equal(whole[e.Index-1]) {
					t.Fatalf("%s, the leader's log has %s", e, whole[e.Index-1])
				}
			}
			l, err := Open(dir)
			check(t, err)
			s, err := l.Summary(t.Context())
			check(t, err)
			if !slices.Equal(s.Gaps, []GapError{*gap}) {
				t.Fatalf("gaps %v, want %v", s.Gaps, gap)
			}
		})
	}
}
