package restore

import "os"

// writebackEvery is how much is written before the disk is told to begin with
// it. Without that the disk idles while the image is decompressed, and the sync
// at the end waits for all of it: a fourth of a restore of 1.1 GiB to three
// members.
const writebackEvery = 16 << 20

// writebackFile is a file whose bytes are on their way to the disk while the
// next ones are written. It does not promise that they arrive: Sync does.
type writebackFile struct {
	*os.File
	written, begun int64
}

func (f *writebackFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	f.written += int64(n)
	if f.written-f.begun >= writebackEvery {
		beginWriteback(f.File, f.begun, f.written-f.begun)
		f.begun = f.written
	}
	return n, err
}
