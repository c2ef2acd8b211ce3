// Package replaying proves a full snapshot from the one before it and the raft
// log between them: the log is replayed onto that one, up to the snapshot's raft
// index, and the two databases are compared in every bucket. A row of snapshots
// with the log between them thereby proves itself, without the cluster.
//
// It promises:
//
//  1. What is begun from is never the snapshot itself, and the log is really
//     replayed, where there is a snapshot before it. What was compared with what
//     is said in the check.
//  2. A difference names the first key and revision that differ. Which of the
//     three is wrong (the snapshot, the one before it, the log), the two
//     databases cannot tell; where hashes that live members served can, the check
//     says so.
//  3. What cannot be proved is Unchecked, with the reason and the next step: no
//     snapshot before it, entries that are missing, an identity, space. It is
//     never taken for damage, nor for proof.
//  4. Sources are only read. What is written goes to scratch folders, which are
//     removed at the end, or by the next run in the same place.
//
// What passing does not prove: an altered entry whose keys were all overwritten
// or deleted, and compacted, before the snapshot leaves no trace in the state at
// the end. The states in between that the log would give are then proved only by
// the stamps of live members on the way, if there are any, and by the chain of
// the log. The check says up to which revision that is so.
package replaying
