// Package archive keeps the committed raft log of one member in a repository,
// continuously, while the member writes it.
//
// It promises:
//
//  1. Only committed entries are archived. What a member's log holds and the
//     cluster refused never gets there.
//  2. The archive is in order and without holes. Whatever is away (the
//     repository, the member, this process) nothing is skipped; what no member
//     holds any more is recorded as a gap, and reported.
//  3. Histories never mix. A log that contradicts what is archived goes to a
//     timeline of its own.
//  4. Of several archivers of one cluster one writes and the others stand by.
//     Whatever the others do meanwhile, late or twice, the archive stays right.
//  5. It changes nothing in the cluster: it reads files, and asks for status.
//  6. Silence is not success: a position that does not advance is an alarm.
//
// and is owed in return: a Status that comes from the member itself (no load
// balancer), and a spool folder that no other archiver uses.
package archive
