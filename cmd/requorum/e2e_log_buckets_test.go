package main

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/authpb"
	"google.golang.org/protobuf/proto"
)

// contents is all of a database: bucket, key, value.
type contents map[string]map[string][]byte

func readContents(t testing.TB, path string) contents {
	t.Helper()
	db, err := bbolt.Open(path, 0o400, &bbolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	c := contents{}
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			rows := map[string][]byte{}
			c[string(name)] = rows
			return b.ForEach(func(k, v []byte) error {
				rows[string(k)] = bytes.Clone(v)
				return nil
			})
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// expectSameBuckets wants a rebuilt database to be a stopped member's, row by
// row, but for what walreplay/engine/doc.go lists as not replicated.
func expectSameBuckets(t *testing.T, what, version, rebuilt, member string) {
	t.Helper()
	got, want := readContents(t, rebuilt), readContents(t, member)
	for _, c := range []contents{got, want} {
		for _, key := range []string{"consistent_index", "term", "confState", "storageVersion"} {
			delete(c["meta"], key)
		}
	}
	if version == "3.4" {
		for _, c := range []contents{got, want} {
			dropPasswords(t, c)
		}
	}
	// Of a compaction that the member had not finished rows are left; 3.4 deletes
	// the tombstones at the compacted revision, too.
	compacted := string(want["meta"]["scheduledCompactRev"])
	unfinished := compacted != string(want["meta"]["finishedCompactRev"])
	if unfinished {
		delete(got["meta"], "finishedCompactRev")
		delete(want["meta"], "finishedCompactRev")
	}
	for _, c := range []contents{got, want} {
		for k := range c["key"] {
			if unfinished && k[:8] <= compacted[:8] || len(k) == 18 && len(compacted) > 8 && k[:8] == compacted[:8] && version == "3.4" {
				delete(c["key"], k)
			}
		}
	}
	if d := got.differences(want); len(d) > 0 {
		t.Errorf("%s: %d rows differ from the member's:\n%s", what, len(d), strings.Join(d[:min(8, len(d))], "\n"))
	}
}

// dropPasswords takes out the hashes of passwords: each member of 3.4 salts its
// own.
func dropPasswords(t *testing.T, c contents) {
	t.Helper()
	for name, data := range c["authUsers"] {
		var user authpb.User
		if err := proto.Unmarshal(data, &user); err != nil {
			t.Fatal(err)
		}
		user.Password = nil
		out, err := proto.MarshalOptions{Deterministic: true}.Marshal(&user)
		if err != nil {
			t.Fatal(err)
		}
		c["authUsers"][name] = out
	}
}

// differences names each row that differs.
func (c contents) differences(o contents) []string {
	var all []string
	buckets := maps.Clone(c)
	maps.Copy(buckets, o)
	for _, bucket := range slices.Sorted(maps.Keys(buckets)) {
		keys := maps.Clone(c[bucket])
		if keys == nil {
			keys = map[string][]byte{}
		}
		maps.Copy(keys, o[bucket])
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			a, here := c[bucket][k]
			b, there := o[bucket][k]
			if here != there || !bytes.Equal(a, b) {
				all = append(all, fmt.Sprintf("%s/%q: %.80q (%v), the member has %.80q (%v)", bucket, k, a, here, b, there))
			}
		}
	}
	return all
}
