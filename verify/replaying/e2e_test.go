package replaying

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/walfile"
)

// loaded is a cluster under load with backups and, once it was stopped, its log.
type loaded struct {
	*rig
	cluster *storetest.Cluster
	backups []*snapshot.Manifest
	entries []raftlog.Entry
}

func (l *loaded) take(t *testing.T, members ...int) *snapshot.Manifest {
	t.Helper()
	config := l.cluster.ClientConfig()
	config.User, config.Password = storetest.RootUser, storetest.RootPassword
	if len(members) > 0 {
		config.Endpoints = nil
		for _, i := range members {
			config.Endpoints = append(config.Endpoints, l.cluster.Member(i).ClientURL)
		}
	}
	// Authentication, alarms and leaders come and go.
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		m, err := l.takeOnce(t, config)
		if err == nil {
			return m
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func (l *loaded) takeOnce(t *testing.T, config client.Config) (*snapshot.Manifest, error) {
	client, err := client.Dial(t.Context(), config)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	r, err := snapshot.Take(t.Context(), snapshot.Request{Client: client, Sink: l.repo.Sink(), Tool: "test", HashKV: true})
	if err != nil {
		return nil, err
	}
	return r.Manifest, nil
}

// readLog stops the members and archives the log of one of them.
func (l *loaded) readLog(t *testing.T, member int) {
	t.Helper()
	l.cluster.StopAll()
	log, err := walfile.Open(filepath.Join(l.cluster.Member(member).DataDir, "member", "wal"))
	require.NoError(t, err)
	for e, err := range log.Entries(t.Context(), 0) {
		require.NoError(t, err)
		e.Data = bytes.Clone(e.Data)
		l.entries = append(l.entries, e)
	}
	l.archive(l.entries, 500)
}

func load(t *testing.T, version string) *loaded {
	t.Helper()
	l := &loaded{cluster: storetest.Start(t, storetest.Options{Version: version, Members: 3, ExtraArgs: storetest.MixedArgs()})}
	l.rig = openRig(t, filepath.Join(t.TempDir(), "repo"), repository.TimelineID{})
	mixed := storetest.StartMixed(t, l.cluster, storetest.MixedOptions{Ops: 1500, Seed: 5, Observations: 4})
	for _, part := range []float64{0.2, 0.5, 0.8} {
		mixed.WaitFor(t, part)
		l.backups = append(l.backups, l.take(t))
	}
	mixed.Wait(t)
	// The last value of a key of ours, to be altered.
	client := l.cluster.Client(t)
	for i := range 3 {
		_, err := client.Put(t.Context(), "/ours", fmt.Sprint("value ", i))
		require.NoError(t, err)
	}
	l.backups = append(l.backups, l.take(t))
	l.id = l.backups[0].Timeline
	// One member dies with entries that its database does not have yet.
	_, err := l.cluster.Client(t, 2).Put(t.Context(), "/tail", "acknowledged")
	require.NoError(t, err)
	l.cluster.Kill(2)
	for i := range 2 { // a quorum may have done without one of them so far
		l.cluster.WriteOut(t, i)
	}
	l.readLog(t, 0)
	return l
}

// The replay level with real members, under a load of every kind of operation:
// no false alarm, and what was altered is found with its key and revision.
func TestPromise7RealMembers(t *testing.T) {
	for _, version := range storetest.Some("3.5", "3.7") {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			l := load(t, version)
			for _, m := range l.backups {
				c := l.check(m.ID)
				expectPassed(t, c)
				t.Log(c.Compared)
			}
			t.Run("data directory", func(t *testing.T) { l.dataDir(t, 1) })
			t.Run("data directory of a killed member", func(t *testing.T) { l.dataDir(t, 2) })
		})
	}
}

// dataDir: a stopped member's own database and log, which are not touched.
func (l *loaded) dataDir(t *testing.T, member int) {
	dir := l.cluster.Member(member).DataDir
	before := storetest.Fingerprint(t, dir)
	checks, err := CheckDataDir(t.Context(), dir, "", l.o)
	if err != nil || len(checks) != 2 {
		t.Fatalf("%v, %v", checks, err)
	}
	for _, c := range checks {
		expectPassed(t, c)
	}
	t.Log(checks[0].Compared)
	if after := storetest.Fingerprint(t, dir); fmt.Sprint(before) != fmt.Sprint(after) {
		t.Error("the member's files were changed")
	}
	if member == 2 { // its database may not have the key to be altered yet
		return
	}
	copied := filepath.Join(t.TempDir(), "member")
	require.NoError(t, os.CopyFS(copied, os.DirFS(dir)))
	changeFile(t, filepath.Join(copied, "member", "snap", "db"), func(tx *bbolt.Tx) error { return alterValue(tx, "/ours", "value 9") })
	checks, err = CheckDataDir(t.Context(), copied, "", l.o)
	if err != nil || len(checks) != 2 {
		t.Fatalf("%v, %v", checks, err)
	}
	expectPassed(t, checks[0])
	expect(t, checks[1], report.KindDifference, `key "/ours"`, "it is another one")
}

// A member whose database has become another one than the others', and which the
// second backup is read from, is found with the first key and revision.
func TestDivergentMember(t *testing.T) {
	for _, version := range storetest.Some("3.6") {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			l := &loaded{cluster: storetest.Start(t, storetest.Options{Version: version, Members: 3})}
			l.rig = openRig(t, filepath.Join(t.TempDir(), "repo"), repository.TimelineID{})
			client := l.cluster.Client(t, 0)
			put := func(key, value string) int64 {
				t.Helper()
				r, err := client.Put(t.Context(), key, value)
				require.NoError(t, err)
				return r.Header.Revision
			}
			put("/a", "1")
			l.cluster.Stop(2)
			first := l.take(t, 0)
			l.cluster.Restart(t, 2)
			l.cluster.WaitReady(t)
			at := put("/a", "2")
			put("/b", "1")
			if _, err := l.cluster.Client(t, 2).Get(t.Context(), "/a"); err != nil { // linearizable: it has it
				t.Fatal(err)
			}
			l.cluster.Stop(2)
			changeFile(t, filepath.Join(l.cluster.Member(2).DataDir, "member", "snap", "db"), func(tx *bbolt.Tx) error { return alterValue(tx, "/a", "!") })
			l.cluster.Restart(t, 2)
			l.cluster.WaitReady(t)
			put("/b", "2")
			_, err := l.cluster.Client(t, 2).Get(t.Context(), "/a")
			require.NoError(t, err)
			second := l.take(t, 2)
			good := l.take(t, 0)
			if second.Source.MemberID == good.Source.MemberID || first.Timeline != second.Timeline {
				t.Fatalf("sources %+v and %+v", second.Source, good.Source)
			}
			l.id = first.Timeline
			l.readLog(t, 0)
			c := l.check(second.ID)
			expect(t, c, report.KindDifference, fmt.Sprintf("key %q, revision %d", "/a", at), "it is another one")
			if len(c.Findings) != 1 {
				t.Errorf("findings %v", c.Findings)
			}
			t.Log(c.Compared)
			expectPassed(t, l.check(good.ID), "with what backup ")
		})
	}
}
