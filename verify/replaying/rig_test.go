package replaying

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay"
	"github.com/requorum/requorum/walreplay/logtest"
	"github.com/requorum/requorum/walreplay/raftlog"
)

// rig is a repository on disk that tests may alter.
type rig struct {
	t    testing.TB
	dir  string
	repo *repository.Repository
	id   repository.TimelineID
	o    Options
}

// openRig opens the repository in dir, which is made where there is none.
func openRig(t testing.TB, dir string, id repository.TimelineID) *rig {
	t.Helper()
	sink, err := disk.New(dir)
	require.NoError(t, err)
	t.Cleanup(func() { sink.Close() })
	if _, err := os.Stat(filepath.Join(dir, "requorum.json")); err != nil {
		_, err = repository.Init(t.Context(), sink, time.Now())
		require.NoError(t, err)
	}
	repo, err := repository.Open(t.Context(), sink)
	require.NoError(t, err)
	return &rig{t: t, dir: dir, repo: repo, id: id, o: Options{ScratchDir: t.TempDir(), Engine: walreplay.BothEngines}}
}

// clone is a copy of the repository, to be altered.
func (r *rig) clone(t testing.TB) *rig {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "repo")
	require.NoError(t, os.CopyFS(dir, os.DirFS(r.dir)))
	c := openRig(t, dir, r.id)
	c.o = r.o
	c.o.ScratchDir = t.TempDir()
	return c
}

func (r *rig) catalog() *snapshot.Catalog {
	r.t.Helper()
	c, err := snapshot.ReadCatalog(r.t.Context(), r.repo)
	require.NoError(r.t, err)
	return c
}

func (r *rig) manifest(id string) *snapshot.Manifest {
	r.t.Helper()
	for _, m := range r.catalog().Manifests {
		if m.ID == id {
			return m
		}
	}
	r.t.Fatalf("no backup %s", id)
	return nil
}

// check checks a backup, and wants nothing to be left behind.
func (r *rig) check(id string) report.Check {
	r.t.Helper()
	c, _ := r.checkAll(id)
	return c
}

// checkAll is check with what it found out of other backups.
func (r *rig) checkAll(id string) (report.Check, []report.Check) {
	r.t.Helper()
	c, others, err := Check(r.t.Context(), r.repo, r.catalog(), r.manifest(id), r.with(id))
	require.NoError(r.t, err)
	if c.Level != report.Replay || c.Object != r.id.String()+"/full/"+id || c.Status == report.Passed && c.Compared == "" || (c.Status == report.Unchecked) != (c.Reason != "") {
		r.t.Errorf("check %+v", c)
	}
	r.empty()
	return c, others
}

// with are the options with these backups unpacked.
func (r *rig) with(ids ...string) Options {
	r.t.Helper()
	o := r.o
	o.Unpacked = maps.Clone(o.Unpacked)
	for _, id := range ids {
		if o.Unpacked[id] != nil {
			continue
		}
		raw, err := io.ReadAll(r.image(id))
		require.NoError(r.t, err)
		sum := sha256.Sum256(raw)
		path := filepath.Join(r.t.TempDir(), "db")
		require.NoError(r.t, os.WriteFile(path, append(raw, sum[:]...), 0o600))
		if o.Unpacked == nil {
			o.Unpacked = map[string]*snapshot.File{}
		}
		if o.Unpacked[id], err = snapshot.OpenFile(path); err != nil {
			r.t.Fatal(err)
		}
	}
	return o
}

func (r *rig) empty() {
	r.t.Helper()
	if left, err := os.ReadDir(r.o.ScratchDir); err != nil || len(left) > 0 {
		r.t.Errorf("the scratch folder has %v (%v)", left, err)
	}
}

// store writes a database file as a backup, with a manifest around it.
func (r *rig) store(m snapshot.Manifest, path string, recipients ...age.Recipient) {
	r.t.Helper()
	raw, err := os.ReadFile(path)
	require.NoError(r.t, err)
	sum := sha256.Sum256(raw)
	var object bytes.Buffer
	w, err := codec.NewWriter(r.t.Context(), &object, codec.Options{Recipients: recipients})
	require.NoError(r.t, err)
	_, err = w.Write(append(raw, sum[:]...))
	require.NoError(r.t, err)
	require.NoError(r.t, w.Close())
	m.Format, m.Kind, m.Timeline, m.DatabaseSHA256 = 1, snapshot.KindFull, r.id, hex.EncodeToString(sum[:])
	m.Object = snapshot.StoredObject{Name: repository.SnapshotName(r.id, m.ID, 1, len(recipients) > 0), Encoding: w.Description()}
	r.write(m.Object.Name, object.Bytes())
	sealed, err := repository.Seal(m)
	require.NoError(r.t, err)
	r.write(repository.ManifestName(r.id, m.ID), sealed)
}

// write puts an object's bytes, whatever was there.
func (r *rig) write(name string, data []byte) {
	r.t.Helper()
	path := filepath.Join(r.dir, filepath.FromSlash(name))
	require.NoError(r.t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(r.t, os.WriteFile(path, data, 0o600))
}

// alter changes a backup's database and makes all sums fit again.
func (r *rig) alter(id string, change func(*bbolt.Tx) error) {
	r.t.Helper()
	m := r.manifest(id)
	path := filepath.Join(r.t.TempDir(), "db")
	in, err := snapshot.OpenStored(r.repo, m).Open(r.t.Context())
	require.NoError(r.t, err)
	raw, err := io.ReadAll(in)
	require.NoError(r.t, err)
	require.NoError(r.t, in.Close())
	require.NoError(r.t, os.WriteFile(path, raw, 0o600))
	changeFile(r.t, path, change)
	r.store(*m, path)
	_, err = io.Copy(io.Discard, r.image(id))
	require.NoError(r.t, err, "the altered backup does not pass its own checks")
}

func (r *rig) image(id string) io.Reader {
	r.t.Helper()
	in, err := snapshot.OpenStored(r.repo, r.manifest(id), r.o.Identities...).Open(r.t.Context())
	require.NoError(r.t, err)
	r.t.Cleanup(func() { in.Close() })
	return in
}

func changeFile(t testing.TB, path string, change func(*bbolt.Tx) error) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(change))
	require.NoError(t, db.Close())
}

// archive stores entries as segments of at most n entries. A log that was there
// is replaced.
func (r *rig) archive(entries []raftlog.Entry, n int, recipients ...age.Recipient) {
	r.t.Helper()
	for _, folder := range []string{"l0", "l1"} {
		require.NoError(r.t, os.RemoveAll(filepath.Join(r.dir, r.id.String(), folder)))
	}
	logtest.ArchiveAll(r.t, r.repo, r.id, entries, n, codec.Options{Recipients: recipients})
}
