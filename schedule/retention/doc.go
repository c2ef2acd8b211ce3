// Package retention lets old backups and old log go, and never more than was
// promised to stay.
//
// What it promises:
//
//  1. What is kept is said, and checked, as what can still be restored: with
//     Policy.AnyPoint every point from that long before the end on that could be
//     restored before can be restored afterwards, from full snapshots that are not
//     known to be damaged. A plan that would break this is refused, by NewPlan and
//     once more by Execute.
//  2. Some backups never go, whatever the policy says: the newest of a timeline,
//     the newest that was read from a member, the newest that passed the rung
//     structure, and pinned ones. A damaged backup counts for nothing, and goes no
//     sooner than a good one in its place would.
//  3. Planning reads, and Execute deletes. Execute looks again before it deletes
//     anything: what was pinned, damaged or deleted since is taken into account,
//     and no backup goes that the plan does not let go.
//  4. Execute may be killed at any point and run again. At no point is a backup
//     listed that cannot be restored. The record comes first, then the manifest,
//     the object a grace time later, then the log (docs/format.md).
//  5. What is old is told by the place's own clock for what is deleted without a
//     policy (interrupted uploads, the grace time), and by the cluster's last
//     observation for the policy: while nothing new is stored, nothing goes.
//
// The caller owes: one policy for one repository. Two hosts that prune at once
// with the same policy do no harm.
package retention
