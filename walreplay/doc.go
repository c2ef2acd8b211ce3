// Package walreplay takes a cluster back to a point in time: from a full
// snapshot, or a stopped member's database, and the raft log after it, of one or
// joined of several.
//
// It promises:
//
//  1. A point is a raft index. A time, a revision or a key stand for one, and
//     Resolve says which.
//  2. What is rebuilt is the state that every member had after the entry at that
//     index: with the history of keys that was not compacted by then, whatever
//     was compacted later.
//  3. A point that the log does not cover is a *NotCoveredError, which names the
//     nearest ones that it does. Nothing near is taken for what was asked for,
//     unless that was asked for.
//  4. Damage is an error that names the last good point before it; nothing is
//     rebuilt over it.
//  5. Histories do not mix: a snapshot and the log after it are of one timeline,
//     and their terms agree where both show one; logs of several are joined only where
//     they hold the same entry.
//  6. Sources are opened for reading only. What is written goes to a scratch
//     folder, which is removed when it is done with, at the latest by the next
//     run in the same place.
//  7. A Recipe rebuilds the same state again, anywhere, or says that it could
//     not.
//
// What Resolve refuses, although a snapshot may still know of it: a revision
// before the oldest snapshot that the log goes on from. The key history in a
// later snapshot may reach back to it, but not what leases, users, alarms and
// members were then.
package walreplay
