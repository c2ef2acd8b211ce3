// Package synthetic makes a new full snapshot of the newest one and the archived
// log after it, without reading any member of the cluster.
//
// It promises:
//
//  1. What is stored is the state at the end of the log: the same object and the
//     same kind of manifest as those of a snapshot that was read from a member,
//     and etcd's own tools take it. The manifest says what it was made from.
//  2. It is begun from the newest backup that is not known to be bad. Where the log
//     does not lead on from there to its end (a gap, damage), nothing is made: a
//     full snapshot of a member is due then.
//  3. The database is gone through before it is stored, and compared with what live
//     members served, as far as the archive has that. What differs is not stored.
//  4. What was encrypted is not stored in the clear.
//  5. What fails or is interrupted leaves no backup; scratch files are removed, at
//     the latest by the next run in the same folder.
//
// It does not prove that the log, the backup before it, or the replay are right:
// the next snapshot of a member does, when it is verified from an earlier one of a
// member (see the rung replay).
package synthetic
