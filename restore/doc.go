// Package restore builds the data directories of a new etcd cluster from one
// database image: a stored full snapshot, a file of `etcdctl snapshot save`,
// or a member's bare db file.
//
// It promises:
//
//  1. Nothing that a member would start from exists until all members of this
//     host are on disk and synced, however the run ends. Everything is built in
//     a folder aside; what is renamed to its place holds a WAL file that every
//     etcd refuses (the blocker), until the last member is in place.
//  2. No moment exists in which a member finds a data directory without a WAL,
//     from which it would bootstrap an empty cluster.
//  3. Nothing of the user's is deleted or overwritten. An existing directory is
//     refused, or set aside whole, in the same mount.
//  4. The same plan gives the same cluster on every host: token, IDs, revision.
//  5. A run that was killed needs no cleaning: the next one with the same
//     request completes it or starts anew.
//  6. Clients that remember a later revision are told "compacted" instead of
//     waiting in silence: the revision is bumped when a restore goes back.
//
// It is owed: members that are stopped while their directories are replaced
// (a running one is noticed by its locks and refused), and an Image whose Open
// returns io.EOF only when all checks passed.
//
// The steps: NewPlan decides everything and touches nothing, Plan.Check looks
// at this host, Execute builds and publishes.
package restore
