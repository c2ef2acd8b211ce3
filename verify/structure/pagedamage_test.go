package structure

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/requorum/requorum/snapshot/boltfile"
	"github.com/requorum/requorum/verify/report"
)

// Promise 1: each way to break a page is found, and names it.
func TestPageDamage(t *testing.T) {
	m := sample(t)
	for i := range 3000 {
		m.put("more-"+strconv.Itoa(i), string(make([]byte, 200)))
	}
	m.close()
	compact := func() []byte { // without a free page, so that all pages count
		src, err := bolt.Open(m.path, 0o600, &bolt.Options{ReadOnly: true})
		must(t, err)
		path := m.path + ".compact"
		dst, err := bolt.Open(path, 0o600, &bolt.Options{PageSize: 4096})
		must(t, err)
		must(t, bolt.Compact(dst, src, 0))
		must(t, errors.Join(src.Close(), dst.Close()))
		return (&made{t: t, path: path}).bytes()
	}()
	sound(t, compact, Options{})
	le := binary.LittleEndian
	var leaf, branch int // offsets of the first leaf with many rows and of a branch
	for at := 8192; at < len(compact); at += 4096 {
		h := boltfile.ParseHeader(compact[at:])
		if h.Kind == 2 && h.Count > 3 && h.More == 0 && leaf == 0 && bytes.Contains(compact[at:at+4096], []byte("more-")) {
			leaf = at
		}
		if h.Kind == 1 && h.Count > 3 {
			branch = at
		}
	}
	if leaf == 0 || branch == 0 {
		t.Fatal("no pages to break")
	}
	resum := func(b []byte) { // a meta page's sum
		sum := fnv.New64a()
		sum.Write(b[16 : 16+56])
		le.PutUint64(b[16+56:], sum.Sum64())
	}
	for name, test := range map[string]struct {
		do   func([]byte)
		text string
	}{
		"meta page 0":        {func(b []byte) { b[16+40] ^= 1 }, "page 0: meta page"},
		"meta page 1":        {func(b []byte) { b[4096+16+8] ^= 1 }, "page 1: meta page"},
		"meta page's number": {func(b []byte) { b[4096] = 7 }, "page 1: meta page: it says that it is page 7"},
		"meta page's kind":   {func(b []byte) { b[8] = 2 }, "not a meta page"},
		"both meta pages":    {func(b []byte) { b[20] ^= 1; b[4096+20] ^= 1 }, "not a bbolt database"},
		"more pages than the file": {func(b []byte) {
			le.PutUint64(b[4096+16+40:], 1<<40)
			le.PutUint64(b[4096+16+48:], 1<<40)
			resum(b[4096:])
		}, "the file ends here"},
		"leaf's number":             {func(b []byte) { b[leaf]++ }, "it says that it is page"},
		"leaf's kind":               {func(b []byte) { b[leaf+8] = 8 }, "neither a branch nor a leaf"},
		"leaf becomes a branch":     {func(b []byte) { b[leaf+8] = 1 }, fmt.Sprintf("page %d", leaf/4096)},
		"leaf's count":              {func(b []byte) { le.PutUint16(b[leaf+10:], 0xffff) }, "do not fit"},
		"leaf's count falls":        {func(b []byte) { b[leaf+10]-- }, "begins at byte"},
		"leaf extends over others":  {func(b []byte) { b[leaf+12] = 1 }, "extends over 1 more pages, and has"},
		"leaf extends beyond":       {func(b []byte) { le.PutUint32(b[leaf+12:], 1<<20) }, "beyond the end"},
		"leaf's flags":              {func(b []byte) { b[leaf+16] = 4 }, "unknown flags"},
		"leaf's position":           {func(b []byte) { b[leaf+16+4] ^= 4 }, "begins at byte"},
		"leaf's key size":           {func(b []byte) { b[leaf+16+8]++ }, "begins at byte"},
		"leaf's empty key":          {func(b []byte) { b[leaf+16+8] = 0 }, "an empty key"},
		"leaf's value size":         {func(b []byte) { b[leaf+16+12] ^= 1 }, "begins at byte"},
		"leaf without rows":         {func(b []byte) { le.PutUint16(b[leaf+10:], 0) }, "without rows below a branch"},
		"leaf's key":                {func(b []byte) { b[leaf+16+int(le.Uint32(b[leaf+16+4:]))+7] ^= 0x80 }, "out of order"},
		"leaf is another one":       {func(b []byte) { copy(b[leaf+4096+8:], b[leaf+8:leaf+4096]) }, "bucket key"},
		"leaf of zeros":             {func(b []byte) { clear(b[leaf : leaf+4096]) }, "it says that it is page 0"},
		"branch's kind":             {func(b []byte) { b[branch+8] = 2 }, fmt.Sprintf("page %d", branch/4096)},
		"branch of zeros":           {func(b []byte) { clear(b[branch : branch+4096]) }, "it says that it is page 0"},
		"branch refers beyond":      {func(b []byte) { b[branch+16+8+7] = 1 }, "the pages that can hold data"},
		"branch refers to meta":     {func(b []byte) { le.PutUint64(b[branch+16+8:], 1) }, "page 1: bucket key: it is a child of page"},
		"branch refers to itself":   {func(b []byte) { le.PutUint64(b[branch+16+16+8:], uint64(branch/4096)) }, "it is used twice"},
		"branch refers twice":       {func(b []byte) { copy(b[branch+16+8:branch+16+16], b[branch+16+16+8:branch+16+32]) }, "it is used twice"},
		"branch's children swapped": {swapChildren(branch), "belongs into a later page"},
		"branch's key":              {func(b []byte) { b[branch+16+32+int(le.Uint32(b[branch+16+32:]))+6] ^= 0x80 }, "out of order"},
		"freelist's number":         {func(b []byte) { b[freelistAt(t, b)]++ }, "freelist: it says that it is page"},
		"freelist's kind":           {func(b []byte) { b[freelistAt(t, b)+8] = 2 }, "is not a freelist"},
		"freelist's count":          {func(b []byte) { le.PutUint16(b[freelistAt(t, b)+10:], 0xfffe) }, "do not fit"},
		"freelist names a used one": {func(b []byte) {
			at := freelistAt(t, b)
			n := le.Uint16(b[at+10:])
			le.PutUint64(b[at+16+int(n)*8:], uint64(leaf/4096))
			le.PutUint16(b[at+10:], n+1)
		}, "the freelist has it as free"},
		"freelist names one twice": {func(b []byte) {
			at := freelistAt(t, b)
			le.PutUint64(b[at+16:], le.Uint64(b[at+24:]))
		}, "twice"},
		"freelist names one beyond": {func(b []byte) { le.PutUint64(b[freelistAt(t, b)+16:], 1<<40) }, "freelist: it names page"},
		"freelist forgets one":      {func(b []byte) { at := freelistAt(t, b); b[at+10]-- }, "in no bucket, and not on the freelist: lost"},
	} {
		t.Run(name, func(t *testing.T) {
			db := bytes.Clone(compact)
			test.do(db)
			if bytes.Equal(db, compact) {
				t.Fatal("nothing was changed")
			}
			r := checkBytes(t, db, Options{})
			if !hasFinding(r, report.KindPage, test.text) {
				t.Errorf("not found: %q", r.Findings)
			}
			if r.HashKV.Hash != 0 && name[:4] != "meta" && name[:4] != "free" {
				t.Errorf("a hash of a broken database: %+v", r.HashKV)
			}
			if len(r.Findings) > 3 {
				t.Errorf("%d findings of one fault: %q", len(r.Findings), r.Findings)
			}
		})
	}
	other := bytes.Clone(compact)
	for _, meta := range [][]byte{other, other[4096:]} {
		le.PutUint64(meta[16+16:], uint64(leaf/4096))
		resum(meta)
	}
	if r := checkBytes(t, other, Options{}); !hasFinding(r, report.KindBucket, "bucket key is missing") || !hasFinding(r, report.KindPage, "lost") {
		t.Errorf("another root: %q", r.Findings)
	}
	cut := compact[:len(compact)-1]
	if r := checkBytes(t, cut, Options{}); !hasFinding(r, report.KindPage, "the file ends here") {
		t.Errorf("cut off: %q", r.Findings)
	}
}

func swapChildren(branch int) func([]byte) {
	return func(b []byte) {
		one, two := b[branch+16+8:branch+16+16], b[branch+16+16+8:branch+16+32]
		for i := range one {
			one[i], two[i] = two[i], one[i]
		}
	}
}

func freelistAt(t *testing.T, db []byte) int {
	f, err := boltfile.Open(t.Context(), bytes.NewReader(db), int64(len(db)))
	must(t, err)
	return int(f.Meta().Freelist) * 4096
}
