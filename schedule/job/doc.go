// Package job says when a job is to be run, by whom, and how it ended. Several
// agents that know nothing of each other share one repository and do each slot
// of a job once. It promises:
//
//  1. A slot has one result, whoever wrote it; a result is never replaced, and
//     one that comes late is [ErrLost].
//  2. A slot whose holder dies or stalls is taken over by another agent, which
//     needs the repository for that and nothing else: no quorum, no clock that
//     agrees with another host's.
//  3. Of the slots that are past, the newest one that has no result is done, and
//     only that: after a day of outage an hourly job runs once, not 24 times. Slots
//     from before the repository was made are nobody's.
//  4. In one agent a job never runs twice at once. A slot that comes due while
//     the one before it still runs is skipped, and that is its result.
//  5. A repository that is away costs no slot: claiming is tried again until the
//     next slot is due, which is then done instead.
//  6. A run that was asked for ends with its process, and gets a result all the
//     same: within a minute after that agent is there again, or from another one.
//  7. Two agents of one name do no harm to what is stored, and are told:
//     [Board.Namesake].
//
// What a job owes: it ends soon after its context does, and what it writes under
// a name that follows from job and slot it writes once, so that a holder which
// wakes up late can't do harm. Nobody can be fenced off in S3.
//
// # Requests
//
// While nothing is due, an agent lists the results once in ten minutes: 144
// requests a day (more where nobody may delete old results: one for each 1,000
// new ones), and each job's claims at its start and every six hours, for runs that
// were asked for and came to nothing: 36 with nine jobs. At a slot, the agent that does it makes 4 LIST, 1 HEAD and 2 PUT,
// and each other agent 4 LIST and 2 GET (2 LIST more for each half minute that
// the run takes). A run that takes longer than 20 s costs 1 PUT and 1 HEAD for
// each 20 s. With the default schedule (28 slots a day) and three agents these are
// about 1,000 requests a day.
package job
