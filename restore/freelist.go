package restore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
)

// bbolt's meta page: a header of 16 bytes, then these offsets.
const (
	pageHeader    = 16
	freelistFlag  = 0x10
	metaMagic     = 0xED0CDAED
	metaPageSize  = pageHeader + 8
	metaFreelist  = pageHeader + 32
	metaPages     = pageHeader + 40 // how many pages the database has
	metaTxid      = pageHeader + 48
	metaSum       = pageHeader + 56
	metaLength    = pageHeader + 64
	largestPage   = 1 << 16
	smallestPage  = 1 << 9
	metaPageCount = 2
)

// lendFreelist gives a database an empty list of free pages, in a new page at
// its end. etcd's databases have none, so bbolt would go through all pages to
// find the free ones, as slow as the pages are cold, and a damaged one would
// end the process: bbolt does that in a goroutine of its own. The one edit that
// follows puts its pages at the end, and leaves no list behind: etcd finds the
// free pages itself at its next start, this one among them.
func lendFreelist(path string) (err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	at, meta, err := newestMeta(f)
	if err != nil {
		return err
	}
	size, count := uint64(binary.NativeEndian.Uint32(meta[metaPageSize:])), binary.NativeEndian.Uint64(meta[metaPages:])
	if count > uint64(info.Size())/size {
		return fmt.Errorf("it was cut short: %d bytes for %d pages of %d", info.Size(), count, size)
	}
	page := make([]byte, size)
	binary.NativeEndian.PutUint64(page, count)
	binary.NativeEndian.PutUint16(page[8:], freelistFlag)
	if _, err := f.WriteAt(page, int64(count*size)); err != nil {
		return err
	}
	binary.NativeEndian.PutUint64(meta[metaFreelist:], count)
	binary.NativeEndian.PutUint64(meta[metaPages:], count+1)
	binary.NativeEndian.PutUint64(meta[metaSum:], sumMeta(meta))
	_, err = f.WriteAt(meta, at)
	return err
}

// newestMeta finds the valid meta page of the last transaction. Where the
// second one is depends on the page size, which only a meta page tells.
func newestMeta(f *os.File) (at int64, newest []byte, err error) {
	offsets := []int64{0}
	if first, ok := readMeta(f, 0); ok {
		newest = first
		offsets = []int64{int64(binary.NativeEndian.Uint32(first[metaPageSize:]))}
	} else {
		for size := int64(smallestPage); size <= largestPage; size *= 2 {
			offsets = append(offsets, size)
		}
	}
	for _, o := range offsets {
		meta, ok := readMeta(f, o)
		if ok && (newest == nil || binary.NativeEndian.Uint64(meta[metaTxid:]) > binary.NativeEndian.Uint64(newest[metaTxid:])) {
			at, newest = o, meta
		}
	}
	if newest == nil {
		return 0, nil, fmt.Errorf("none of its %d meta pages is valid", metaPageCount)
	}
	return at, newest, nil
}

func readMeta(f *os.File, at int64) ([]byte, bool) {
	meta := make([]byte, metaLength)
	if _, err := f.ReadAt(meta, at); err != nil {
		return nil, false
	}
	size := binary.NativeEndian.Uint32(meta[metaPageSize:])
	ok := binary.NativeEndian.Uint32(meta[pageHeader:]) == metaMagic &&
		binary.NativeEndian.Uint64(meta[metaSum:]) == sumMeta(meta) &&
		size >= smallestPage && size <= largestPage && size&(size-1) == 0
	return meta, ok
}

func sumMeta(meta []byte) uint64 {
	h := fnv.New64a()
	h.Write(meta[pageHeader:metaSum])
	return h.Sum64()
}
