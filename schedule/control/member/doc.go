// Package member stops and starts one etcd member, whatever it runs under, and
// proves that it is stopped. It promises:
//
//  1. Stopped is proved, not believed: whatever a supervisor says, the locks that
//     etcd keeps on its database and its log are free, and no process writes to
//     the member's files or was started on them.
//  2. Stop and Start may be repeated: each goes on where an earlier call was
//     ended, and a manifest that was moved is never moved a second time.
//  3. A kind that must not be written to says what to do by hand instead.
//  4. Programs are run without a shell, and not for longer than the time that
//     they were given.
package member
