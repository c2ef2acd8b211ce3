// Package digest is the file in which a host tells what is left of its member,
// without the data: who writes it reads the member's own log, and who reads it
// compares that log with others.
//
// # Format
//
// A digest is a line that names the format, a head, one record for each entry, in
// the order of their indexes, a byte of 3, an end, and the SHA-256 over all that
// comes before it. Head and end are JSON documents of the caller's, each behind its
// length. Numbers are unsigned varints.
//
// A record is a byte of bits, the parts that they announce, and the entry's data,
// behind its length, or in place of it the first 16 bytes of its SHA-256: data is
// there only where whoever reads it has to know what the entry says.
//
//	0x03  the type: 0 an entry like most, 1 and 2 changes of who the members are
//	0x04  the data is there; always for types 1 and 2
//	0x08  where it is not: the entry may have moved the revision
//	0x10  the index is not the next one: how much further it is than the last one
//	      (of the first record: than 0) comes behind this byte
//	0x20  the term is not the last one's (of the first record: not 0): it comes then
//
// Most records take 17 bytes. Nothing is compressed: sums cannot be.
//
// It promises:
//
//  1. Reading and writing hold one record in memory, whatever the log's length.
//  2. What was cut off, altered, or lengthened is an error, and so is another
//     version of the format. Nothing of a digest is to be used before its end was
//     read without one.
//  3. Nothing that comes from outside makes it panic, or allocate much more than
//     the bytes that came.
//
// A sum of an entry's data is no secret's keeper: who can guess the data can
// check the guess by it. A digest is as confidential as the log.
package digest
