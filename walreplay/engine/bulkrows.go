package engine

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"

	"github.com/requorum/requorum/snapshot/boltfile"
	"github.com/requorum/requorum/store/safedir"
)

// rowAt says where a row of the bucket key lies: in the base's mapped file, or in the spool.
// There is its name (a revision), and behind that its value, an encoded mvccpb.KeyValue.
type rowAt uint64

// The bits of a rowAt. Below them is the offset in the base's file, or the number of a block
// of the spool and the offset in that.
const (
	inSpool   rowAt = 1 << 63
	isDeleted rowAt = 1 << 62 // the row says that its key was deleted
	blockBits       = 32

	// noRow is none: a file begins with a meta page.
	noRow rowAt = 0
)

// tombstoneSize is the size of the name of a row that is a deletion.
const tombstoneSize = boltfile.RowSize + 1

const (
	// spoolBuffer is about how much of the spool is in the heap: what is written there between
	// two compactions by many clusters, so that their rows never go to the file.
	spoolBuffer = 16 << 20
	// spoolSlack is the part of it by which the buffer is larger, for the rows of one entry.
	spoolSlack = 16
	// firstBuffer is the size that it begins with, as most logs are short, and bufferGrowth by
	// how much it grows.
	firstBuffer  = 64 << 10
	bufferGrowth = 8
	// spoolHeader stands before each row: the size of its value, the number of its key, and the
	// revision of that key's next row, where that came while this one was in the buffer.
	spoolHeader = 16
	nextAt      = 8 // in it
	// deletedMark is set in the header of a deletion, in the size.
	deletedMark = 1 << 31
)

// rows are the rows of the base, which are left where they are, and those that the log led
// to, in their order, in the spool: a buffer, and before that a file that is mapped as far as it
// is written. What a compaction drops while it is in the buffer is not written.
type rows struct {
	base []byte         // the mapped file; empty without one
	db   *boltfile.File // in it; nil without one

	file   *os.File
	size   int64    // of what is in the file, in whole pages
	blocks [][]byte // of the file, mapped
	mapped [][]byte
	buffer []byte // what comes next: a block as soon as it is written
	limit  int    // of the buffer, see spoolBuffer
}

// openRows maps the base, and makes the spool's file, which loses its name at once.
func openRows(ctx context.Context, base, spool string, limit int) (_ *rows, err error) {
	r := &rows{limit: limit}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	f, err := safedir.Open(base)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if r.base, err = r.mapFile(f, 0, info.Size()); err != nil {
		return nil, err
	}
	if len(r.base) > 0 {
		if r.db, err = boltfile.OpenBytes(ctx, r.base); err != nil {
			return nil, notBulk("%w", err)
		}
	}
	if r.file, err = safedir.Create(spool); err != nil {
		return nil, err
	}
	return r, safedir.Remove(spool)
}

func (r *rows) mapFile(f *os.File, offset, size int64) ([]byte, error) {
	if size == 0 {
		return nil, nil
	}
	if size > math.MaxInt {
		return nil, fmt.Errorf("map %s: %d bytes are more than this machine can address", f.Name(), size)
	}
	data, err := unix.Mmap(int(f.Fd()), offset, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", f.Name(), err)
	}
	r.mapped = append(r.mapped, data)
	return data, nil
}

func (r *rows) close() error {
	var err error
	for _, m := range r.mapped {
		err = errors.Join(err, unix.Munmap(m))
	}
	if r.file != nil {
		err = errors.Join(err, r.file.Close())
	}
	*r = rows{}
	return err
}

// get is a row: its name, and its value of size bytes. They are not to be written to, and the buffer's
// are valid until the next entry.
func (r *rows) get(at rowAt, size uint32) (name, value []byte) {
	var data []byte
	switch block := at.block(); {
	case at&inSpool == 0:
		data = r.base[at&^isDeleted:]
	case block == len(r.blocks):
		data = r.buffer[uint32(at):]
	default:
		data = r.blocks[block][uint32(at):]
	}
	n := boltfile.RowSize
	if at&isDeleted != 0 {
		n = tombstoneSize
	}
	return data[:n:n], data[n : n+int(size) : n+int(size)]
}

// block is the number of the block of a row in the spool.
func (at rowAt) block() int { return int(at &^ (inSpool | isDeleted) >> blockBits) }

// inBlock is the row whose header is at an offset in a block of the spool.
func inBlock(block, offset int, deleted bool) rowAt {
	at := inSpool | rowAt(block)<<blockBits | rowAt(offset+spoolHeader)
	if deleted {
		at |= isDeleted
	}
	return at
}

// add writes a row behind all others, of the key with number n in the index.
func (r *rows) add(n uint32, sub int64, deleted bool, kv *boltfile.KeyValue) (at rowAt, size uint32, err error) {
	length := kv.Size(deleted)
	if length >= deletedMark {
		return noRow, 0, fmt.Errorf("a row of %d bytes is too large", length)
	}
	if err := r.makeRoom(spoolHeader + tombstoneSize + length); err != nil {
		return noRow, 0, err
	}
	head := uint32(length)
	if deleted {
		head |= deletedMark
	}
	at = inBlock(len(r.blocks), len(r.buffer), deleted)
	b := binary.LittleEndian.AppendUint32(r.buffer, head)
	b = binary.LittleEndian.AppendUint32(b, n)
	b = binary.LittleEndian.AppendUint64(b, 0)
	b = binary.BigEndian.AppendUint64(b, uint64(kv.Modified))
	b = binary.BigEndian.AppendUint64(append(b, '_'), uint64(sub))
	if deleted {
		b = append(b, 't')
	}
	r.buffer = kv.Append(b, deleted)
	return at, uint32(length), nil
}

// makeRoom makes room for so many bytes in the buffer. Rows that were got before stay readable: it never
// writes over them.
func (r *rows) makeRoom(need int) error {
	if cap(r.buffer)-len(r.buffer) >= need {
		return nil
	}
	if len(r.buffer) > r.limit { // an entry with more than the slack
		if err := r.flush(); err != nil {
			return err
		}
		r.buffer = nil
	}
	size := max(bufferGrowth*cap(r.buffer), firstBuffer)
	if size > r.limit/2 {
		size = r.limit + r.limit/spoolSlack
	}
	r.buffer = append(make([]byte, 0, max(size, len(r.buffer)+need)), r.buffer...)
	return nil
}

// supersede notes that a key has a newer row, of a revision.
func (r *rows) supersede(at rowAt, revision int64) {
	if at&inSpool != 0 && at.block() == len(r.blocks) {
		binary.LittleEndian.PutUint64(r.buffer[int(uint32(at))-spoolHeader+nextAt:], uint64(revision))
	}
}

// tidy drops the rows that a compaction up to a revision drops from the buffer when that is full, and
// writes it to the file where too much is left. It is for between two entries: rows move in it.
func (r *rows) tidy(x *keyIndex, compacted int64) error {
	if len(r.buffer) <= r.limit {
		return nil
	}
	kept := r.buffer[:0]
	for rest := r.buffer; len(rest) > 0; {
		h := headerOf(rest)
		row := rest[:h.length]
		rest = rest[h.length:]
		switch {
		case h.next == 0: // the key's newest, which the index is about, deletions too
			x.keys[h.n].at = inBlock(len(r.blocks), len(kept), h.deleted)
		case h.next <= compacted:
			continue
		}
		kept = append(kept, row...)
	}
	r.buffer = kept
	if len(kept) <= r.limit*3/4 {
		return nil
	}
	if err := r.flush(); err != nil {
		return err
	}
	if r.buffer = r.buffer[:0]; cap(r.buffer) > r.limit+r.limit/spoolSlack {
		r.buffer = nil
	}
	return nil
}

// flush makes the buffer a block of the file.
func (r *rows) flush() error {
	if _, err := r.file.WriteAt(r.buffer, r.size); err != nil {
		return fmt.Errorf("write the rows of the log: %w", err)
	}
	m, err := r.mapFile(r.file, r.size, int64(len(r.buffer)))
	if err != nil {
		return err
	}
	r.blocks = append(r.blocks, m)
	pages := (len(r.buffer) + os.Getpagesize() - 1) / os.Getpagesize()
	r.size += int64(pages * os.Getpagesize())
	return nil
}

// header is what stands before a row in the spool.
type header struct {
	size    uint32
	deleted bool
	n       uint32
	next    int64 // 0: none, or it came later
	length  int   // of all, the row too
}

func headerOf(b []byte) header {
	le := binary.LittleEndian
	head := le.Uint32(b)
	h := header{size: head &^ deletedMark, deleted: head&deletedMark != 0, n: le.Uint32(b[4:]), next: int64(le.Uint64(b[nextAt:]))}
	h.length = spoolHeader + boltfile.RowSize + int(h.size)
	if h.deleted {
		h.length += tombstoneSize - boltfile.RowSize
	}
	return h
}

// mark is a place in the spool to come back to.
type mark struct{ blocks, used int }

func (r *rows) mark() mark { return mark{len(r.blocks), len(r.buffer)} }

// cut drops the rows behind a mark. Nothing can be added afterwards.
func (r *rows) cut(m mark) {
	if len(r.blocks) > m.blocks { // the buffer was written since
		r.buffer, r.blocks = r.blocks[m.blocks], r.blocks[:m.blocks]
	}
	r.buffer = r.buffer[:m.used]
}

// row is one of the bucket key, in its file or the spool.
type bulkRow struct {
	at   rowAt
	size uint32
	n    uint32 // of its key in the index; known in the spool only
	boltfile.Row
	name, value []byte
}

// each visits all rows, those of the base before those of the log.
func (r *rows) each(visit func(bulkRow) error) error {
	if err := r.eachOfBase(visit); err != nil {
		return err
	}
	for i := range len(r.blocks) + 1 {
		b := r.buffer
		if i < len(r.blocks) {
			b = r.blocks[i]
		}
		for at := 0; at < len(b); {
			h := headerOf(b[at:])
			row := bulkRow{at: inBlock(i, at, h.deleted), size: h.size, n: h.n}
			row.name, row.value = r.get(row.at, row.size)
			row.Row = boltfile.Row{Revision: boltfile.Revision{Main: int64(binary.BigEndian.Uint64(row.name))}, Deleted: h.deleted}
			if err := visit(row); err != nil {
				return err
			}
			at += h.length
		}
	}
	return nil
}

// keyBucket is where etcd's users' keys are.
var keyBucket = []byte("key")

// eachOfBase visits the rows of the base in their order. Pages that make no sense are an
// ErrNotBulk.
func (r *rows) eachOfBase(visit func(bulkRow) error) error {
	if r.db == nil {
		return nil
	}
	keys, err := r.db.Bucket(keyBucket)
	if err != nil || keys == nil {
		return leftToEtcd(err)
	}
	return leftToEtcd(keys.EachElement(func(e boltfile.Element, at int64) error {
		name, err := boltfile.ParseRow(e.Key)
		if err != nil {
			return notBulk("a row: %w", err)
		}
		if e.Bucket || uint64(len(e.Value)) >= deletedMark {
			return notBulk("the value of row %s makes no sense", name.Revision)
		}
		row := bulkRow{at: rowAt(at), size: uint32(len(e.Value)), Row: name, name: e.Key, value: e.Value}
		if name.Deleted {
			row.at |= isDeleted
		}
		return visit(row)
	}))
}

// leftToEtcd makes an ErrNotBulk of damaged pages.
func leftToEtcd(err error) error {
	if page := (*boltfile.PageError)(nil); errors.As(err, &page) {
		return notBulk("%w", err)
	}
	return err
}

// unchanged makes sure that the base was the same database from openRows on until now: bbolt
// reuses a page only after the transaction that freed it has written its meta page.
func (r *rows) unchanged() error {
	if r.db == nil {
		return nil
	}
	if now, err := boltfile.OpenBytes(context.Background(), r.base); err != nil || now.Meta() != r.db.Meta() {
		return notBulk("somebody else writes to it: %w", cmp.Or(err, errChanged))
	}
	return nil
}

var errChanged = errors.New("its meta page is another one now")
