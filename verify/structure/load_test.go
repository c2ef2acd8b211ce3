package structure

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"go.etcd.io/etcd/server/v3/storage/mvcc"
)

// Promise 1: pages are read once and whole also where they lie far apart, extend
// over others, and are together or alone above what is loaded at a time. HashKV is
// over every byte of them.
func TestPagesBeyondTheBudget(t *testing.T) {
	m := newMade(t)
	sizes := []int{10, 5000, 100, loadBudget / 3, 40 << 10, 10, 3*loadBudget + 7, loadBudget/2 + 1, loadBudget - 100}
	const keys = 90
	for i := range 3 * keys {
		m.txn(func(tx mvcc.TxnWrite) {
			tx.Put(fmt.Appendf(nil, "key-%d", i%keys), bytes.Repeat([]byte{byte(i)}, sizes[i%len(sizes)]), 0)
		})
	}
	hash, _, err := m.kv.HashStorage().HashByRev(0)
	must(t, err)
	m.close()
	f, err := os.Open(m.path)
	must(t, err)
	defer f.Close()
	info, err := f.Stat()
	must(t, err)
	result, err := Check(t.Context(), f, info.Size(), Options{})
	must(t, err)
	if len(result.Findings) > 0 || result.Keys != keys || result.Revisions != 3*keys || result.HashKV.Hash != hash.Hash {
		t.Errorf("%+v, want hash %d", result, hash.Hash)
	}
}
