package snapshot_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/snapshot/boltfile"
	"github.com/requorum/requorum/store/safedir"
)

func gzipped(t testing.TB, content []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(content)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

func zstded(t testing.TB, content []byte, o ...zstd.EOption) []byte {
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b, o...)
	require.NoError(t, err)
	_, err = w.Write(content)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

func zipped(t testing.TB, content []byte, names ...string) []byte {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, name := range names {
		f, err := w.Create(name)
		require.NoError(t, err)
		if name[len(name)-1] != '/' {
			_, err = f.Write(content)
			require.NoError(t, err)
		}
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

func tarred(t testing.TB, content []byte) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: "snapshot.db", Mode: 0o600, Size: int64(len(content))}))
	_, err := w.Write(content)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

// saved is what `etcdctl snapshot save` writes.
func (s *source) saved(t *testing.T) []byte {
	stream, err := s.kv.Snapshot(t.Context())
	require.NoError(t, err)
	defer stream.Close()
	b, err := io.ReadAll(stream)
	require.NoError(t, err)
	return b
}

// What people name as a snapshot is opened if that is certain; else one sentence names
// what it is and what to type. Damaged is only what was cut, altered or added to. Names do
// not count: each file has one that says nothing.
func TestOpenAny(t *testing.T) {
	s := newSource(t, 1)
	saved := s.saved(t)
	bare := saved[:len(saved)-sha256.Size]
	want, err := snapshot.ReadFacts(t.Context(), bytes.NewReader(bare), int64(len(bare)))
	require.NoError(t, err)
	cut := func(b []byte, n int) []byte { return b[:len(b)-n] }
	encrypted := zipped(t, saved, "snapshot")
	encrypted[6] |= 1 // the flag in the local header, and in the directory
	encrypted[bytes.LastIndex(encrypted, []byte("PK\x01\x02"))+8] |= 1
	for name, c := range map[string]struct {
		content []byte
		says    string // "" if it is opened
		damaged bool
	}{
		"a snapshot":                 {content: saved},
		"a bare database":            {content: bare},
		"gzip":                       {content: gzipped(t, saved)},
		"gzip of a bare database":    {content: gzipped(t, bare)},
		"gzip in two members":        {content: append(gzipped(t, saved[:9000]), gzipped(t, saved[9000:])...)},
		"zstd":                       {content: zstded(t, saved)},
		"zstd in frames":             {content: append(append([]byte("\x50\x2a\x4d\x18\x04\x00\x00\x00abcd"), zstded(t, saved[:9000])...), zstded(t, saved[9000:])...)},
		"zip of k3s":                 {content: zipped(t, saved, "on-demand-node-1700000000")},
		"zip with a folder":          {content: zipped(t, saved, "db/snapshots/", "db/snapshots/s")},
		"zip of two files":           {content: zipped(t, saved, "a", "b"), says: "is a zip archive of 2 files: unpack it with unzip 'FILE', and name the snapshot"},
		"zip without a file":         {content: zipped(t, saved), says: "is a zip archive without a file"},
		"zip with a password":        {content: encrypted, says: "encrypted, or compressed in a way that is not known here: unpack it with unzip 'FILE'"},
		"zip of very many files":     {content: zipped(t, nil, manyNames(20000)...), says: "is a zip archive of very many files"},
		"zip that is cut":            {content: cut(zipped(t, saved, "s"), 9), says: "begins as a zip archive does", damaged: true},
		"gzip that is cut":           {content: cut(gzipped(t, saved), 100), says: "compressed with gzip and cannot be unpacked: it ends early: it was cut short", damaged: true},
		"zstd that is cut":           {content: cut(zstded(t, saved), 100), says: "compressed with zstd and cannot be unpacked: it ends early: it was cut short", damaged: true},
		"gzip with a wrong sum":      {content: append(cut(gzipped(t, saved), 8), 1, 2, 3, 4, 5, 6, 7, 8), says: "cannot be unpacked: gzip: invalid checksum", damaged: true},
		"gzip and more":              {content: append(gzipped(t, saved), "more"...), says: "cannot be unpacked", damaged: true},
		"gzip of a tar":              {content: gzipped(t, tarred(t, saved)), says: "is compressed with gzip, and its content is a tar archive, not an etcd snapshot"},
		"gzip of text":               {content: gzipped(t, []byte("hello")), says: "is compressed with gzip, and its content is text, which begins with \"hello\""},
		"gzip of zeros":              {content: gzipped(t, make([]byte, 1<<20)), says: "its content is not an etcd snapshot"},
		"zstd with a huge window":    {content: zstded(t, append(bytes.Clone(saved), make([]byte, 1<<20)...), zstd.WithWindowSize(256<<20), zstd.WithSingleSegment(false)), says: "unpack it with zstd -d --long=31 'FILE'"},
		"gzip of a cut snapshot":     {content: gzipped(t, cut(saved, 1000)), says: "it was cut short: its database has", damaged: true},
		"tar":                        {content: tarred(t, saved), says: "is a tar archive, not an etcd snapshot: unpack it with tar -xf 'FILE', and name the snapshot in it"},
		"xz":                         {content: []byte("\xfd7zXZ\x00\x00\x04"), says: "compressed with xz, not an etcd snapshot: unpack it with xz -dk 'FILE'"},
		"an object that is sealed":   {content: []byte("age-encryption.org/v1\n-> X25519 abc\n"), says: "restore it with --repo, or decrypt it with age -d -i IDENTITY 'FILE'"},
		"a manifest of a repository": {content: []byte(`{"format":1,"kind":"full"}`), says: "is a document of a requorum repository or plan, not an etcd snapshot"},
		"JSON":                       {content: []byte(`[{"kind":"List"}]`), says: "it is JSON, not an etcd snapshot", damaged: true},
		"an answer of a store":       {content: []byte("<?xml version=\"1.0\"?>\n<Error><Code>AccessDenied</Code></Error>"), says: `it is text, which begins with "<?xml version=\"1.0\"?>", not an etcd snapshot: use another snapshot`, damaged: true},
		"a segment of a WAL":         {content: append([]byte("\x04\x00\x00\x00\x00\x00\x00\x84\x08\x04\x10\x00"), make([]byte, 99)...), says: "part of a member's WAL, not an etcd snapshot: restore the whole data directory with --from-data-dir"},
		"empty":                      {content: nil, says: "it is empty", damaged: true},
		"cut short":                  {content: cut(saved, 1000), says: "it was cut short: its database has", damaged: true},
		"without its SHA-256's end":  {content: cut(saved, 7), says: "the SHA-256 behind its database of", damaged: true},
		"longer":                     {content: append(bytes.Clone(saved), "more"...), says: "it is longer than its database with a SHA-256", damaged: true},
		"random":                     {content: bytes.Repeat([]byte("\x99\x03"), 5000), says: "neither whole pages nor", damaged: true},
	} {
		t.Run(name, func(t *testing.T) {
			scratch := t.TempDir()
			path := filepath.Join(t.TempDir(), "it's here")
			require.NoError(t, os.WriteFile(path, c.content, 0o600))
			f, err := snapshot.OpenAny(t.Context(), path, scratch, func(int64, int64) {})
			if left, err := os.ReadDir(scratch); err != nil || len(left) > 0 {
				t.Errorf("%d files are left, %v", len(left), err)
			}
			if c.says != "" {
				require.ErrorContains(t, err, string(bytes.ReplaceAll([]byte(c.says), []byte("'FILE'"), []byte("'"+filepath.Dir(path)+`/it'\''s here'`))))
				if got := snapshot.IsDamaged(err); got != c.damaged {
					t.Errorf("damaged is %v: %v", got, err)
				}
				return
			}
			require.NoError(t, err)
			facts, err := f.Facts(t.Context())
			require.NoError(t, err)
			require.Equal(t, want, facts)
			r, err := f.Open(t.Context())
			require.NoError(t, err)
			got, err := io.ReadAll(r)
			require.NoError(t, err)
			require.True(t, bytes.Equal(bare, got))
			require.Equal(t, path, f.Name())
			require.NoError(t, r.Close())
			require.NoError(t, f.Close())
		})
	}
}

func manyNames(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = "a-name-of-some-length-" + string(rune('a'+i%26))
	}
	return all
}

// What unpacks to more than its first page says is not unpacked further, nor what has no
// room; and memory stays flat.
func TestOpenAny_Bomb_Refused(t *testing.T) {
	s := newSource(t, 1)
	bare := s.saved(t)
	db, err := boltfile.Open(t.Context(), bytes.NewReader(bare), int64(len(bare)))
	require.NoError(t, err)
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b)
	require.NoError(t, err)
	_, err = w.Write(bare[:db.Size()])
	require.NoError(t, err)
	_, err = w.Write(make([]byte, 200<<20))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	path := filepath.Join(t.TempDir(), "bomb")
	require.NoError(t, os.WriteFile(path, b.Bytes(), 0o600))
	dir := t.TempDir()
	free, known, err := safedir.Free(dir)
	require.NoError(t, err)
	if !known || free < 1<<30 {
		t.Skip("1 GiB of free space are needed")
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	_, err = snapshot.OpenAny(t.Context(), path, dir, func(int64, int64) {})
	require.ErrorContains(t, err, "its content continues after")
	require.False(t, snapshot.IsDamaged(err))
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 32<<20 {
		t.Errorf("it allocated %d bytes for 64 MiB", took)
	}
}

// FuzzOpenAny opens what somebody else wrote: nothing panics, nothing is left behind, and
// what is opened can be read or is refused.
func FuzzOpenAny(f *testing.F) {
	page := make([]byte, 8192)
	for _, c := range [][]byte{page, gzipped(f, page), zstded(f, page), zipped(f, page, "a"), zipped(f, page, "a", "b/"), tarred(f, page), []byte("{}"), []byte("\x50\x2a\x4d\x18")} {
		f.Add(c)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(path, content, 0o600))
		file, err := snapshot.OpenAny(t.Context(), path, t.TempDir(), func(int64, int64) {})
		if err != nil {
			return
		}
		_, _ = file.Facts(t.Context())
		require.NoError(t, file.Close())
	})
}
