// Package structure proves that a database is one that etcd can have written.
//
// It promises:
//
//  1. Every page is looked at once: each is reached from one place only, or is
//     on the freelist; keys are in order within and across pages.
//  2. Every bucket of etcd is decoded, and what belongs together fits: members
//     and the raft configuration, users and roles, keys and their leases.
//  3. Every key's history is one that etcd's mvcc makes: revisions without a
//     gap above the compacted one, create revision, mod revision and version in
//     step, a fresh start after each deletion, and what a compaction had to
//     leave.
//  4. HashKV, computed in the same pass, is the manifest's, and so are the
//     facts and the number of keys.
//  5. All faults are found, not only the first; what only follows from a fault
//     that is listed already is not listed beside it.
//  6. Damage never panics, never loops, and takes no more memory than a healthy
//     database of that size.
//  7. Nothing that etcd 3.4 to 3.7 writes is called a fault.
//
// A value that was altered together with every sum over it is found by the
// HashKV that a member answered with, or by no rung below replay.
//
// # Memory
//
// Two MiB for each worker, and for each key that the history names (also a
// deleted one, until its deletion is compacted) 46 to 48 bytes of a table that
// is keyed by 96 bits of a hash with random seeds. Beside that 8 bytes for
// each row up to the compacted revision, 8 for each lease, and two bits for
// each page. A process has up to twice of that, as Go's garbage collector goes. Values are never kept, so their size does not matter.
//
// # Not called faults
//
//   - A bucket or a key of the bucket meta that etcd 3.7 does not know: a note.
//   - A row without a value, as `etcdutl snapshot restore --bump-revision` and
//     requorum put in to raise the revision.
//   - A member of a database of etcd 3.4 or 3.5 that the raft configuration
//     does not have: those keep members that were removed in some cases, and
//     do not use them. A note.
//   - Members that the raft configuration does not have, or the other way, where
//     consistent_index says that no entry came since a restore: etcdutl leaves
//     the old configuration in the database until the member starts. A note.
//   - One member that the raft configuration is ahead of: etcd stores the
//     configuration first, and a snapshot can come between the two. A note.
//   - Revisions that are missing up to the compacted one, also when the
//     compaction is not finished.
//
// A database that etcd 3.4's `etcdctl migrate` made from etcd 2 has gaps in its
// revisions until they are compacted, and is called damaged.
package structure
