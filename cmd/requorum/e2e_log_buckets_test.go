package main

import (
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/authpb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/walreplay/engine/enginetest"
)

// expectSameBuckets wants a rebuilt database to be a stopped member's, row by
// row, but for what walreplay/engine/doc.go lists as not replicated.
func expectSameBuckets(t *testing.T, what, version, rebuilt, member string) {
	t.Helper()
	got, want := enginetest.Read(t, rebuilt), enginetest.Read(t, member)
	for _, c := range []enginetest.Contents{got, want} {
		for _, key := range []string{"consistent_index", "term", "confState", "storageVersion"} {
			delete(c["meta"], key)
		}
	}
	if version == "3.4" {
		for _, c := range []enginetest.Contents{got, want} {
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
	for _, c := range []enginetest.Contents{got, want} {
		for k := range c["key"] {
			if unfinished && k[:8] <= compacted[:8] || len(k) == 18 && len(compacted) > 8 && k[:8] == compacted[:8] && version == "3.4" {
				delete(c["key"], k)
			}
		}
	}
	if d := got.Differences(want); len(d) > 0 {
		t.Errorf("%s: %d rows differ from the member's:\n%s", what, len(d), strings.Join(d[:min(8, len(d))], "\n"))
	}
}

// dropPasswords takes out the hashes of passwords: each member of 3.4 salts its
// own.
func dropPasswords(t *testing.T, c enginetest.Contents) {
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
