package recovery

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"slices"

	"go.etcd.io/etcd/server/v3/storage/wal"
)

// lookAtEnd finds a log that was cut short where nothing in it tells. etcd allocates
// the newest file ahead, and begins another one when it is full: so a crash leaves
// room behind the last record. Without it a copy was interrupted, or the newest
// file was left out, and nobody knows what was behind.
func (d *memberDir) lookAtEnd(newest string) error {
	const next = "bring the whole log over once more, with all its files; until then it does not count as a witness of what was acknowledged"
	info, err := os.Stat(newest)
	if err != nil {
		return err
	}
	if size := info.Size(); size < wal.SegmentSizeBytes {
		// Where etcd itself cut a torn record off, what it was cut from is beside it.
		if _, err := os.Stat(newest + ".broken"); errors.Is(err, fs.ErrNotExist) {
			d.remains.Findings = slices.DeleteFunc(d.remains.Findings, func(f Finding) bool { return f.Kind == KindTorn }) // no crash left it
			d.remains.find(KindCutLog, next, "the newest file of the log, %s, has %d bytes, and etcd allocates %d at once: its end was cut off, as by a copy that was interrupted", newest, size, wal.SegmentSizeBytes)
		}
		return nil
	}
	full, err := endsWithData(newest, info.Size())
	if full {
		d.remains.find(KindCutLog, next, "the newest file of the log, %s, is full, and etcd begins another one then, which is not here", newest)
	}
	return err
}

// endsWithData tells whether a file has no room behind its last record.
func endsWithData(path string, size int64) (_ bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var end [8]byte
	if size < int64(len(end)) {
		return true, nil
	}
	_, err = f.ReadAt(end[:], size-int64(len(end)))
	return !bytes.Equal(end[:], make([]byte, len(end))), err
}
