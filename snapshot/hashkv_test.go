package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/requorum/requorum/snapshot/boltfile"
)

// The hash is etcd's own, for random histories: with compactions finished and
// not finished, with keys that come and go, and with none left; at the newest
// revision and at older ones.
func TestHashKVIsEtcds(t *testing.T) {
	unfinished, none := 0, 0
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			m := newMadeStore(t)
			compacted := int64(0)
			for range 20 + rnd.IntN(200) {
				switch key := strconv.Itoa(rnd.IntN(15)); {
				case rnd.IntN(4) == 0:
					m.delete(key)
				case rnd.IntN(40) == 0 && m.kv.Rev() > compacted+1:
					compacted += 1 + rnd.Int64N(m.kv.Rev()-compacted)
					m.compact(compacted)
				default:
					m.put(key, strconv.Itoa(rnd.Int()))
				}
			}
			if seed%5 == 4 {
				for key := range 15 {
					m.delete(strconv.Itoa(key))
				}
				none++
				if seed%2 == 0 {
					m.compact(m.kv.Rev())
				}
			}
			if seed%3 == 0 && seed%5 != 4 && m.kv.Rev() > compacted+1 {
				// A compaction that was scheduled when the snapshot was taken.
				unfinished++
				tx := m.be.BatchTx()
				tx.LockOutsideApply()
				mvcc.UnsafeSetScheduledCompact(tx, compacted+1+rnd.Int64N(m.kv.Rev()-compacted))
				tx.Unlock()
			}
			db := m.close()
			got, err := ReadHashKV(t.Context(), bytes.NewReader(db), int64(len(db)))
			require.NoError(t, err)
			m.open()
			defer m.close()
			want, head, err := m.kv.HashStorage().HashByRev(0)
			require.NoError(t, err)
			if got.Hash != want.Hash || got.Revision != head || got.CompactedRevision != want.CompactRevision {
				t.Errorf("%+v; etcd says %+v", got, want)
			}
			first := max(got.CompactedRevision, 1)
			for range 8 {
				revision := first + rnd.Int64N(head-first+1)
				got, err := ReadHashKVAt(t.Context(), bytes.NewReader(db), int64(len(db)), revision)
				require.NoError(t, err)
				want, _, err := m.kv.HashStorage().HashByRev(revision)
				require.NoError(t, err)
				if got.Hash != want.Hash || got.Revision != revision || got.CompactedRevision != want.CompactRevision {
					t.Errorf("at revision %d of %d: %+v; etcd says %+v", revision, head, got, want)
				}
			}
			for _, revision := range []int64{head + 1, got.CompactedRevision - 1} {
				if _, err := ReadHashKVAt(t.Context(), bytes.NewReader(db), int64(len(db)), revision); revision > 0 && !errors.Is(err, ErrNoRevision) {
					t.Errorf("at revision %d, with %d to %d: %v", revision, got.CompactedRevision, head, err)
				}
			}
		})
	}
	if unfinished < 10 || none < 5 {
		t.Errorf("%d unfinished compactions, %d stores without keys", unfinished, none)
	}
}

// A row after a compaction that cannot be decoded may be of any key: the hash is not
// known then.
func TestHashKVOfADamagedRow(t *testing.T) {
	m := newMadeStore(t)
	m.put("a", "1")
	m.put("b", "1")
	m.compact(3)
	m.put("a", "2")
	m.close()
	m.edit(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("key")).Put(boltfile.Revision{Main: 4}.Bytes(), []byte{0xff})
	})
	db, err := os.ReadFile(m.path)
	require.NoError(t, err)
	_, err = ReadHashKV(t.Context(), bytes.NewReader(db), int64(len(db)))
	require.True(t, IsDamaged(err), "%v", err)
	require.ErrorContains(t, err, "value at revision 4.0")
}

// A row of revision 0, which etcd writes nowhere, is hashed as any other where nothing was
// compacted.
func TestHashKVOfARowOfRevisionZero(t *testing.T) {
	m := newMadeStore(t)
	m.put("a", "1")
	m.close()
	m.edit(func(tx *bolt.Tx) error {
		keys := tx.Bucket([]byte("key"))
		_, row := keys.Cursor().First()
		return keys.Put(boltfile.Revision{}.Bytes(), bytes.Clone(row))
	})
	db, err := os.ReadFile(m.path)
	require.NoError(t, err)
	_, err = ReadHashKV(t.Context(), bytes.NewReader(db), int64(len(db)))
	require.NoError(t, err)
}

func TestHashesOtherwise(t *testing.T) {
	for version, want := range map[string]bool{"3.5.15": true, "3.5.16": false, "3.6.0": false, "3.7.0-rc.1": false, "4.0.0": false, "": false} {
		if got := HashesOtherwise(version); got != want {
			t.Errorf("%s: %v", version, got)
		}
	}
}
