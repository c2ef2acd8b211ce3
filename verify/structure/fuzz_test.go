package structure

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/requorum/requorum/snapshot/boltfile"
)

// Promise 6: whatever bytes of a small database are changed, the check ends
// soon, without a panic, and without much memory. An error is only that of a
// foreign byte order.
func FuzzCheck(f *testing.F) {
	m := newMade(f)
	for i := range 120 {
		m.put("key-"+strconv.Itoa(i%50), string(make([]byte, i*3)))
	}
	m.delete("key-3")
	m.compact(60)
	good := m.close()
	f.Add(uint32(0), []byte{1})
	f.Add(uint32(16+8), []byte{0, 0, 2, 0})
	for at := 2 * 4096; at < len(good); at += 4096 {
		f.Add(uint32(at+8), []byte{1})
		f.Add(uint32(at+12), []byte{1, 0, 0, 0})
		f.Add(uint32(at+16), []byte{1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	}
	f.Fuzz(func(t *testing.T, at uint32, bytes []byte) {
		db := append([]byte(nil), good...)
		copy(db[int(at)%len(db):], bytes)
		checkDamaged(t, db)
	})
}

func checkDamaged(t *testing.T, db []byte) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r, err := Check(ctx, bytes.NewReader(db), int64(len(db)), Options{MaxFindings: 20})
	runtime.ReadMemStats(&after)
	if err != nil && !errors.Is(err, boltfile.ErrBigEndian) {
		t.Fatal(err)
	}
	if len(r.Findings) > 20 || r.More > 0 && len(r.Findings) < 20 {
		t.Fatalf("%d findings, and %d more", len(r.Findings), r.More)
	}
	const most = 64 << 20 // taken in all, mostly by the tables of sixteen workers
	if took := after.TotalAlloc - before.TotalAlloc; took > most {
		t.Fatalf("took %d bytes for a database of %d", took, len(db))
	}
	return len(r.Findings) > 0
}

// Promise 6 over each byte of the pages that are in use: many are found, none
// does harm.
func TestEveryByteDamaged(t *testing.T) {
	m := sample(t)
	db := m.close()
	rnd := rand.New(rand.NewPCG(1, 1))
	found, tried := 0, 0
	for range 1500 {
		at := rnd.IntN(len(db))
		damaged := bytes.Clone(db)
		damaged[at] ^= 1 << rnd.IntN(8)
		tried++
		if checkDamaged(t, damaged) {
			found++
		}
	}
	t.Logf("%d of %d flipped bits found without a manifest; the others are in values, and in pages that are not used", found, tried)
	if found < 50 {
		t.Errorf("only %d of %d were found", found, tried)
	}
}
