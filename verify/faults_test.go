package verify_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/snapshot/boltfile"
	"github.com/requorum/requorum/store/storetest"
	"github.com/requorum/requorum/verify"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// fault is one way in which a database or a log can be damaged, with all sums fixed
// up that an attacker, or a tool gone wrong, would fix up: what is left to be found is
// the fault.
type fault struct {
	name string
	// level is the lowest one that finds it, and kinds are what it calls it: at
	// least one of them.
	level report.Level
	kinds []report.Kind
	// inject puts it into a repository that scripted made, and says what it changed.
	inject func(t testing.TB, r *recorded) (what string)
}

// The number of the backup that is altered, and of the one before it.
const (
	last   = 2
	before = 1
)

// faults are of each sort above the level checksum, in a repository that real members
// filled. One by one, what a level finds is in TestPromise2ChecksumFaults, in
// structure's TestContentDamage, TestPageDamage and TestManifest, and in
// replaying's TestPromise1OneRow, TestAlteredSnapshot and TestAlteredEntry.
func faults() []fault {
	set := func(bucket, key string, value []byte) func(*bbolt.Tx) error {
		return func(tx *bbolt.Tx) error { return tx.Bucket([]byte(bucket)).Put([]byte(key), value) }
	}
	difference := []report.Kind{report.KindDifference}
	return []fault{
		{"pages filled with zeros", report.Structure, []report.Kind{report.KindPage}, zeroPages},
		{"a row that is cut", report.Structure, []report.Kind{report.KindRow}, edit(func(tx *bbolt.Tx) error {
			row, _, err := newestOf(tx, scriptKey)
			b := tx.Bucket([]byte("key"))
			return errors.Join(err, b.Put(row, b.Get(row)[:3]))
		})},
		{"a value altered, with the hash that the cluster gave", report.Structure, []report.Kind{report.KindHash}, func(t testing.TB, r *recorded) string {
			was := r.manifest(t, last).HashKV
			what := alteredValue(t, r)
			reseal(t, r, r.manifestName(last), func(m *snapshot.Manifest) { m.HashKV = was })
			return what
		}},
		{"a manifest of another revision", report.Structure, []report.Kind{report.KindFacts}, func(t testing.TB, r *recorded) string {
			reseal(t, r, r.manifestName(last), func(m *snapshot.Manifest) { m.Facts.Revision++ })
			return r.manifestName(last)
		}},

		{"a value altered, with the hash and every sum fixed up", report.Replay, difference, alteredValue},
		{"a row emptied, as one that raises the revision", report.Replay, difference, edit(func(tx *bbolt.Tx) error {
			row, _, err := newestOf(tx, scriptKey)
			return errors.Join(err, tx.Bucket([]byte("key")).Put(row, nil))
		})},
		{"a user's password, set since the backup before", report.Replay, difference, edit(func(tx *bbolt.Tx) error {
			var user authpb.User
			b := tx.Bucket([]byte("authUsers"))
			if err := proto.Unmarshal(b.Get([]byte(scriptUser)), &user); err != nil {
				return err
			}
			user.Password[10] ^= 1
			data, err := proto.Marshal(&user)
			return errors.Join(err, b.Put([]byte(scriptUser), data))
		})},
		{"the raft index of a state before", report.Checksum, []report.Kind{report.KindFork}, edit(func(tx *bbolt.Tx) error {
			b := tx.Bucket([]byte("meta"))
			index := binary.BigEndian.Uint64(b.Get([]byte("consistent_index")))
			return b.Put([]byte("consistent_index"), binary.BigEndian.AppendUint64(nil, index-8))
		})},
		{"a member that has diverged, as the source of the last two backups", report.Replay, difference, func(t testing.TB, r *recorded) string {
			for _, i := range []int{before, last} {
				r.edit(t, i, func(tx *bbolt.Tx) error {
					return alter(tx, "/app/large", func(kv *mvccpb.KeyValue) { kv.Value[100] ^= 1 })
				})
			}
			return "the last two backups"
		}},

		{"an entry dropped, and all after it moved up", report.Replay, difference, onLog(func(t testing.TB, all []raftlog.Entry) []raftlog.Entry {
			at := entryWith(t, all, scriptValue)
			return slices.Delete(all, at, at+1)
		})},
		{"an entry doubled", report.Replay, difference, onLog(func(t testing.TB, all []raftlog.Entry) []raftlog.Entry {
			at := entryWith(t, all, scriptValue)
			return slices.Insert(all, at, all[at])
		})},
		{"two entries swapped", report.Replay, difference, onLog(func(t testing.TB, all []raftlog.Entry) []raftlog.Entry {
			at := entryWith(t, all, scriptValue)
			all[at], all[at-1] = all[at-1], all[at]
			return all
		})},
		{"a compaction of another revision", report.Replay, []report.Kind{report.KindDifference, report.KindFacts}, onLog(func(t testing.TB, all []raftlog.Entry) []raftlog.Entry {
			for i, e := range all {
				var r etcdserverpb.InternalRaftRequest
				if len(e.Data) == 0 || proto.Unmarshal(e.Data, &r) != nil || r.Compaction == nil {
					continue
				}
				r.Compaction.Revision -= 5
				data, err := proto.Marshal(&r)
				must(t, err)
				all[i].Data = data
				return all
			}
			t.Fatal("no compaction: nothing was altered")
			return nil
		})},

		{"a revision that no cluster comes to", report.Checksum, []report.Kind{report.KindManifest},
			alone(edit(set("meta", "scheduledCompactRev", boltfile.Revision{Main: math.MaxInt64}.Bytes())))},

		// In a database that makes sense, and no cluster can go on with it. Whatever
		// else keeps etcd from serving a database is found in its structure.
		{"a storage version that no etcd can bring up to its own", report.Drill, []report.Kind{report.KindBoot}, alone(edit(set("meta", "storageVersion", []byte("2.0.0"))))},
	}
}

// TestFaults: each fault is found by its level, by no level below, and has changed
// something. The short form runs each once, with the levels that it needs;
// REQUORUM_SOAK=1 runs each on every level, plain and encrypted.
func TestFaults(t *testing.T) {
	t.Parallel() // drills and clusters mostly wait
	h := scripted(t)
	forms := []*recorded{h.write(t, layout{merged: 2}), h.write(t, layout{merged: 2, encrypted: true})}
	for _, r := range forms {
		for _, c := range r.verify(t, verify.Request{Backup: verify.All, Level: report.Replay}).Checks {
			if c.Status != report.Passed {
				t.Fatalf("a healthy repository: %s %s is %s: %s %v", c.Level, c.Object, c.Status, c.Reason, c.Findings)
			}
		}
	}
	if !storetest.Soak() {
		forms = forms[:1]
	}
	all := faults()
	for _, f := range all {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			for _, r := range forms {
				injectAndVerify(t, f, r.clone(t))
			}
		})
	}
	t.Attr("faults", fmt.Sprint(len(all)))
}

func injectAndVerify(t *testing.T, f fault, r *recorded) {
	was := r.fingerprint(t)
	what := f.inject(t, r)
	if r.fingerprint(t) == was {
		t.Fatalf("nothing was changed (%s)", what)
	}
	levels := []report.Level{f.level}
	switch {
	case storetest.Soak():
		levels = report.Levels()
	case f.level == report.Structure:
		// etcd's applier, which the next level is done with, would end this process.
		levels = []report.Level{report.Replay}
	}
	for _, level := range levels {
		foundAt(t, f, r.verify(t, verify.Request{Backup: verify.All, Level: level}), what)
	}
}

// foundAt wants a report to have the fault where its level was run, and there alone:
// and nothing where only those below it were.
func foundAt(t testing.TB, f fault, r *report.Report, what string) {
	t.Helper()
	lowest, kinds := report.Level(""), []report.Kind{}
	for _, level := range report.Levels() {
		for _, c := range r.Checks {
			if c.Level != level || c.Status != report.Damaged || lowest != "" && lowest != level {
				continue
			}
			lowest = level
			for _, finding := range c.Findings {
				kinds = append(kinds, finding.Kind)
			}
		}
	}
	want := f.level
	if !r.Level.Includes(f.level) {
		want = ""
	}
	if lowest != want || want != "" && !slices.ContainsFunc(kinds, func(k report.Kind) bool { return slices.Contains(f.kinds, k) }) {
		t.Errorf("%s, level %s: found by %q as %v, want %q as %v: %+v", what, r.Level, lowest, kinds, want, f.kinds, r.Checks)
	}
}

// zeroPages clears the leaves of the bucket key, used and free ones.
func zeroPages(t testing.TB, r *recorded) string {
	database := r.database(t, last)
	size, n := int(binary.LittleEndian.Uint32(database[16+8:])), 0 // in the first meta page
	for at := 2 * size; at < len(database); at += size {
		const leaf = 2
		if page := database[at:][:size]; binary.LittleEndian.Uint16(page[8:]) == leaf && bytes.Count(page, []byte("/app/0")) > 4 {
			clear(page)
			n++
		}
	}
	r.store(t, last, database)
	return fmt.Sprint(n, " pages")
}

// alteredValue: every sum fixed up, and the hash.
func alteredValue(t testing.TB, r *recorded) string {
	return edit(func(tx *bbolt.Tx) error {
		return alter(tx, scriptKey, func(kv *mvccpb.KeyValue) { kv.Value = []byte("value-of-0nce") })
	})(t, r)
}

// newestOf is the newest row of a key that is there.
func newestOf(tx *bbolt.Tx, key string) (row []byte, kv *mvccpb.KeyValue, err error) {
	c := tx.Bucket([]byte("key")).Cursor()
	for k, v := c.Last(); k != nil; k, v = c.Prev() {
		kv = &mvccpb.KeyValue{}
		if err := proto.Unmarshal(v, kv); err != nil {
			return nil, nil, err
		}
		if string(kv.Key) == key && len(k) == boltfile.RowSize {
			return bytes.Clone(k), kv, nil
		}
	}
	return nil, nil, fmt.Errorf("no key %q: nothing was altered", key)
}

// alter changes the newest row of a key.
func alter(tx *bbolt.Tx, key string, change func(*mvccpb.KeyValue)) error {
	row, kv, err := newestOf(tx, key)
	if err != nil {
		return err
	}
	change(kv)
	data, err := proto.Marshal(kv)
	return errors.Join(err, tx.Bucket([]byte("key")).Put(row, data))
}

// edit is a fault of the last backup's database, with all sums fixed up.
func edit(change func(*bbolt.Tx) error) func(testing.TB, *recorded) string {
	return func(t testing.TB, r *recorded) string {
		r.edit(t, last, change)
		return "the database of " + r.backups[last]
	}
}

// alone leaves the last backup only: there is nothing that it could be replayed
// from.
func alone(inject func(testing.TB, *recorded) string) func(testing.TB, *recorded) string {
	return func(t testing.TB, r *recorded) string {
		for _, folder := range []string{"l0/", "l1/", "marks/", "full/" + r.backups[0], "full/" + r.backups[before]} {
			r.removeAll(t, r.timeline.String()+"/"+folder)
		}
		return inject(t, r)
	}
}

// onLog alters the log, and makes its chain and every sum fit again.
func onLog(change func(t testing.TB, entries []raftlog.Entry) []raftlog.Entry) func(testing.TB, *recorded) string {
	return func(t testing.TB, r *recorded) string {
		entries := change(t, slices.Clone(r.log(t)))
		for i := range entries {
			entries[i].Index = uint64(i) + 1
			entries[i].Term = max(entries[i].Term, entries[max(i-1, 0)].Term)
		}
		r.writeLog(t, entries, segmentEntries)
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

// database is a backup's database.
func (r *recorded) database(t testing.TB, i int) []byte {
	t.Helper()
	in, err := snapshot.OpenStored(r.open(t), r.manifest(t, i), r.identities...).Open(t.Context())
	must(t, err)
	defer shut(t, in)
	database, err := io.ReadAll(in)
	must(t, err)
	return database
}

// store replaces a backup's database, with all sums, facts and the hash in its
// manifest. Facts and hash of
// what nobody can read stay as they were.
func (r *recorded) store(t testing.TB, i int, database []byte) {
	t.Helper()
	m := r.manifest(t, i)
	at, size := bytes.NewReader(database), int64(len(database))
	if facts, err := snapshot.ReadFacts(t.Context(), at, size); err == nil {
		m.Facts = facts
	}
	if hash, err := snapshot.ReadHashKV(t.Context(), at, size); err == nil && hash.Revision > 0 {
		m.HashKV.Hash, m.HashKV.Revision, m.HashKV.CompactedRevision = hash.Hash, hash.Revision, hash.CompactedRevision
	}
	m.Keys.Count = nil
	r.storeRaw(t, m, database)
}

// storeRaw stores a database and its manifest, in which it sets the sums.
func (r *recorded) storeRaw(t testing.TB, m *snapshot.Manifest, database []byte) {
	t.Helper()
	sum := sha256.Sum256(database)
	m.DatabaseSHA256 = hex.EncodeToString(sum[:])
	r.storeObject(t, m, append(bytes.Clone(database), sum[:]...))
}

// storeObject stores the raw bytes of an object, trailer included.
func (r *recorded) storeObject(t testing.TB, m *snapshot.Manifest, raw []byte) {
	t.Helper()
	object, encoding := r.encodeObject(t, raw)
	m.Object = snapshot.StoredObject{Name: repository.SnapshotName(r.timeline, m.ID, 1, r.encrypted()), Encoding: encoding}
	r.write(t, m.Object.Name, object)
	sealed, err := repository.Seal(m)
	must(t, err)
	r.write(t, repository.ManifestName(r.timeline, m.ID), sealed)
}

func (r *recorded) encodeObject(t testing.TB, raw []byte) ([]byte, codec.Encoding) {
	t.Helper()
	var object bytes.Buffer
	w, err := codec.NewWriter(t.Context(), &object, codec.Options{Recipients: r.recipients, FrameSize: 64 << 10})
	must(t, err)
	_, err = w.Write(raw)
	must(t, err)
	must(t, w.Close())
	return object.Bytes(), w.Description()
}

// edit changes a backup's database behind etcd's back, with bbolt.
func (r *recorded) edit(t testing.TB, i int, change func(*bbolt.Tx) error) {
	t.Helper()
	r.store(t, i, edited(t, r.database(t, i), change))
}

// edited is a database after a change, with its list of free pages written out.
func edited(t testing.TB, database []byte, change func(*bbolt.Tx) error) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	must(t, os.WriteFile(path, database, 0o600))
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true})
	must(t, err)
	defer shut(t, db)
	must(t, db.Update(change))
	var out bytes.Buffer
	must(t, db.View(func(tx *bbolt.Tx) error {
		_, err := tx.WriteTo(&out)
		return err
	}))
	return out.Bytes()
}
