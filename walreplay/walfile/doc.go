// Package walfile reads the write-ahead logs of etcd 3.4 to 3.7: those of
// stopped members and copies (Log), and those that a member is writing (Tail).
//
// It promises:
//
//  1. It only reads. Nothing in the directory is changed, locked or repaired.
//  2. Later records win: an entry that a later record at the same or a lower
//     index replaced is not given, and neither is anything that followed it.
//     Entries that a leader's snapshot made doubtful are not given either.
//  3. Entries come in order and without holes. Where the log has one, that is an
//     error which names its ends: *GapError where a leader's snapshot came,
//     *PurgedError where files are gone.
//  4. A write that was cut off by a crash (a torn tail) and damage are told apart
//     by etcd's own rule, that a torn write leaves zeroed sectors; and a torn
//     tail with synced records behind it is damage. Damage is a *CorruptError:
//     file, offset, cause.
//  5. Memory does not grow with the log. A Tail holds the entries that were not
//     released, softly bounded; a Log one block of 256 KiB (or one entry, where
//     that is larger), and a few words for each overwrite.
//  6. A log of an etcd that is newer than this package is refused by an
//     ErrNewer, which names the version where the log does.
//
// The caller owes: a Log's directory does not change while it is read; a Tail is
// used by one goroutine, polled more often than the member purges (every 30
// seconds, beyond five files), and told what is committed: neither can know
// which entries are.
package walfile
