package structure

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/requorum/requorum/snapshot"
)

// Promises 4 and 7: random histories that etcd's own store made are sound, and
// their HashKV and number of keys are what etcd says: with transactions,
// compactions finished and not, raised revisions, and no key left.
func TestRandomHistoriesAreSound(t *testing.T) {
	unfinished, none, raised := 0, 0, 0
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 2))
			m := newMade(t)
			compacted := int64(0)
			for range 20 + rnd.IntN(400) {
				switch key := strconv.Itoa(rnd.IntN(15)); {
				case rnd.IntN(4) == 0:
					m.delete(key)
				case rnd.IntN(20) == 0:
					m.txn(func(tx mvcc.TxnWrite) {
						for i := range 5 {
							tx.Put([]byte("many-"+strconv.Itoa(i)), make([]byte, rnd.IntN(9000)), 0)
						}
					})
				case rnd.IntN(30) == 0:
					m.txn(func(tx mvcc.TxnWrite) { tx.DeleteRange([]byte("many-1"), []byte("many-4")) })
				case rnd.IntN(40) == 0 && m.kv.Rev() > compacted+1:
					compacted += 1 + rnd.Int64N(m.kv.Rev()-compacted)
					m.compact(compacted)
				case rnd.IntN(60) == 0 && seed%4 == 3:
					raised++
					rev := m.kv.Rev() + 1 + rnd.Int64N(1000)
					m.raise(rev)
					m.close()
					m.open() // which finishes the compaction
					compacted = rev
				default:
					m.put(key, strconv.Itoa(rnd.Int()))
				}
			}
			if seed%5 == 4 {
				for key := range 15 {
					m.delete(strconv.Itoa(key))
				}
				m.txn(func(tx mvcc.TxnWrite) { tx.DeleteRange([]byte("many"), []byte("many~")) })
				none++
				if seed%2 == 0 {
					m.compact(m.kv.Rev())
				}
			}
			if seed%3 == 0 && seed%5 != 4 && m.kv.Rev() > compacted+1 {
				unfinished++
				m.schedule(compacted + 1 + rnd.Int64N(m.kv.Rev()-compacted))
			}
			db := m.close()
			r := sound(t, db, Options{})
			want, err := snapshot.ReadHashKV(t.Context(), bytes.NewReader(db), int64(len(db)))
			must(t, err)
			if r.HashKV != want {
				t.Errorf("%+v, want %+v", r.HashKV, want)
			}
			m.open()
			defer m.close()
			hash, head, err := m.kv.HashStorage().HashByRev(0)
			must(t, err)
			if r.HashKV.Hash != hash.Hash || r.HashKV.Revision != head || r.HashKV.CompactedRevision != hash.CompactRevision {
				t.Errorf("%+v; etcd says %+v", r.HashKV, hash)
			}
			all, err := m.kv.Range(t.Context(), []byte{0}, []byte{}, mvcc.RangeOptions{})
			must(t, err)
			if r.Keys != int64(all.Count) {
				t.Errorf("%d keys; etcd has %d", r.Keys, all.Count)
			}
		})
	}
	if unfinished < 5 || none < 5 || raised < 5 {
		t.Errorf("%d unfinished compactions, %d stores without keys, %d raised revisions", unfinished, none, raised)
	}
}
