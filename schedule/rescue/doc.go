// Package rescue carries a recovery out: `requorum recover`. It runs where the
// operator works, and has the control process on each host do the work.
//
// It promises:
//
//  1. Nothing is changed before the decision is in the journal, and the decision
//     was confirmed. Look changes nothing at all.
//  2. A cluster that serves is left alone (QuorumError), unless that is forced. No
//     recovery goes on while the old members that could come back are a majority.
//  3. Each step stands in the journal before and after it. Killed anywhere, Run
//     goes on where it was and comes to the same end, without asking again for what
//     was confirmed; Undo puts back what was, at any time.
//  4. What was confirmed is what is done: where the plan gets worse once more is
//     known, it is asked again, and a no puts everything back as it was.
//  5. No member of the new cluster is started before all hosts came to the same
//     state, and no client before the new cluster is proved.
//  6. What fails after that proof is incomplete, and never takes a serving cluster
//     away: the same command completes it.
//  7. One driver at a time: on this machine by a lock, elsewhere because a control
//     process belongs to one run.
//
// Its caller owes a context, and an Events that answers questions. Nothing is
// printed here.
package rescue
