// Package schedule is the agent: it runs beside each etcd member, archives its log, runs jobs
// on a schedule, and reports problems before the archive is needed.
//
// It promises:
//
//  1. The log is archived whatever else fails: neither a job, nor an unreachable repository
//     or member, nor an invalid configuration ends it.
//  2. A problem is in the status until it is over, with the reason and the next step; a
//     promise that does not hold makes the agent not ready. A position that does not
//     advance is a problem, not only an error that was counted.
//  3. Of several agents of one repository each slot of a job is done by one,
//     without anything but the repository.
//  4. It changes nothing in the cluster and proposes nothing to it.
//  5. When its context ends, it ends within Grace: what was read is in the
//     repository or the spool, and a job that was under way is left to another
//     agent.
//
// Its needs: jobs that verify run `requorum verify` in a process, with a memory limit; the
// agent itself stays below 256 MiB.
//
// # The rules
//
// Check the code against them; behind each is the test that fails if the rule is broken.
// Package job has the rules of who runs a job and when.
//
// What is due:
//
//  1. A full snapshot, by the schedule: unless one of the timeline was begun since the slot,
//     by whichever agent or command, or an earlier attempt at the slot made it before it died.
//     A snapshot that is dated ahead does not count (TestTakenSince).
//  2. A full snapshot, once the log since the newest one is larger than jobs.full.max-log: by
//     the agent that writes the archive, at most once in half an hour (TestFullDue_BySize).
//  3. The first full snapshot, a minute after the start if there is no archiver that takes it
//     (TestFullDue_TheFirst).
//  4. A full snapshot that the archived log needs: the first of a timeline and one behind each
//     gap. The archive's writer takes it at once, a follower if none came for long
//     (TestTakeDue, TestTakeDueRepositoryAway, TestSnapshotCoversGap, TestBegunElsewhere).
//  5. A verification at level structure of the newest full snapshot, until a verdict proves it
//     or finds damage, whichever agent took it (TestStructureDue).
//  6. Everything else by its schedule only. What a run then verifies follows from the
//     verdicts: what is proved is not verified again, and damage in one full snapshot hides
//     nothing of the others (TestChosen, TestVerifyingJobs).
//
// What is shown:
//
//  7. The jobs are shown from one place, before the repository was reached as well
//     (TestJobs_BeforeTheRepository).
//  8. A run that found damage says so in a field of its record; no text is searched for it
//     (TestVerifyingJobs, TestPromise2Problems).
//  9. Up to when everything can be restored is never later than what is in the repository
//     (TestRecoveryPointIsNeverTooGood, TestRPOAsSeen).
//
// How it lives:
//
//  10. A repository that does not decide between two writers of one name is used only if the
//     configuration promises that the agent is alone (TestPromise3Lease).
//  11. The agent ends within Grace, also if nothing answers (TestPromise5EndsWithinGrace).
//  12. A refused configuration leaves the one before in force (TestReload).
package schedule
