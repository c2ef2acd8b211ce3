package verifytest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
)

// Database is a backup's database.
func (r *Repo) Database(t testing.TB, i int) []byte {
	t.Helper()
	in, err := snapshot.OpenStored(r.Open(t), r.Manifest(t, i), r.Identities...).Open(t.Context())
	must(t, err)
	defer shut(t, in)
	database, err := io.ReadAll(in)
	must(t, err)
	return database
}

// Store replaces a backup's database, with all sums, facts and the hash in its
// manifest, and takes away the verdicts that would know better. Facts and hash of
// what nobody can read stay as they were.
func (r *Repo) Store(t testing.TB, i int, database []byte) {
	t.Helper()
	m := r.Manifest(t, i)
	at, size := bytes.NewReader(database), int64(len(database))
	if facts, err := snapshot.ReadFacts(t.Context(), at, size); err == nil {
		m.Facts = facts
	}
	if hash, err := snapshot.ReadHashKVCompacted(t.Context(), at, size, m.HashKV.CompactedRevision); err == nil && hash.Revision > 0 {
		m.HashKV.Hash, m.HashKV.Revision, m.HashKV.CompactedRevision = hash.Hash, hash.Revision, hash.CompactedRevision
	}
	m.Keys.Count = nil
	r.ForgetVerdicts(t)
	r.storeRaw(t, m, database)
}

// storeRaw stores a database and its manifest, in which it sets the sums.
func (r *Repo) storeRaw(t testing.TB, m *snapshot.Manifest, database []byte) {
	t.Helper()
	sum := sha256.Sum256(database)
	m.DatabaseSHA256 = hex.EncodeToString(sum[:])
	r.storeObject(t, m, append(bytes.Clone(database), sum[:]...))
}

// storeObject stores the raw bytes of an object, trailer included.
func (r *Repo) storeObject(t testing.TB, m *snapshot.Manifest, raw []byte) {
	t.Helper()
	object, encoding := r.encodeObject(t, raw)
	m.Object = snapshot.StoredObject{Name: repository.SnapshotName(r.Timeline, m.ID, r.Encrypted()), Encoding: encoding}
	r.Write(t, m.Object.Name, object)
	sealed, err := repository.Seal(m)
	must(t, err)
	r.Write(t, repository.ManifestName(r.Timeline, m.ID), sealed)
}

func (r *Repo) encodeObject(t testing.TB, raw []byte) ([]byte, codec.Encoding) {
	t.Helper()
	var object bytes.Buffer
	w, err := codec.NewWriter(t.Context(), &object, codec.Options{Recipients: r.recipients, FrameSize: 64 << 10})
	must(t, err)
	_, err = w.Write(raw)
	must(t, err)
	must(t, w.Close())
	return object.Bytes(), w.Description()
}

// Edit changes a backup's database behind etcd's back, with bbolt.
func (r *Repo) Edit(t testing.TB, i int, change func(*bbolt.Tx) error) {
	t.Helper()
	r.Store(t, i, edited(t, r.Database(t, i), change))
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
