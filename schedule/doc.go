// Package schedule is the agent: what runs beside each etcd member, archives its
// log, does jobs on a schedule, and tells somebody when something is wrong
// before it is needed.
//
// It promises:
//
//  1. The log is archived whatever else fails: neither a job, nor a repository
//     or a member that is away, nor a configuration that cannot be honoured
//     ends it.
//  2. What is wrong is a problem in the status until it is over, with the reason
//     and the next step; what is promised and does not hold makes the agent not
//     ready. A position that does not advance is a problem, not only an error
//     that was counted.
//  3. Of several agents of one repository each slot of a job is done by one,
//     without anything but the repository.
//  4. It changes nothing in the cluster and proposes nothing to it.
//  5. When its context ends, it ends within Grace: what was read is in the
//     repository or the spool, and a job that was under way is left to another
//     agent.
//
// What it asks of the machine: jobs that replay run in a process of their own,
// with a memory limit; the agent itself stays below 256 MiB.
package schedule
