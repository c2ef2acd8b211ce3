// Package pages reads a bbolt database through an io.ReaderAt: from a file, or
// out of a stored object of which only the pages that are looked at have to be
// fetched. It maps nothing into memory and writes nothing.
//
// It promises:
//
//  1. What bbolt finds, it finds: every bucket, key and value.
//  2. A damaged database gives an error that names the page and its place in
//     the file: never a panic, never an endless walk, and never more memory
//     than a few pages as large as the file itself proves them to be.
//  3. Keys and values stay valid and unchanged. They must not be written to.
//
// A File and what comes from it is used by one goroutine at a time.
//
// # The format
//
// It is that of bbolt's internal/common (page.go, meta.go, bucket.go, inode.go),
// version 2. A file is a row of pages of one size. All numbers are in the byte
// order of the machine that wrote them; this package reads little-endian ones.
//
// Every page starts with a header of 16 bytes: its number (8 bytes), its kind
// (2), how many elements it has (2), and how many more pages it extends over
// (4). Pages 0 and 1 are of the kind meta; of two intact ones the one with the
// higher transaction number counts. After the header a meta page holds
//
//	magic 4 | version 4 | page size 4 | flags 4 | root page 8 | sequence 8 |
//	freelist page 8 | number of pages 8 | transaction 8 | FNV-1a of the 56 bytes before 8
//
// A branch page holds, for each child, its smallest key: elements of
//
//	position 4 | key size 4 | page 8
//
// and a leaf page keys and values:
//
//	flags 4 | position 4 | key size 4 | value size 4
//
// where a position counts from the element's own first byte, and the value
// follows its key. Flag 1 marks a bucket: its value is
//
//	root page 8 | sequence 8
//
// and, when the root page is 0, the bucket's only page, a leaf, right there.
package pages
