package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/walreplay"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

// figure states what a test has counted: the soak's report keeps it.
func figure(t testing.TB, what string, n any) {
	t.Helper()
	t.Attr(strings.ReplaceAll(what, " ", "-"), fmt.Sprint(n))
}

// applied is how far a member has come.
func applied(t testing.TB, c *storetest.Cluster, member int) uint64 {
	t.Helper()
	s, err := c.Client(t, member).Status(t.Context(), c.Member(member).ClientURL)
	require.NoError(t, err, "status of %s", c.Member(member).Name)
	return s.RaftAppliedIndex
}

// settled waits until no member applies anything any more, what was sent and
// given up included, and says how far they are.
func settled(t testing.TB, c *storetest.Cluster, members ...int) (index uint64) {
	t.Helper()
	since := time.Now()
	storetest.Eventually(t, "the members have applied all there is", func() error {
		for _, i := range members {
			if now := applied(t, c, i); now != index {
				since, index = time.Now(), max(index, now)
			}
		}
		if quiet := time.Since(since); quiet < 500*time.Millisecond {
			return fmt.Errorf("index %d was reached %s ago", index, quiet)
		}
		return nil
	})
	return index
}

// awaitArchived waits until the newest timeline can be restored up to an index,
// without a gap behind its first full snapshot.
func (u *user) awaitArchived(t testing.TB, repo string, index uint64) walreplay.Range {
	t.Helper()
	var newest walreplay.Range
	storetest.Eventually(t, fmt.Sprintf("index %d is archived", index), func() error {
		ranges := u.list(t, repo).Ranges
		if n := len(ranges); n > 0 {
			if newest = ranges[n-1]; !newest.Gap && newest.LastIndex >= index {
				return nil
			}
		}
		return fmt.Errorf("%+v", ranges)
	})
	return newest
}

// expectOneRange wants one timeline, and everything in it restorable from its
// first full snapshot on.
func expectOneRange(t testing.TB, r catalogReport) {
	t.Helper()
	ranges := r.Ranges
	if len(ranges) > 0 && ranges[0].Gap { // what was written before the first full snapshot
		ranges = ranges[1:]
	}
	if len(r.Timelines) != 1 || len(ranges) != 1 || ranges[0].Gap || len(r.Unusable) != 0 {
		t.Errorf("want one timeline with one range and no gap: timelines %+v, ranges %+v, unusable %+v", r.Timelines, r.Ranges, r.Unusable)
	}
}

// rebuild restores a point into a plain database file, with the revisions that
// it had.
func (u *user) rebuild(t testing.TB, source ...string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "rebuilt.db")
	u.Must(t, exitOK, slices.Concat([]string{"restore", "--to-snapshot", to, "--bump-revision", "off"}, source)...)
	return to
}

// hashOf is the HashKV that etcd would serve from a database file.
func hashOf(t testing.TB, path string) snapshot.HashKV {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	info, err := f.Stat()
	require.NoError(t, err)
	// What follows the last page is the file's SHA-256.
	h, err := snapshot.ReadHashKV(t.Context(), f, info.Size()/4096*4096)
	require.NoError(t, err, path)
	return h
}

// expectObserved wants a database to be what a live member had hashed.
func expectObserved(t testing.TB, path, what string, want storetest.Observation) {
	t.Helper()
	got := hashOf(t, path)
	if got.Hash != want.Hash || got.Revision != want.Revision || max(got.CompactedRevision, 0) != max(want.CompactedRevision, 0) {
		t.Errorf("%s: %+v, a live member had %+v", what, got, want)
	}
}

// newestKeys reads what each key of a snapshot, or of a stopped member's database, was at
// last, with its mod revision; deleted ones are left out.
func newestKeys(path string) (all map[string]storetest.Ack, err error) {
	db, err := bbolt.Open(path, 0o400, &bbolt.Options{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	all = map[string]storetest.Ack{}
	return all, db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("key")).ForEach(func(k, v []byte) error {
			var kv mvccpb.KeyValue
			if err := proto.Unmarshal(v, &kv); err != nil {
				return err
			}
			if len(k) == 18 { // a tombstone
				delete(all, string(kv.Key))
			} else {
				all[string(kv.Key)] = storetest.Ack{Key: string(kv.Key), Value: string(kv.Value), Revision: kv.ModRevision}
			}
			return nil
		})
	})
}

// expectAcks wants every write that was acknowledged in a database, as it was.
func expectAcks(t testing.TB, path, what string, acks []storetest.Ack) {
	t.Helper()
	if len(acks) == 0 {
		t.Errorf("%s: no write was acknowledged", what)
	}
	found, err := newestKeys(path)
	require.NoError(t, err)
	missing := 0
	for _, a := range acks {
		if found[a.Key] != a {
			if missing++; missing == 1 {
				t.Errorf("%s: acknowledged %+v, restored %+v", what, a, found[a.Key])
			}
		}
	}
	if missing > 1 {
		t.Errorf("%s: %d of %d acknowledged writes are missing or different", what, missing, len(acks))
	}
}

// openRepo opens a repository on disk.
func openRepo(t testing.TB, url string) *repository.Repository {
	t.Helper()
	sink, err := disk.New(strings.TrimPrefix(url, "file://"))
	require.NoError(t, err)
	t.Cleanup(func() { sink.Close() })
	repo, err := repository.Open(t.Context(), sink)
	require.NoError(t, err)
	return repo
}

// openLog opens the archived log of a timeline in a repository on disk.
func openLog(t testing.TB, repo string, timeline repository.TimelineID) *segment.Log {
	t.Helper()
	log, err := segment.OpenLog(t.Context(), openRepo(t, repo), timeline, nil)
	require.NoError(t, err)
	return log
}

// archivedEntries reads all that is archived of a timeline, in one range.
func archivedEntries(t testing.TB, repo string, timeline repository.TimelineID) []raftlog.Entry {
	t.Helper()
	log := openLog(t, repo, timeline)
	var all []raftlog.Entry
	for _, s := range log.Coverage() {
		for e, err := range log.Entries(t.Context(), s.FirstIndex, s.LastIndex) {
			require.NoError(t, err, "timeline %s, after %d entries", timeline, len(all))
			all = append(all, e)
		}
	}
	return all
}

// expectNever wants no archived entry to hold a text; in a WAL directory it has
// to be, or nothing was proved.
func expectNever(t testing.TB, repo string, timeline repository.TimelineID, text string) {
	t.Helper()
	for _, e := range archivedEntries(t, repo, timeline) {
		if bytes.Contains(e.Data, []byte(text)) {
			t.Errorf("%s holds %q, which was never committed", e, text)
		}
	}
}

// without are the numbers below n but one.
func without(n, one int) []int {
	var all []int
	for i := range n {
		if i != one {
			all = append(all, i)
		}
	}
	return all
}
