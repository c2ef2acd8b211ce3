package verifytest

import (
	"bytes"
	"encoding/binary"
	"testing"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/lease/leasepb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/snapshot/rowkey"
	"github.com/requorum/requorum/verify/report"
)

func history(name string, change func(*bbolt.Tx) error) Fault {
	return structure("history: "+name, edit(change), report.KindHistory)
}

// keepingHash is a fault after which the manifest has the hash that the cluster
// gave.
func keepingHash(inject func(testing.TB, *Repo) string) func(testing.TB, *Repo) string {
	return func(t testing.TB, r *Repo) string {
		was := r.Manifest(t, last).HashKV
		what := inject(t, r)
		Reseal(t, r, r.ManifestName(last), func(m *snapshot.Manifest) { m.HashKV = was })
		return what
	}
}

// rowFaults are in keys and their histories.
func rowFaults() []Fault {
	return []Fault{
		structure("row: cut", edit(rawRow(func(v []byte) []byte { return v[:len(v)-3] })), report.KindRow),
		structure("row: a field that etcd does not know", edit(rawRow(func(v []byte) []byte { return append(bytes.Clone(v), 0x78, 1) })), report.KindRow),
		structure("row: under a key that is no revision", edit(func(tx *bbolt.Tx) error {
			f, err := newest(tx, overwritten)
			if err != nil {
				return err
			}
			return putMessage(tx, "key", []byte("zzz"), f.kv)
		}), report.KindRow),
		structure("row: of no key", edit(row(overwritten, func(f found) { f.kv.Key = nil })), report.KindHistory),
		history("a mod revision that is not the row's", row(overwritten, func(f found) { f.kv.ModRevision++ })),
		history("a create revision after the mod revision", row(overwritten, func(f found) { f.kv.CreateRevision = f.kv.ModRevision + 1 })),
		history("a create revision that is another one than before", row(secondRow, func(f found) { f.kv.CreateRevision++ })),
		history("a version that jumps", row(secondRow, func(f found) { f.kv.Version += 3 })),
		history("version 1 of a key that is there", row(overwritten, func(f found) { f.kv.Version = 1 })),
		history("a row gone from the middle", func(tx *bbolt.Tx) error {
			f, err := newest(tx, secondRow)
			if err != nil {
				return err
			}
			return tx.Bucket([]byte("key")).Delete(f.row)
		}),
		history("two rows of a key in one revision", func(tx *bbolt.Tx) error {
			f, err := newest(tx, ofKey(scriptKey))
			if err != nil {
				return err
			}
			f.kv.Version++
			return putMessage(tx, "key", rowkey.Revision{Main: revisionOf(f.row), Sub: 1}.Bytes(), f.kv)
		}),
		history("the deletion of a key that is not there", row(deletions, func(f found) { f.kv.Key = []byte("/app/never") })),
		history("a deletion that holds a value", row(deletions, func(f found) { f.kv.Value = []byte("value") })),
		history("a row that the compaction had to remove", func(tx *bbolt.Tx) error {
			f, err := newest(tx, ofKey("/app/large"))
			if err != nil {
				return err
			}
			f.kv = &mvccpb.KeyValue{Key: []byte("/app/000"), Value: []byte("old"), CreateRevision: 2, ModRevision: 2, Version: 1}
			f.row = rowkey.Revision{Main: 2}.Bytes()
			return f.store(tx)
		}),
		history("a finished compaction above the scheduled one", set("meta", "finishedCompactRev", rowkey.Revision{Main: 100000}.Bytes())),
		structure("a value altered, with the hash that the cluster gave", keepingHash(alteredValue), report.KindHash),
		structure("a row gone that the compaction might have removed, with the hash that the cluster gave", keepingHash(edit(dropOld)), report.KindHash),
	}
}

// secondRow are rows of keys that have another one above the compacted revision;
// here, of the key that is deleted and made again after it.
func secondRow(f found) bool {
	return f.kv.Version > 1 && !f.deletion() && bytes.HasPrefix(f.kv.Value, []byte("round 2"))
}

func rawRow(change func(v []byte) []byte) func(*bbolt.Tx) error {
	return func(tx *bbolt.Tx) error {
		f, err := newest(tx, overwritten)
		if err != nil {
			return err
		}
		b := tx.Bucket([]byte("key"))
		return b.Put(f.row, change(bytes.Clone(b.Get(f.row))))
	}
}

func leaseKey(id int64) string { return string(binary.BigEndian.AppendUint64(nil, uint64(id))) }

// leaseFaults are in leases, and between keys and leases.
func leaseFaults() []Fault {
	fault := func(name string, change func(*bbolt.Tx) error) Fault {
		return structure("lease: "+name, edit(change), report.KindLease)
	}
	ofScript := func(change func(*leasepb.Lease)) func(*bbolt.Tx) error {
		return message("lease", leaseKey(scriptLease), &leasepb.Lease{}, change)
	}
	return []Fault{
		fault("a key on one that is not there", row(ofKey(scriptKey), func(f found) { f.kv.Lease = 999 })),
		fault("one gone, whose keys are there", drop("lease", leaseKey(scriptLease))),
		fault("one that cannot be decoded", set("lease", leaseKey(scriptLease), []byte("no lease"))),
		fault("a time to live of 0", ofScript(func(l *leasepb.Lease) { l.TTL = 0 })),
		fault("one that ends in the far future", ofScript(func(l *leasepb.Lease) { l.TTL = 1 << 40 })),
		fault("more time remaining than it has", ofScript(func(l *leasepb.Lease) { l.RemainingTTL = l.TTL + 1 })),
		fault("one under another ID", func(tx *bbolt.Tx) error {
			data, err := proto.Marshal(&leasepb.Lease{ID: 55, TTL: 60})
			if err != nil {
				return err
			}
			return tx.Bucket([]byte("lease")).Put([]byte(leaseKey(56)), data)
		}),
		fault("an ID of three bytes", set("lease", "abc", nil)),
	}
}
