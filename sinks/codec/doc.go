// Package codec is the stored form of a large object: raw bytes, cut into
// independent zstd frames with a seek table at the end, and encrypted with age
// where recipients are given.
//
// It promises:
//
//  1. Standard tools read it. `zstd -d` (after `age -d` when encrypted) gives
//     the raw bytes back; the seek table is a skippable frame of the zstd
//     seekable format, which any zstd passes over.
//  2. Nothing altered goes unnoticed. A sequential reader returns io.EOF only
//     after the stored bytes, all of them, and the raw bytes had the sizes and
//     SHA-256 sums of the Encoding, and the seek table was the one that the
//     frames give. A ReaderAt returns raw bytes only from frames whose checksum
//     is the table's.
//  3. Memory is bounded by the frame size and the number of workers, whatever
//     the object holds and however hostile it is.
//  4. Secrets stay out of errors and of Encoding.
//
// and is owed in return: the Encoding that the Writer gave, kept beside the
// object, because an object is read by its own description and never by the
// configuration of the day.
package codec
