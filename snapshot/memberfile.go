package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/dustin/go-humanize"

	"github.com/requorum/requorum/snapshot/boltfile"
	"github.com/requorum/requorum/store/client"
	"github.com/requorum/requorum/store/safedir"
)

// LocalMember is a member whose data directory is on this machine. Its database is read
// out of its file while the member goes on writing to it:
//
// A snapshot stream is opened, and read no further than the two meta pages that it
// begins with. Flow control makes the member wait then, inside the read transaction that
// the stream is of, and as long as a read transaction is open bbolt reuses no page that
// it can reach. So the stream's meta pages and the other pages of the file are the
// database of that transaction, as the stream would have given it. (Pages that are free
// in it may be written to meanwhile. They can hold anything, and are read by nobody.)
//
// Two things have to be certain. That the file is the one which the transaction is of: it
// has the stream's meta page, where bbolt wrote it. And that the transaction was open
// until the last page was read: the stream is read on after that, by more than can have
// been under way before. Where one of them is not, the snapshot is streamed.
type LocalMember struct {
	// ClusterID and MemberID are whose the directory is: its log says so.
	ClusterID, MemberID uint64
	// Database is the path of the file: member/snap/db in the data directory.
	Database string
}

const (
	// readOn is how much of the stream is read after the file. Of what the member sent
	// before that, 64 KiB can be in the connection, and twice as much in the member's
	// buffers (gRPC's, and two of 32 KiB). Where a proxy written in Go stands between,
	// up to 16 MiB can be in its flow control window; a client.HeldStream refuses those
	// that read further ahead.
	readOn = 20 << 20
	// smallestFile is the least size of a database whose file is read: a stream takes
	// hardly longer for less.
	smallestFile = 32 << 20
	// pinTries bounds how often the file may have been written to twice before it was
	// looked at. etcd commits ten times a second, and more often while it compacts.
	pinTries = 4
	// askEvery is how much of the file is read between two looks at whether the member is
	// there: one message of the stream each time. Nothing more is stored then that will
	// not count.
	askEvery = 64 << 20
	// fileChunk is how much of a file is read at once. It is more than two pages.
	fileChunk = 1 << 20
	// pageHeader and metaBytes: where in a page bbolt's meta is, and its size.
	pageHeader, metaBytes = 16, 64
	// largestMetas are two pages of the largest size.
	largestMetas = 2 * 64 << 10
)

// Candidates are the client's, and the local member first.
func (r *Request) Candidates(survey client.Survey, barrier client.Barrier) []client.MemberStatus {
	return r.Local.first(r.Client.Candidates(survey, barrier))
}

// Is reports whether it is that member; a nil one is none.
func (l *LocalMember) Is(clusterID, memberID uint64) bool {
	return l != nil && l.MemberID == memberID && l.ClusterID == clusterID
}

func (l *LocalMember) is(m client.MemberStatus) bool { return l.Is(m.ClusterID, m.MemberID) }

// first puts the member at the head of a list, where it is in it.
func (l *LocalMember) first(list []client.MemberStatus) []client.MemberStatus {
	i := slices.IndexFunc(list, l.is)
	if i <= 0 || list[i].Outvoted(list) {
		return list
	}
	return slices.Concat(list[i:i+1], list[:i], list[i+1:])
}

// mayReadFile reports whether the first of the candidates is the local member.
func (t *taking) mayReadFile(candidates []client.MemberStatus) bool {
	if t.Local == nil {
		return false
	}
	switch i := slices.IndexFunc(candidates, t.Local.is); {
	case i == 0:
		return true
	case i > 0:
		t.result.Streamed = fmt.Sprintf("%s is busy, behind, or has diverged, and another member is not", candidates[i])
	default:
		t.result.Streamed = fmt.Sprintf("%s is of member %s of cluster %s, to which no endpoint leads", t.Local.Database, ID(t.Local.MemberID), ID(t.Local.ClusterID))
	}
	return false
}

// toBeStreamed reports whether a stream may give what the file did not.
func (t *taking) toBeStreamed(ctx context.Context, err error) bool {
	var of *memberError
	if !errors.As(err, &of) || ctx.Err() != nil {
		return false
	}
	t.result.Streamed = of.Error()
	t.Logger.Info("the snapshot is streamed, and not read from the member's file", "file", t.Local.Database, "reason", t.result.Streamed)
	return true
}

// readFile reads the local member's database out of its file into the upload.
func (t *taking) readFile(ctx context.Context, member client.MemberStatus, up *upload) error {
	p, err := t.pin(ctx, member)
	if err != nil {
		return &memberError{err}
	}
	defer p.close()
	up.hash.hashed = true
	to := io.MultiWriter(up.hash.Hash, up.codec, CountBytes(func(n int64) {
		t.Progress(Progress{Phase: "file", Done: n, Total: p.size})
	}))
	if err := p.copyTo(to); err != nil {
		return err
	}
	t.Progress(Progress{Phase: "store"})
	if err := p.held(); err != nil {
		return &memberError{err}
	}
	if _, err := up.codec.Write(up.hash.Hash.Sum(nil)); err != nil {
		return err
	}
	return up.close()
}

// pin opens a stream and the file that it is of. Where the file was written to twice
// before it was looked at, that is not known, and the next stream is opened.
func (t *taking) pin(ctx context.Context, member client.MemberStatus) (*pinned, error) {
	for try := 1; ; try++ {
		stream, err := t.Client.HeldStream(ctx, member)
		if err != nil {
			return nil, err
		}
		p, err := newPinned(stream, t.Local.Database)
		if err == nil {
			return p, nil
		}
		stream.Close() //nolint:errcheck // it never fails
		if !errors.Is(err, errOtherFile) || try == pinTries {
			return nil, err
		}
	}
}

// heldStream is what is used of a client.HeldStream.
type heldStream interface {
	Next() ([]byte, error)
	Size() int64
	Close() error
}

// pinned is a read transaction of a member's, which a stream keeps open, and the file
// that it is of.
type pinned struct {
	stream heldStream
	head   []byte // of the stream, as far as it was read; the meta pages and more
	metas  int    // bytes of both meta pages
	size   int64
	file   *os.File
}

var errOtherFile = errors.New("it is not the file that the member writes to (is the member's data directory elsewhere, or does a mount hide it?), or is written to too often to be sure")

// newPinned reads the head of the stream, and opens the file, which has to have the same
// meta page. It is opened only now: what its meta page leads to was written before. The
// stream is not closed where that fails.
func newPinned(stream heldStream, path string) (*pinned, error) {
	p := &pinned{stream: stream, size: stream.Size()}
	if p.size < smallestFile {
		return nil, fmt.Errorf("the database has %s, and for less than %s a stream is as good", humanize.IBytes(uint64(p.size)), humanize.IBytes(smallestFile))
	}
	for len(p.head) < largestMetas {
		part, err := p.next()
		if err != nil {
			return nil, err
		}
		p.head = append(p.head, part...)
	}
	meta, err := boltfile.ParseMeta(p.head, 0)
	if err != nil {
		return nil, fmt.Errorf("the first page of the snapshot stream: %w", err)
	}
	p.metas = 2 * meta.PageSize
	if p.file, err = safedir.Open(path); err != nil {
		return nil, err
	}
	// bbolt writes the meta pages in turn.
	found := make([]byte, metaBytes)
	_, err = p.file.ReadAt(found, int64(meta.Transaction%2)*int64(meta.PageSize)+pageHeader)
	if err == nil && !bytes.Equal(found, p.head[pageHeader:pageHeader+metaBytes]) || err == io.EOF {
		err = errOtherFile
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), p.file.Close())
	}
	return p, nil
}

// next is the next piece of the stream, which is not to end.
func (p *pinned) next() ([]byte, error) {
	part, err := p.stream.Next()
	switch {
	case err == io.EOF:
		return nil, errShortStream
	case err == nil && p.stream.Size() != p.size:
		return nil, fmt.Errorf("the snapshot stream was of %d bytes, and is of %d now", p.size, p.stream.Size())
	}
	return part, err
}

// copyTo writes the database. What fails on the member's side is a memberError.
func (p *pinned) copyTo(w io.Writer) error {
	chunk := make([]byte, fileChunk)
	for at := int64(0); at < p.size; at += int64(len(chunk)) {
		chunk = chunk[:min(int64(len(chunk)), p.size-at)]
		if n, err := p.file.ReadAt(chunk, at); n < len(chunk) {
			if err == io.EOF {
				err = fmt.Errorf("it ends at byte %d, and the database at %d", at+int64(n), p.size)
			}
			return &memberError{fmt.Errorf("%s: %w", p.file.Name(), err)}
		}
		if at == 0 {
			copy(chunk, p.head[:p.metas])
		}
		if _, err := w.Write(chunk); err != nil {
			return err
		}
		if at%askEvery == 0 {
			if _, err := p.next(); err != nil {
				return &memberError{lost(err)}
			}
		}
	}
	return nil
}

func lost(err error) error {
	return fmt.Errorf("whether the member kept its read transaction open is not known: %w", err)
}

// held proves that the transaction was open until now: it reads bytes that the member
// cannot have sent before.
func (p *pinned) held() error {
	for read := 0; read < readOn; {
		part, err := p.next()
		if err != nil {
			return lost(err)
		}
		read += len(part)
	}
	return nil
}

func (p *pinned) close() {
	p.stream.Close() //nolint:errcheck // it never fails
	p.file.Close()   //nolint:errcheck // it was only read
}
