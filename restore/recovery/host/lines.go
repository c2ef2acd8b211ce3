package host

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// eachLine hands out the whole lines of a journal, and says how many bytes they are. A
// last line without its end is none: a crash came while it was written.
func eachLine(in io.Reader, take func(line []byte) error) (whole int64, err error) {
	lines := bufio.NewReader(in)
	for number := 1; ; number++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return whole, nil
		}
		if err != nil { // there may be more, which must not be taken for a torn end
			return whole, fmt.Errorf("line %d cannot be read: %w", number, err)
		}
		if err := take(line); err != nil {
			return whole, fmt.Errorf("line %d: %w", number, err)
		}
		whole += int64(len(line))
	}
}

// file is an *os.File.
type file interface {
	io.ReadWriteSeeker
	Truncate(size int64) error
	Sync() error
}

// takeUp reads a journal that is gone on with, and cuts off a line that was not
// finished.
func takeUp(f file, take func(line []byte) error) error {
	whole, err := eachLine(f, take)
	if err != nil {
		return err
	}
	if err := f.Truncate(whole); err != nil {
		return err
	}
	_, err = f.Seek(whole, io.SeekStart)
	return err
}

// appendLine adds a value as a line, durably. Half a line never stands before the next
// one.
func appendLine(f file, v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	at, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		cut := f.Truncate(at)
		_, seek := f.Seek(at, io.SeekStart)
		return errors.Join(err, cut, seek)
	}
	return nil
}

// ErrBusy says that another process has a file's lock.
var ErrBusy = errors.New("another recovery of this cluster is at work")

// Lock locks a file, which is only read, until the caller closes it: for another process
// the error is ErrBusy. Where the file system has no such lock, as NFS for a file that is
// only read, there is none.
func Lock(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	err = takeLock(f)
	for _, none := range []error{unix.EBADF, unix.ENOLCK, unix.EOPNOTSUPP, unix.ENOSYS} {
		if errors.Is(err, none) {
			return f, nil
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return f, nil
}

func strict(line []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

// lockPatience is longer than a program that was just started holds a copy of a file
// that has been closed.
const lockPatience = time.Second

// takeLock gives ErrBusy where another process has the lock.
func takeLock(f *os.File) error {
	for began := time.Now(); ; time.Sleep(lockPatience / 20) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		if time.Since(began) > lockPatience {
			return ErrBusy
		}
	}
}

func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
