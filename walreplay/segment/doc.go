// Package segment is the stored raft log: segments of entries and marks as
// objects of a repository, and the log that they make up together.
//
// It promises:
//
//  1. Standard tools read it. A plain segment is a zstd file as it stands; an
//     encrypted one is an age file behind the first HeaderSize bytes.
//  2. Nothing altered goes unnoticed: Read returns entries only after every
//     byte of the object was accounted for, and ReadHeader a header only after
//     every byte of its block was.
//  3. Entries come in order, without holes, and from one history: each segment
//     agrees with the one before it by the chain's value, or, where a chain
//     begins anew, by equal entries that both hold.
//  4. A damaged or vanished object hides nothing that another one holds.
//  5. Memory is bounded by a few segments, whatever the log's length and
//     whatever hostile objects claim.
//
// and is owed in return: a segment's name decides between writers, so it is
// stored by conditional put (Put) and never renamed; a merged segment holds all
// entries and marks of those that it replaces, and never spans an anchor other
// than at its own beginning.
package segment
