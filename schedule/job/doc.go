// Package job runs jobs of agents that share a repository and know nothing of each other.
// It decides when a job is to be run, by which agent, and records how it ended.
//
// Jobs are conditions. Twice a minute each agent asks of each job whether it is due: the
// newest result is older than the schedule's last slot, or the repository shows an occasion
// ([Entry.Due]). What is to be done follows from what is in the repository, so a crash leaves
// no books but the records of the attempts at a slot.
//
// There is no lease for the jobs and no holder. Who writes the archive is elected already
// (package archive), and that agent goes first here ([Options.Prefer]). It cannot be more than
// that: verifiers and agents without a member have no part in that election, the writer may
// lack the keys or the right to run a job, and a slow job must not keep the log waiting. So
// the record of an attempt, which one agent can write, decides who runs the job, and signs of
// life beside it (beats) show the others that it is under way.
//
// # The rules
//
// Check the code against them; behind each is the test that fails if the rule is broken.
// TestAgentsAtRandom kills, stops, stalls and cuts off five agents whose clocks differ.
//
// When a job is due:
//
//  1. A slot of the schedule is due from its time on until a result is recorded for it or for a
//     newer one. Of the slots that are past, only the newest is: after a day of outage an
//     hourly job runs once. What was due before the repository was made is not
//     (TestPromise3MissedRuns, TestPromise3NewRepository).
//  2. A slot that came due during a run of the job is answered by that run
//     (TestPromise4Skipped).
//  3. Slots are wall times of a zone, moved by a share of the jitter that follows from the
//     repository and the job, so all agents agree on them (TestDaylightSaving, TestJitter).
//     Results of slots more than an hour ahead are ignored: a clock was wrong
//     (TestPromise3MissedRuns).
//  4. An occasion is due once, under a slot that all agents derive from the repository alike
//     (TestOccasion_SeveralAgents_OneRuns), and not by a listing from before the last run
//     ended (TestOccasion_StaleListing_IsNoReason).
//
// Who runs it:
//
//  5. An agent begins a run by a conditional put of the attempt's record; so one agent wins
//     (TestAgentsAtRandom, TestRequests).
//  6. An agent that should not do the jobs leaves each slot to others for 90 seconds, and so
//     does an agent whose attempt failed (TestPreferred, TestFailuresAreTriedElsewhere). A
//     job with Here is not left to others (TestHere).
//  7. While it runs, its agent writes a beat each minute. Another agent makes the next attempt
//     once it has seen no new beat for three minutes by its own monotonic clock; no clocks of
//     two hosts are compared. The agent itself does at once after a restart
//     (TestPromise2TakenOver, TestPromise2TwoDead, TestDamagedAttempt).
//  8. A run ends half a minute before it may be taken over, by the wall clock as well, and
//     does not count from then on (TestPromise2WorkEndsBefore).
//  9. In one agent a job never runs twice at once (TestRunNow).
//
// How it ends:
//
//  10. A slot has three attempts, an occasion one. An attempt whose agent died counts: a job
//     that kills its process is not repeated for ever. One that was stopped with its agent does
//     not count (TestPromise6Attempts, TestStoppedInTheMiddle, TestOccasionOfKilledAgent). A
//     failure that another attempt would repeat ends the slot (TestFinalFailure).
//  11. A result is never replaced. If one agent records a failure and another one a success,
//     the success counts (TestAgentsAtRandom).
//  12. If the repository is unreachable, beginning a run and recording its end are repeated
//     (TestPromise5RepositoryAway); a record whose answer was lost is the agent's own
//     (TestLostAnswers).
//  13. If signatures are checked, records that no trusted key signed do not count
//     (TestForeignResultsAhead).
//  14. Two agents of one name take each other's runs for their own; that is found out
//     (TestPromise8DuplicateName).
//
// A job owes in return: it ends soon after its context does, and it does no harm if it is
// run twice. What it writes under a name that follows from job and slot, it writes once.
//
// # Requests
//
// An idle agent makes none but the listing of [Runner.History] (more if old results may not be
// deleted: one for each 1,000 new ones). A slot takes a LIST of each agent and 2 PUT, and a PUT for each
// minute of the run; other agents list it each minute meanwhile (TestRequests).
package job
