package verifytest

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// onLog alters the log, and makes its chain and every sum fit again.
func onLog(change func(t testing.TB, entries []raftlog.Entry) []raftlog.Entry) func(testing.TB, *Repo) string {
	return func(t testing.TB, r *Repo) string {
		entries := change(t, slices.Clone(r.Log(t)))
		for i := range entries {
			entries[i].Index = uint64(i) + 1
			entries[i].Term = max(entries[i].Term, entries[max(i-1, 0)].Term)
		}
		r.ForgetVerdicts(t)
		r.WriteLog(t, entries, segmentEntries)
		return fmt.Sprintf("the log of %d entries", len(entries))
	}
}

// entryWith is the entry that holds a text.
func entryWith(t testing.TB, entries []raftlog.Entry, text string) int {
	t.Helper()
	at := slices.IndexFunc(entries, func(e raftlog.Entry) bool { return bytes.Contains(e.Data, []byte(text)) })
	if at < 0 {
		t.Fatalf("no entry holds %q: nothing was altered", text)
	}
	return at
}

func alteredEntry(t testing.TB, r *Repo) string {
	return onLog(func(t testing.TB, all []raftlog.Entry) []raftlog.Entry {
		at := entryWith(t, all, scriptValue)
		all[at].Data = bytes.ReplaceAll(all[at].Data, []byte(scriptValue), []byte("value-of-0nce"))
		return all
	})(t, r)
}

// request alters the first entry whose request fits.
func request(t testing.TB, all []raftlog.Entry, change func(*etcdserverpb.InternalRaftRequest) bool) {
	t.Helper()
	for i, e := range all {
		var r etcdserverpb.InternalRaftRequest
		if len(e.Data) == 0 || proto.Unmarshal(e.Data, &r) != nil || !change(&r) {
			continue
		}
		data, err := proto.Marshal(&r)
		must(t, err)
		all[i].Data = data
		return
	}
	t.Fatal("no entry fits: nothing was altered")
}

// logFaults are in a log that is whole and of one chain.
func logFaults() []Fault {
	fault := func(name string, change func(testing.TB, []raftlog.Entry) []raftlog.Entry, kinds ...report.Kind) Fault {
		return Fault{Name: "log: " + name, Rung: report.Replay, Kinds: kinds, Inject: onLog(change)}
	}
	return []Fault{
		{Name: "log: an entry's value altered, with its chain and every sum fixed up", Rung: report.Replay, Kinds: []report.Kind{report.KindDifference}, Inject: alteredEntry},
		fault("an entry's value altered that is compacted, with a stamp before", func(t testing.TB, all []raftlog.Entry) []raftlog.Entry {
			at := entryWith(t, all, scriptFirst)
			all[at].Data = bytes.ReplaceAll(all[at].Data, []byte(scriptFirst), []byte("value-of-sh0rt-first"))
			return all
		}, report.KindDifference, report.KindStamp),
		fault("an entry dropped, and all behind it moved up", func(t testing.TB, all []raftlog.Entry) []raftlog.Entry {
			at := entryWith(t, all, scriptValue)
			return slices.Delete(all, at, at+1)
		}, report.KindDifference),
		fault("an entry emptied", func(t testing.TB, all []raftlog.Entry) []raftlog.Entry {
			all[entryWith(t, all, scriptValue)].Data = nil
			return all
		}, report.KindDifference),
		fault("an entry doubled", func(t testing.TB, all []raftlog.Entry) []raftlog.Entry {
			at := entryWith(t, all, scriptValue)
			return slices.Insert(all, at, all[at])
		}, report.KindDifference),
		fault("two entries swapped", func(t testing.TB, all []raftlog.Entry) []raftlog.Entry {
			at := entryWith(t, all, scriptValue)
			all[at], all[at-1] = all[at-1], all[at]
			return all
		}, report.KindDifference),
		fault("an entry that is no request", func(t testing.TB, all []raftlog.Entry) []raftlog.Entry {
			all[entryWith(t, all, scriptValue)].Data = []byte{0xff, 0xff}
			return all
		}, report.KindApply),
		fault("a lease granted for longer", func(t testing.TB, all []raftlog.Entry) []raftlog.Entry {
			request(t, all, func(r *etcdserverpb.InternalRaftRequest) bool {
				if r.LeaseGrant == nil {
					return false
				}
				r.LeaseGrant.TTL *= 2
				return true
			})
			return all
		}, report.KindDifference),
		fault("a permission granted for more", func(t testing.TB, all []raftlog.Entry) []raftlog.Entry {
			request(t, all, func(r *etcdserverpb.InternalRaftRequest) bool {
				if r.AuthRoleGrantPermission == nil {
					return false
				}
				r.AuthRoleGrantPermission.Perm.RangeEnd = []byte("/zzz")
				return true
			})
			return all
		}, report.KindDifference),
		fault("a compaction of another revision", func(t testing.TB, all []raftlog.Entry) []raftlog.Entry {
			request(t, all, func(r *etcdserverpb.InternalRaftRequest) bool {
				if r.Compaction == nil {
					return false
				}
				r.Compaction.Revision -= 5
				return true
			})
			return all
		}, report.KindDifference, report.KindFacts),
	}
}
