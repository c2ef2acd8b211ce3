package companions

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/requorum/requorum/snapshot"
)

const (
	// steadyTries is how often a file is read that changes meanwhile, steadyPause
	// the time between: certificates are renewed in milliseconds.
	steadyTries = 5
	steadyPause = 200 * time.Millisecond
)

// errChanges says that a file did not stand still.
var errChanges = errors.New("it changes while it is read")

// file adds one file, as it was at one moment, under a name; place is where it is.
func (p *packer) file(name, place string, open func() (*os.File, error)) error {
	header, data, err := p.read(open)
	for try := 1; errors.Is(err, errChanges) && try < steadyTries; try++ {
		select {
		case <-p.ctx.Done():
			return at(place, context.Cause(p.ctx))
		case <-time.After(steadyPause):
		}
		header, data, err = p.read(open)
	}
	if err != nil {
		return at(place, err)
	}
	header.Name = name
	p.content.Files++
	p.content.Bytes += int64(len(data))
	if err := p.tar.WriteHeader(header); err != nil {
		return at(place, err)
	}
	_, err = p.tar.Write(data)
	return err
}

// read reads a file whole. It holds no more than one in memory, and none that is
// larger than what companions may have.
func (p *packer) read(open func() (*os.File, error)) (*tar.Header, []byte, error) {
	f, err := open()
	if err != nil {
		return nil, nil, err
	}
	defer f.Close() //nolint:errcheck // it was read from
	before, err := f.Stat()
	switch {
	case err != nil:
		return nil, nil, err
	case !before.Mode().IsRegular():
		return nil, nil, errChanges // it was a file when the folder was listed
	case before.Size() > snapshot.CompanionLimit-p.content.Bytes:
		return nil, nil, fmt.Errorf("with its %d bytes the companion has more than the %d that all may have together; list less", before.Size(), int64(snapshot.CompanionLimit))
	}
	data := make([]byte, before.Size())
	if _, err := io.ReadFull(f, data); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
			err = errChanges
		}
		return nil, nil, err
	}
	n, err := f.Read(make([]byte, 1))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	after, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if n > 0 || after.Size() != before.Size() || !after.ModTime().Equal(before.ModTime()) {
		return nil, nil, errChanges
	}
	return &tar.Header{Typeflag: tar.TypeReg, Size: before.Size(), Mode: int64(before.Mode().Perm()), ModTime: before.ModTime().Truncate(time.Second)}, data, nil
}
