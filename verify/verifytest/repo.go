package verifytest

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/requorum/requorum/sinks/disk"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/raftlog"
	"github.com/requorum/requorum/walreplay/segment"
)

const tool = "requorum test"

// Repo is a repository on disk that may be damaged.
type Repo struct {
	Dir        string
	Timeline   repository.TimelineID
	Backups    []string // their IDs, from the oldest state to the newest
	Identities []age.Identity
	recipients []age.Recipient
}

// Clone is a copy in a folder of the test.
func (r *Repo) Clone(t testing.TB) *Repo {
	t.Helper()
	c := *r
	c.Dir = filepath.Join(t.TempDir(), "repo")
	must(t, os.CopyFS(c.Dir, os.DirFS(r.Dir)))
	return &c
}

// Open opens it, until the test ends.
func (r *Repo) Open(t testing.TB) *repository.Repository {
	t.Helper()
	sink, err := disk.New(r.Dir)
	must(t, err)
	t.Cleanup(func() { shut(t, sink) })
	repo, err := repository.Open(t.Context(), sink)
	must(t, err)
	return repo
}

// Encrypted tells whether its objects are.
func (r *Repo) Encrypted() bool { return len(r.recipients) > 0 }

// Fingerprint is a sum over all names and bytes.
func (r *Repo) Fingerprint(t testing.TB) string {
	t.Helper()
	sum := sha256.New()
	for _, name := range r.Names(t, "") {
		fmt.Fprintf(sum, "%s %x\n", name, sha256.Sum256(r.Read(t, name)))
	}
	return fmt.Sprintf("%x", sum.Sum(nil))
}

// Names are those of all objects that begin so, sorted.
func (r *Repo) Names(t testing.TB, prefix string) []string {
	t.Helper()
	var names []string
	must(t, filepath.WalkDir(r.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(r.Dir, path)
		if name = filepath.ToSlash(name); strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
		return err
	}))
	slices.Sort(names)
	return names
}

func (r *Repo) path(name string) string { return filepath.Join(r.Dir, filepath.FromSlash(name)) }

// Read is an object as it is stored.
func (r *Repo) Read(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(r.path(name))
	must(t, err)
	return data
}

// Write puts an object in its place, whatever was there.
func (r *Repo) Write(t testing.TB, name string, data []byte) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(r.path(name)), 0o700))
	must(t, os.WriteFile(r.path(name), data, 0o600))
}

// Remove takes an object away.
func (r *Repo) Remove(t testing.TB, name string) {
	t.Helper()
	must(t, os.Remove(r.path(name)))
}

// RemoveAll takes away what begins so: something has to.
func (r *Repo) RemoveAll(t testing.TB, prefix string) {
	t.Helper()
	names := r.Names(t, prefix)
	if len(names) == 0 {
		t.Fatalf("nothing begins with %s", prefix)
	}
	for _, name := range names {
		r.Remove(t, name)
	}
}

// Object is the name of a backup's snapshot, Manifest that of its manifest.
func (r *Repo) Object(i int) string {
	return repository.SnapshotName(r.Timeline, r.Backups[i], r.Encrypted())
}

// ManifestName is the name of a backup's manifest.
func (r *Repo) ManifestName(i int) string {
	return repository.ManifestName(r.Timeline, r.Backups[i])
}

// Manifest is that of a backup.
func (r *Repo) Manifest(t testing.TB, i int) *snapshot.Manifest {
	t.Helper()
	var m snapshot.Manifest
	must(t, repository.Unseal(r.Read(t, r.ManifestName(i)), &m))
	return &m
}

// Reseal alters a document, and seals it anew.
func Reseal[T any](t testing.TB, r *Repo, name string, alter func(*T)) {
	t.Helper()
	var v T
	must(t, repository.Unseal(r.Read(t, name), &v))
	alter(&v)
	data, err := repository.Seal(v)
	must(t, err)
	r.Write(t, name, data)
}

// ForgetVerdicts takes away what earlier runs proved: who alters a repository
// and all its sums would do that too.
func (r *Repo) ForgetVerdicts(t testing.TB) {
	t.Helper()
	for _, name := range r.Names(t, "verdicts/") {
		r.Remove(t, name)
	}
}

// Segments are the segments of a level, by their first index.
func (r *Repo) Segments(t testing.TB, level int) []string {
	t.Helper()
	return r.Names(t, fmt.Sprintf("%s/l%d/", r.Timeline, level))
}

// Log is what the segments of level 0 hold.
func (r *Repo) Log(t testing.TB) []raftlog.Entry {
	t.Helper()
	repo := r.Open(t)
	var all []raftlog.Entry
	for _, name := range r.Segments(t, 0) {
		_, b, err := segment.Read(t.Context(), repo.Sink(), name, r.Identities...)
		must(t, err)
		all = append(all, b.Entries...)
	}
	return all
}
