// Package verify proves that what was stored can be restored: a repository, a
// snapshot file, or a member's data directory.
//
// It promises:
//
//  1. A rung says what was compared with what, and includes the rungs before it.
//     What was not looked at is not called proved: it is Unchecked, with the
//     reason.
//  2. All faults are listed, not only the first.
//  3. It only reads what it verifies. Files of a data directory are opened
//     read-only, and not at all locked against a member that runs.
//  4. Memory is flat: snapshots are streamed, and a log's segments read a few at
//     a time.
//  5. What it writes to its scratch folder is removed, however it ends; what a
//     killed run left, by the next.
//
// and is owed in return: sinks that stay open meanwhile.
package verify
