// Package recovery carries a recovery out: `requorum recover`. It runs where the
// operator works, and has `requorum host` do the work, which it starts on each host.
//
// It promises:
//
//  1. Nothing is changed before all hosts that take part have stored the decision, and
//     that was confirmed. Preflight changes nothing at all.
//  2. A cluster that serves is left alone (QuorumError), unless that is forced. No
//     recovery goes on while the old members that could come back are a majority.
//  3. The hosts know what was decided, and each what was done on it. Killed anywhere, Run
//     goes on where it was, from any machine that has the cluster file, and comes to the
//     same end, without asking again for what was confirmed; Undo puts back what was, at
//     any time.
//  4. What was confirmed is what is done: where the plan gets worse once more is
//     known, it is asked again, and a no puts everything back as it was.
//  5. All members begin with one database, which was compared with the databases of the other
//     survivors before any is started; no client comes back before the new cluster is proved.
//  6. What fails after that proof is incomplete, and never takes a serving cluster
//     away: the same command completes it.
//  7. One coordinator at a time: on this machine by a lock, elsewhere because hosts do
//     what the one asks that stored a decision last, and refuse the others.
//
// With a Local it recovers directories on this machine: each is a host in this process, and is only read.
// In place of set-aside, start and proof, one restore builds all members elsewhere, or none; what it
// built holds the decision (TestPromise1RecoverKilled, TestPromise3SurvivorsAreOnlyRead).
//
// Its caller owes a context, and an Events that answers questions. Nothing is
// printed here.
//
// # What "proven" follows from
//
// An outcome is proven if all of these hold, and otherwise unproven (sources/proof.go):
//
//  1. A survivor's log counts as a witness only if it was read to where its member had written it,
//     and goes with its database: not damaged, not cut off, not rolled back behind what an archive read
//     of that log (TestDamageIsRecognised, TestRolledBackSurvivors).
//  2. Of several directories of one member at most one counts (TestRolledBackSurvivors).
//  3. Every membership that may have been in force is known, and of each a majority of the
//     voters are witnesses. Learners and removed members are not voters
//     (TestRemovedMemberAndLearner, TestPromise2AgainstAModel).
//  4. Nothing shows an entry beyond the witnesses: no archive, and no database without a log
//     (TestScenarios).
//  5. Histories that went different ways are never joined: two entries of one term at one index, two
//     committed entries at one index, or a member that left without being asked show them
//     (TestForcedNewCluster, TestScenarios).
//  6. Then the chosen log is the one that the witnesses would elect: it holds every acknowledged
//     write (TestPromise2AgainstAModel, TestPoint1PowerCut).
//
// # What is compared before clients come back
//
//  7. The files of a survivor are those that the plan was made of, by names, sizes and times:
//     otherwise the plan is made again, and asked about if it is worse (TestWorse,
//     TestDeclinedAfterTheFence).
//  8. The base, the log's entries and the end of the replay are those of the plan
//     (sources.Rebuild; TestPieces, TestDamageIsRecognised).
//  9. If the database was begun from a survivor's, which has no checksums, every other sound survivor of
//     that history hashes its own at its newest revision, and the builder what it has rebuilt at the same:
//     a difference ends the run, names who differs, and nothing is started. Another compaction is a
//     warning. With --source a difference is a warning (TestJudge, TestCompare,
//     TestPoint3Damaged, TestPoint3FlippedValue).
//  10. The other hosts copy the file of the host that built it, each piece with its SHA-256, and
//     parts of two images are never joined; they refuse a plan of another cluster (host.TestFaults,
//     host.TestCluster).
//  11. A quorum of the new cluster serves with the members, the cluster ID and at least the revision
//     of what was built and, unless the revision was raised, its HashKV; and it takes a write
//     (verify/serve; TestRecoverAll). Members that come later are compared then (TestLateMember).
package recovery
