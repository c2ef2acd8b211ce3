package safedir

import "os"

// writebackEvery is how much is written before the disk is asked to begin with it.
const writebackEvery = 8 << 20

// Writeback is a file whose bytes are on their way to the disk while
// the next ones are written. Otherwise the disk idles meanwhile, and the sync at the end
// waits for all of it, and delays everybody else's, such as that of etcd's log. It does not
// promise that they arrive: Sync does.
type Writeback struct {
	*os.File
	written, begun int64
}

// NewWriteback is for a file that is written from its beginning on.
func NewWriteback(f *os.File) *Writeback { return &Writeback{File: f} }

// Write is the file's.
func (w *Writeback) Write(p []byte) (int, error) {
	n, err := w.File.Write(p)
	w.written += int64(n)
	if w.written-w.begun >= writebackEvery {
		beginWriteback(w.File, w.begun, w.written-w.begun)
		w.begun = w.written
	}
	return n, err
}
