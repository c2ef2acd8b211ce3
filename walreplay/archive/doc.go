// Package archive keeps the committed raft log of one member in a repository,
// continuously, while the member writes it.
//
// It promises:
//
//  1. Only committed entries are archived. What a member's log holds and the
//     cluster refused never gets there.
//  2. The archive is in order, and nothing is skipped, whatever is away (the
//     repository, the member, this process). What no archiver holds any more is
//     recorded as a gap, and reported, and a full snapshot is due at once.
//  3. Histories never mix. A log that contradicts what is archived goes to a
//     timeline of its own.
//  4. Of several archivers of one cluster one writes and the others stand by.
//     Whatever the others do meanwhile, late or twice, the archive stays right.
//  5. It changes nothing in the cluster: it reads files, and asks for status.
//  6. Silence is not success: a position that does not advance is an alarm.
//
// It is owed in return: a Status that comes from the member itself (no load
// balancer), and a spool folder that no other archiver uses.
//
// It is a pipeline. The log's tail is read; what is known to be committed goes to the
// outbox: memory, and what the repository does not take in time, the spool. Each
// archiver fills its outbox, and entries leave it, in order, when a contiguous archive
// holds them, whoever stored them there:
//
//   - The writer stores what comes next under the name that any other writer would
//     choose, so that a conditional put decides between two.
//   - A follower looks for that name, compares what is there with its own entries, and
//     stores them itself when the writer is late.
//   - What was spooled is stored as it is, by whoever has it: at the archive's end
//     under the next name, elsewhere under one of its own. Overlaps are legal.
//   - Where neither memory nor spool holds the entry that comes next, nor anybody has
//     stored it for three takeover times, that is a gap, and the archive goes on
//     behind it.
package archive
