// Package engine replays a raft log onto a database of etcd.
//
// The applier is etcd's own, of the version that go.mod pins, so that a replayed
// database is the one that the member had: every key, revision, lease, user,
// alarm and member, byte for byte. It stands on a bolt transaction of ours,
// which is faster than etcd's backend and can be rolled back.
//
// It promises:
//
//  1. After the same entries, every bucket holds what the member's holds, but
//     for what is listed below.
//  2. Nothing is skipped in silence: a kind of entry, a field or a value that
//     this version does not know is an *EntryError with ErrNewer, and so is
//     what would have made a member panic.
//  3. Time does not pass: no lease expires but by an entry that revokes it, and
//     what a checkpoint says of a lease's remaining time stays.
//  4. Indexes follow each other without a hole, and an entry moves the revision
//     by one at most.
//  5. The file changes in whole entries: whatever ends a run, the file holds the
//     state after one entry, and says which.
//
// Its caller owes:
//
//  1. A scratch copy of a database that was checked: a damaged one is an error
//     where etcd notices, but may end the process.
//  2. Entries that were committed, from the log of the same cluster.
//  3. Nobody else at the file. Nothing is synced before Close.
//
// # What is not replicated
//
// These parts of a member's database do not come from the log, or are written
// in another way by another version. A comparison must leave them out:
//
//   - meta/consistent_index and meta/term: a member's file may lag behind what
//     it has applied. etcd 3.4 keeps no term.
//   - meta/confState: written with the first membership change after the file
//     was made. etcd 3.4 keeps none.
//   - meta/storageVersion: each member from 3.6 on writes it by itself.
//   - meta/scheduledCompactRev, meta/finishedCompactRev and the rows of the key
//     bucket up to the compacted revision, while a member has not finished a
//     compaction: it is finished here before the next entry is applied.
//   - the tombstones at the compacted revision, which etcd up to 3.5.15 and
//     3.4.33 delete and later ones keep, as this does.
//   - cluster/clusterVersion and cluster/downgrade where a version did not
//     write them.
//   - the time left of a lease that has a checkpoint, from members before 3.6:
//     see Options.PersistCheckpoints; and the time that a short lease was
//     granted for, see Options.MinLeaseTTL.
//   - what was permitted or refused by a member older than 3.4.44, 3.5.30 or
//     3.6.11 with authentication on, and by its rules only: see
//     Options.SourceVersion. A log of members of several such versions (a rolling
//     upgrade) cannot be told apart, nor could the members agree on it.
//   - the hash of a password that a member of 3.4 was given: its log has the
//     password, and each member salts it anew. The new hash takes the same
//     password.
//   - the v2 store of 3.4 and 3.5, which is not in the database: of v2 requests
//     only those are applied that change the database too, which are a member's
//     attributes and the cluster's version. Kind tells the others ("v2-put" and
//     so on) for who wants to know.
//
// # Memory and speed
//
// etcd's index takes about 400 bytes a key, all else is bounded. Reading and
// decoding, applying, and writing to the file go on beside each other, in
// goroutines of their own: a replay can use two cores, and of more it has little.
package engine
