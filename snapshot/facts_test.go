package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.uber.org/zap"

	"github.com/requorum/requorum/snapshot/boltfile"
	"github.com/requorum/requorum/store/storetest"
)

// serverSnapshot takes a snapshot as the server streams it, without the
// trailer, which is what is left over from whole sectors.
func serverSnapshot(t *testing.T, client *clientv3.Client) []byte {
	t.Helper()
	stream, err := client.Snapshot(t.Context())
	require.NoError(t, err)
	b, err := io.ReadAll(stream)
	require.NoError(t, errors.Join(err, stream.Close()))
	return b[:len(b)-len(b)%512]
}

// What every version of etcd says of itself is what its snapshot's bytes say.
func TestFactsOfEveryVersion(t *testing.T) {
	for _, version := range storetest.Some(storetest.Versions()...) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			cluster := storetest.Start(t, storetest.Options{Version: version})
			client := cluster.Client(t)
			ctx := t.Context()
			for i := range 300 {
				_, err := client.Put(ctx, "key-"+strconv.Itoa(i%40), fmt.Sprint("value ", i))
				require.NoError(t, err)
			}
			_, err := client.Delete(ctx, "key-3")
			require.NoError(t, err)
			_, err = client.Compact(ctx, 150, clientv3.WithCompactPhysical())
			require.NoError(t, err)
			member := func() *pb.Member {
				list, err := client.MemberList(ctx)
				if err != nil || len(list.Members) != 1 {
					t.Fatalf("%v, %v", list, err)
				}
				return list.Members[0]
			}()
			_, err = client.AlarmDisarm(ctx, &clientv3.AlarmMember{})
			require.NoError(t, err)
			_, err = pb.NewMaintenanceClient(client.ActiveConnection()).Alarm(ctx, &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: member.ID, Alarm: pb.AlarmType_NOSPACE})
			require.NoError(t, err)
			enableAuth(t, client)
			authed := cluster.ClientConfig()
			client, err = clientv3.New(clientv3.Config{Endpoints: authed.Endpoints, Username: "root", Password: "secret", Logger: zap.NewNop()})
			require.NoError(t, err)
			defer client.Close()
			status, err := client.Status(ctx, authed.Endpoints[0])
			for deadline := time.Now().Add(time.Minute); err == nil && version >= "3.6" && status.StorageVersion != version+".0" && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
				status, err = client.Status(ctx, authed.Endpoints[0]) // it is written a while after the start; until then etcd guesses 3.5
			}
			require.NoError(t, err)
			hash, err := client.HashKV(ctx, authed.Endpoints[0], 0)
			require.NoError(t, err)

			db := serverSnapshot(t, client)
			facts, err := ReadFacts(ctx, bytes.NewReader(db), int64(len(db)))
			require.NoError(t, err)
			t.Logf("%+v", facts)
			if facts.Revision != status.Header.Revision || facts.CompactedRevision != hash.CompactRevision || hash.CompactRevision != 150 {
				t.Errorf("revision %d and compacted %d, the server says %d and %d", facts.Revision, facts.CompactedRevision, status.Header.Revision, hash.CompactRevision)
			}
			if late := int64(status.RaftAppliedIndex) - int64(facts.RaftIndex); facts.RaftIndex == 0 || late < -2 || late > 10 {
				t.Errorf("raft index %d, the server says %d", facts.RaftIndex, status.RaftAppliedIndex)
			}
			if want := status.RaftTerm; facts.RaftTerm != want {
				t.Errorf("raft term %d, the server says %d", facts.RaftTerm, want)
			}
			if has := facts.StorageVersion != ""; has != (version >= "3.6") || has && facts.StorageVersion != version+".0" {
				t.Errorf("storage version %q", facts.StorageVersion)
			}
			if facts.ClusterVersion != version+".0" {
				t.Errorf("cluster version %q", facts.ClusterVersion)
			}
			if len(facts.Members) != 1 || facts.Members[0].ID != ID(member.ID) || facts.Members[0].Name != member.Name ||
				fmt.Sprint(facts.Members[0].PeerURLs, facts.Members[0].ClientURLs) != fmt.Sprint(member.PeerURLs, member.ClientURLs) {
				t.Errorf("members %+v, the server says %+v", facts.Members, member)
			}
			if len(facts.Alarms) != 1 || facts.Alarms[0] != (Alarm{ID(member.ID), "NOSPACE"}) {
				t.Errorf("alarms %+v", facts.Alarms)
			}
			if !facts.AuthEnabled || facts.PageSize != os.Getpagesize() {
				t.Errorf("auth %v, page size %d", facts.AuthEnabled, facts.PageSize)
			}

			compareWithBbolt(t, db)
			got, err := ReadHashKV(ctx, bytes.NewReader(db), int64(len(db)))
			if err != nil || got.Hash != hash.Hash || got.CompactedRevision != hash.CompactRevision || got.Revision != hash.Header.Revision {
				t.Errorf("HashKV %+v, %v; the server says %v", got, err, hash)
			}
		})
	}
}

// compareWithBbolt holds every key of every bucket against what bbolt reads.
func compareWithBbolt(t *testing.T, db []byte) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	require.NoError(t, os.WriteFile(path, db, 0o600))
	theirs, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	require.NoError(t, err)
	defer theirs.Close()
	ours, err := boltfile.Open(t.Context(), bytes.NewReader(db), int64(len(db)))
	require.NoError(t, err)
	buckets, keys := 0, 0
	err = theirs.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(name []byte, want *bolt.Bucket) error {
			buckets++
			got, err := ours.Bucket(name)
			if err != nil || got == nil {
				return fmt.Errorf("bucket %s: %v, %w", name, got, err)
			}
			c := got.Cursor()
			k, v, err := c.First()
			failed := want.ForEach(func(wantKey, wantValue []byte) error {
				if err != nil || !bytes.Equal(k, wantKey) || !bytes.Equal(v, wantValue) {
					return fmt.Errorf("bucket %s: %q where bbolt has %q, %w", name, k, wantKey, err)
				}
				keys++
				k, v, err = c.Next()
				return nil
			})
			if failed == nil && (k != nil || err != nil) {
				failed = fmt.Errorf("bucket %s: %q after its end, %w", name, k, err)
			}
			return failed
		})
	})
	if err != nil || buckets < 8 || keys < 100 {
		t.Errorf("%d buckets and %d keys compared: %v", buckets, keys, err)
	}
}

func enableAuth(t *testing.T, client *clientv3.Client) {
	t.Helper()
	ctx := t.Context()
	_, err := client.UserAdd(ctx, "root", "secret")
	require.NoError(t, err)
	_, err = client.RoleAdd(ctx, "root")
	require.NoError(t, err)
	_, err = client.UserGrantRole(ctx, "root", "root")
	require.NoError(t, err)
	_, err = client.AuthEnable(ctx)
	require.NoError(t, err)
}

// The revision is the one that etcd itself finds in the same bytes, whatever a
// compaction left behind.
func TestFactsRevisionIsWhatEtcdFinds(t *testing.T) {
	cases := map[string]func(m *madeStore){
		"empty":         func(*madeStore) {},
		"one key":       func(m *madeStore) { m.put("a", "1") },
		"all compacted": func(m *madeStore) { m.put("a", "1"); m.put("a", "2"); m.delete("a"); m.compact(4) },
		"compacted below": func(m *madeStore) {
			for i := range 50 {
				m.put("a", strconv.Itoa(i))
			}
			m.compact(20)
		},
		"scheduled beyond the last key": func(m *madeStore) {
			m.put("a", "1")
			tx := m.be.BatchTx()
			tx.LockOutsideApply()
			mvcc.UnsafeSetScheduledCompact(tx, 1000)
			tx.Unlock()
		},
		"finished without scheduled": func(m *madeStore) {
			m.put("a", "1")
			m.put("a", "2")
			tx := m.be.BatchTx()
			tx.LockOutsideApply()
			mvcc.UnsafeSetFinishedCompact(tx, 3)
			tx.Unlock()
		},
	}
	for name, make := range cases {
		t.Run(name, func(t *testing.T) {
			m := newMadeStore(t)
			make(m)
			db := m.close()
			facts, err := ReadFacts(t.Context(), bytes.NewReader(db), int64(len(db)))
			require.NoError(t, err)
			m.open()
			defer m.close()
			hash, current, err := m.kv.HashStorage().HashByRev(0)
			require.NoError(t, err)
			if facts.Revision != current || facts.CompactedRevision != max(0, hash.CompactRevision) {
				t.Errorf("revision %d, compacted %d; etcd finds %d and %d", facts.Revision, facts.CompactedRevision, current, hash.CompactRevision)
			}
		})
	}
}

// A few pages of a large database are enough.
func TestFactsTouchFewPages(t *testing.T) {
	m := newMadeStore(t)
	value := string(make([]byte, 3000))
	for i := range 10_000 {
		m.put("key-"+strconv.Itoa(i), value)
	}
	db := m.close()
	src := &countingReaderAt{r: bytes.NewReader(db)}
	facts, err := ReadFacts(t.Context(), src, int64(len(db)))
	if err != nil || facts.Revision != 10_001 {
		t.Fatalf("%+v, %v", facts, err)
	}
	t.Logf("%d bytes in %d reads, of %d", src.bytes, src.calls, len(db))
	if src.calls > 20 || src.bytes > 20*int64(facts.PageSize) {
		t.Errorf("%d bytes in %d reads", src.bytes, src.calls)
	}
}

type countingReaderAt struct {
	r     io.ReaderAt
	calls int
	bytes int64
}

func (c *countingReaderAt) ReadAt(p []byte, off int64) (int, error) {
	n, err := c.r.ReadAt(p, off)
	c.calls++
	c.bytes += int64(n)
	return n, err
}

// Bytes that are no etcd database are called damaged, a source that fails is
// not, and a context that has ended ends the reading.
func TestFactsErrors(t *testing.T) {
	m := newMadeStore(t)
	m.put("a", "1")
	good := m.close()
	_, err := ReadFacts(t.Context(), bytes.NewReader(good), int64(len(good)))
	require.NoError(t, err)
	edited := func(do func(*bolt.Tx) error) []byte {
		m := newMadeStore(t)
		m.close()
		m.edit(do)
		b, err := os.ReadFile(m.path)
		require.NoError(t, err)
		return b
	}
	put := func(bucket, key, value string) []byte {
		return edited(func(tx *bolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte(bucket))
			if err != nil {
				return err
			}
			return b.Put([]byte(key), []byte(value))
		})
	}
	for name, db := range map[string][]byte{
		"empty":            nil,
		"text":             []byte("hello"),
		"zeros":            make([]byte, 1<<20),
		"cut off":          good[:len(good)/2],
		"no key bucket":    edited(func(tx *bolt.Tx) error { return tx.DeleteBucket([]byte("key")) }),
		"no meta bucket":   edited(func(tx *bolt.Tx) error { return tx.DeleteBucket([]byte("meta")) }),
		"odd revision":     put("key", "not a revision", ""),
		"odd compaction":   put("meta", "finishedCompactRev", "x"),
		"short index":      put("meta", "consistent_index", "x"),
		"odd member":       put("members", "8e9e05c52164694d", "no JSON"),
		"odd member ID":    put("members", "m1", "{}"),
		"odd alarm":        put("alarm", "\xff\xff\xff", ""),
		"negative numbers": put("key", "\xff\xff\xff\xff\xff\xff\xff\xff_\x00\x00\x00\x00\x00\x00\x00\x00", ""),
	} {
		_, err := ReadFacts(t.Context(), bytes.NewReader(db), int64(len(db)))
		var damaged *DamagedError
		if !errors.As(err, &damaged) {
			t.Errorf("%s: %v", name, err)
		}
	}

	for n := 0; ; n++ {
		away := errors.New("the place is away")
		_, err := ReadFacts(t.Context(), &failingReaderAt{bytes.NewReader(good), n, away}, int64(len(good)))
		if err == nil {
			if n < 3 {
				t.Errorf("only %d reads were made to fail", n)
			}
			break
		}
		var damaged *DamagedError
		if !errors.Is(err, away) || errors.As(err, &damaged) {
			t.Errorf("read %d fails: %v", n, err)
		}
	}
	why := errors.New("no longer wanted")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	_, err = ReadFacts(ctx, bytes.NewReader(good), int64(len(good)))
	require.ErrorIs(t, err, why)
}

type failingReaderAt struct {
	r   io.ReaderAt
	n   int
	err error
}

func (f *failingReaderAt) ReadAt(p []byte, off int64) (int, error) {
	if f.n == 0 {
		return 0, f.err
	}
	f.n--
	return f.r.ReadAt(p, off)
}

// Members that were removed are not members, and learners are marked: those that raft's
// configuration has as voters were promoted, which etcd 3.5.1 to 3.5.19 does not store here.
func TestFactsMembers(t *testing.T) {
	m := newMadeStore(t)
	m.close()
	m.edit(func(tx *bolt.Tx) error {
		members, err := tx.CreateBucket(schema.Members.Name())
		if err != nil {
			return err
		}
		removed, err := tx.CreateBucket(schema.MembersRemoved.Name())
		if err != nil {
			return err
		}
		return errors.Join(
			members.Put([]byte("f00000000000000a"), []byte(`{"id":1,"peerURLs":["http://a"],"name":"a"}`)),
			members.Put([]byte("b"), []byte(`{"id":11,"peerURLs":["http://b"],"isLearner":true}`)),
			members.Put([]byte("c"), []byte(`{"id":12,"peerURLs":["http://c"],"name":"c"}`)),
			members.Put([]byte("d"), []byte(`{"id":13,"peerURLs":["http://d"],"isLearner":true}`)),
			tx.Bucket(schema.Meta.Name()).Put([]byte("confState"), []byte(`{"voters":[13,17293822569102704650],"learners":[11]}`)),
			removed.Put([]byte("c"), []byte("removed")))
	})
	db, err := os.ReadFile(m.path)
	require.NoError(t, err)
	facts, err := ReadFacts(t.Context(), bytes.NewReader(db), int64(len(db)))
	require.NoError(t, err)
	want := "[{000000000000000b  [http://b] [] true} {000000000000000d  [http://d] [] false} {f00000000000000a a [http://a] [] false}]"
	if got := fmt.Sprint(facts.Members); got != want {
		t.Errorf("members %s, want %s", got, want)
	}
}

// TestReadFacts_DatabaseOfEtcd34_Refused reads a database as etcd 3.4 leaves it: with the
// index of the last entry, and without its term.
func TestReadFacts_DatabaseOfEtcd34_Refused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	db, err := bolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bolt.Tx) error {
		_, err := tx.CreateBucket([]byte("key"))
		require.NoError(t, err)
		meta, err := tx.CreateBucket([]byte("meta"))
		require.NoError(t, err)
		return meta.Put([]byte("consistent_index"), []byte{0, 0, 0, 0, 0, 0, 0, 9})
	}))
	require.NoError(t, db.Close())
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	_, err = ReadFacts(t.Context(), bytes.NewReader(data), int64(len(data)))
	require.ErrorIs(t, err, ErrTooOld)
}
