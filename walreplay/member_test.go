package walreplay

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/store"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/walreplay/engine"
	"github.com/requorum/requorum/walreplay/logtest"
)

// survivor is the data directory of a member that was killed right after its
// last acknowledgement, and what it had acknowledged.
type survivor struct {
	dir      string
	revision int64
	hash     snapshot.HashKV
}

func startAndKill(t *testing.T, members int) survivor {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	root := t.TempDir()
	c, err := store.StartCluster(ctx, store.ClusterConfig{
		DataDir: root, Members: members, FreePorts: true, Settings: store.Settings{LogFile: os.DevNull},
	})
	require.NoError(t, err)
	t.Cleanup(c.Kill)
	client, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	require.NoError(t, err)
	defer client.Close()
	s := survivor{}
	// An election of three busy members may refuse one try.
	write := func(op clientv3.Op) {
		t.Helper()
		for ; ; time.Sleep(50 * time.Millisecond) {
			resp, err := client.Do(ctx, op)
			switch {
			case err == nil && op.IsPut():
				s.revision = resp.Put().Header.Revision
				return
			case err == nil:
				s.revision = resp.Del().Header.Revision
				return
			case ctx.Err() != nil:
				t.Fatal(err)
			}
		}
	}
	for i := range 40 {
		write(clientv3.OpPut("k"+string(rune('a'+i%7)), strings.Repeat("v", i)))
	}
	write(clientv3.OpDelete("ka"))
	// Every member, so that the first one holds it too.
	for _, endpoint := range c.Endpoints() {
		for s.hash.Revision = 0; s.hash.Revision != s.revision; {
			h, err := client.HashKV(ctx, endpoint, 0)
			require.NoError(t, err)
			s.hash = snapshot.HashKV{Hash: h.Hash, Revision: h.Header.Revision, CompactedRevision: h.CompactRevision}
		}
	}
	write(clientv3.OpPut("last", "acknowledged"))
	c.Kill()
	found, err := filepath.Glob(filepath.Join(root, "*", "member"))
	require.NoError(t, err)
	if len(found) == 0 {
		found = []string{filepath.Join(root, "member")}
	}
	s.dir = filepath.Dir(found[0])
	return s
}

// Promises 2 and 3 of the design: a survivor's log is replayed to its very end,
// and its files are only read. One of three is unproven, the only voter is not.
func TestPromise2And3DataDir(t *testing.T) {
	for _, members := range []int{1, 3} {
		s := startAndKill(t, members)
		before := storetest.Fingerprint(t, s.dir)
		h, err := OpenDataDir(t.Context(), s.dir, "")
		require.NoError(t, err)
		o := Options{ScratchDir: t.TempDir(), Engine: BothEngines}
		p, err := h.Resolve(t.Context(), Target{}, "", o)
		require.NoError(t, err)
		r, err := h.Rebuild(t.Context(), p, o)
		require.NoError(t, err)
		facts, _ := r.Facts(t.Context())
		if members == 1 && facts.Revision != s.revision {
			t.Errorf("revision %d, acknowledged was %d", facts.Revision, s.revision)
		}
		if unproven := r.Recipe.Unproven != ""; unproven != (members > 1) {
			t.Errorf("%d members: recipe %+v", members, r.Recipe)
		}
		if r.HasHash() {
			t.Error("a bare db file passes for one with a checksum")
		}
		again, err := h.Repeat(t.Context(), r.Recipe, o)
		if err != nil {
			t.Errorf("the recipe of a data directory: %v", err)
		} else if err := again.Close(); err != nil {
			t.Error(err)
		}
		p, err = h.Resolve(t.Context(), Target{Kind: BeforeKey, Key: "ka"}, "", o)
		if err != nil || p.Found.Burst.DeletedKeys != 1 {
			t.Errorf("before the deletion of ka: %+v, %v", p, err)
		}
		_, err = h.Resolve(t.Context(), Target{Kind: AtTime, Time: time.Now()}, "", o)
		require.ErrorContains(t, err, "give an index", "a time")
		require.NoError(t, errors.Join(r.Close(), h.Close()))
		if after := storetest.Fingerprint(t, s.dir); !maps.Equal(before, after) {
			t.Error("the survivor's files were changed")
		}
	}
}

// TestMemberInPlace: the database of a member is replayed in bulk from where it lies, and is
// copied only for etcd's applier; both come to the same.
func TestMemberInPlace(t *testing.T) {
	s := startAndKill(t, 1)
	before := storetest.Fingerprint(t, s.dir)
	h, err := OpenDataDir(t.Context(), s.dir, "")
	require.NoError(t, err)
	defer h.Close()
	var first *Recipe
	for _, o := range []Options{
		{},
		{SourceSettings: engine.SourceSettings{SourceVersion: "3.8.0"}}, // which the bulk engine refuses
		{Engine: EtcdEngine},
		{Engine: BothEngines},
	} {
		o.ScratchDir = t.TempDir()
		p, err := h.Resolve(t.Context(), Target{}, "", o)
		require.NoError(t, err)
		r, err := h.replay(t.Context(), p.Base, PhaseReplay, o, engine.RunOptions{Last: p.Last})
		require.NoError(t, err)
		if lies := filepath.Dir(r.base) == filepath.Join(s.dir, "member", "snap"); lies == (o.Engine != "") || (r.notBulk != nil) != (o.SourceVersion != "") {
			t.Errorf("%+v: replayed from %s, %v", o, r.base, r.notBulk)
		}
		require.NoError(t, r.scratch.Remove())
		out, err := h.Rebuild(t.Context(), p, o)
		require.NoError(t, err)
		if first == nil {
			first = out.Recipe
		}
		if err := out.Recipe.Check(first); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
		require.NoError(t, out.Close())
	}
	if after := storetest.Fingerprint(t, s.dir); !maps.Equal(before, after) {
		t.Error("the survivor's files were changed")
	}
}

// Without a database, a log from the first entry on gives the same; the log of a
// restored cluster does not begin with all there was, and is refused.
func TestDataDirFromNothing(t *testing.T) {
	s := startAndKill(t, 1)
	db := filepath.Join(s.dir, "member", "snap", "db")
	require.NoError(t, os.Remove(db))
	o := Options{ScratchDir: t.TempDir(), Engine: BothEngines}
	h, err := OpenDataDir(t.Context(), s.dir, "")
	require.NoError(t, err)
	p, err := h.Resolve(t.Context(), Target{Kind: AtRevision, Revision: s.hash.Revision}, "", o)
	require.NoError(t, err)
	r, err := h.Rebuild(t.Context(), p, o)
	require.NoError(t, err)
	if got := r.Recipe.HashKV; got.Hash != s.hash.Hash || got.Revision != s.hash.Revision || got.CompactedRevision != s.hash.CompactedRevision {
		t.Errorf("HashKV %+v, the member served %+v", got, s.hash)
	}
	require.NoError(t, r.Close())
	logtest.RecordSnapshot(t, filepath.Join(s.dir, "member", "wal"), 1, 1)
	if _, err := OpenDataDir(t.Context(), s.dir, ""); !errors.Is(err, snapshot.ErrNoBackup) || !strings.Contains(err.Error(), "itself restored") {
		t.Errorf("the log of a restored cluster: %v", err)
	}
}

// Promise 4: damage in the middle of a member's log ends the restore, and what
// is before it can be asked for.
func TestDataDirDamaged(t *testing.T) {
	s := startAndKill(t, 1)
	require.NoError(t, os.Remove(filepath.Join(s.dir, "member", "snap", "db")))
	segments, err := filepath.Glob(filepath.Join(s.dir, "member", "wal", "*.wal"))
	if err != nil || len(segments) == 0 {
		t.Fatal(segments, err)
	}
	slices.Sort(segments)
	data, err := os.ReadFile(segments[0])
	require.NoError(t, err)
	at := strings.Index(string(data), "vvvvvvvvvvvvvvvvvvvv")
	if at < 0 {
		t.Fatal("no value in the log")
	}
	data[at] ^= 1
	require.NoError(t, os.WriteFile(segments[0], data, 0o600))
	o := Options{ScratchDir: t.TempDir(), Engine: BothEngines}
	h, err := OpenDataDir(t.Context(), s.dir, "")
	require.NoError(t, err)
	_, err = h.Resolve(t.Context(), Target{}, "", o)
	var log *LogError
	var damaged *snapshot.DamagedError
	if !errors.As(err, &log) || !errors.As(err, &damaged) || log.Good.Index == 0 {
		t.Fatalf("the end of a damaged log: %v", err)
	}
	p, err := h.Resolve(t.Context(), Target{Kind: AtIndex, Index: log.Good.Index}, "", o)
	require.NoError(t, err)
	r, err := h.Rebuild(t.Context(), p, o)
	require.NoError(t, err)
	require.NoError(t, r.Close())
}
