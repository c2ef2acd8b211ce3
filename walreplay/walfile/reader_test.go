package walfile

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
)

// The reader takes the same records as etcd's own decoder, up to the same end, of
// whole, damaged and cut files.
func TestReaderEqualsEtcds(t *testing.T) {
	w := newWriter(t, filepath.Join(t.TempDir(), "wal"), testIdentity)
	for i := uint64(1); i <= 200; i += 10 {
		w.save(i, entriesOf(i, i+9, 1, int(i)*7)...)
	}
	w.close()
	names, err := list(w.dir)
	check(t, err)
	whole, err := os.ReadFile(filepath.Join(w.dir, names[0].String()))
	check(t, err)
	end, err := lastByte(bytes.NewReader(whole), 0, int64(len(whole)))
	check(t, err)
	whole = whole[:end+1024]
	compareReaders(t, whole)
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // which bytes are damaged
	damaged, files := 0, 1000
	if testing.Short() {
		files = 250
	}
	for range files {
		b := bytes.Clone(whole)
		for range 1 + random.IntN(2) {
			switch at := random.IntN(len(b)); random.IntN(4) {
			case 0:
				b = b[:at+1]
			case 1:
				clear(b[at:min(len(b), at+512)])
			default:
				b[at] ^= 1 << random.IntN(8)
			}
		}
		if compareReaders(t, b) {
			damaged++
		}
		if t.Failed() {
			return
		}
	}
	if damaged < files/2 {
		t.Errorf("only %d of %d files were damaged", damaged, files)
	}
}

// compareReaders reports whether the end was no clean one.
func compareReaders(t *testing.T, b []byte) bool {
	t.Helper()
	r := newReader(bytes.NewReader(b), 0, int64(len(b)), chain{})
	d := wal.NewDecoder(file4k{bytes.NewReader(b), length(len(b))})
	for n := 0; ; n++ {
		rec, err := r.next()
		etcds := &walpb.Record{}
		wanted := d.Decode(etcds)
		if wanted == nil && etcds.GetType() == wal.CrcType {
			d.UpdateCRC(etcds.GetCrc())
		}
		if err == nil && wanted == nil {
			if rec.kind != etcds.GetType() || !bytes.Equal(rec.data, etcds.Data) || rec.end != d.LastOffset() || r.chain.sum != d.LastCRC() {
				t.Fatalf("record %+v, etcd reads %v, up to %d", rec, etcds, d.LastOffset())
			}
			continue
		}
		if err != nil && wanted == nil {
			// Stricter than etcd: see next.
			if n == 0 || errors.Is(err, errBroken) {
				break
			}
			t.Fatalf("error %v at %d, etcd reads %v", err, rec.at, etcds)
		}
		if (err == io.EOF) != (wanted == io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) != errors.Is(wanted, io.ErrUnexpectedEOF) ||
			errors.Is(err, wal.ErrCRCMismatch) != errors.Is(wanted, wal.ErrCRCMismatch) {
			t.Fatalf("error %v at %d, etcd says %v", err, rec.at, wanted)
		}
		break
	}
	_, err := r.next()
	return err != io.EOF
}

// file4k is what etcd's decoder reads from.
type file4k struct {
	io.Reader
	length
}

// FileInfo reports the length.
func (f file4k) FileInfo() (fs.FileInfo, error) { return info{size: int64(f.length)}, nil }

type length int

type info struct {
	fs.FileInfo
	size int64
}

// Size is the length.
func (i info) Size() int64 { return i.size }

// Name is for messages.
func (i info) Name() string { return "segment" }
