// Package proof holds a cluster that was rebuilt against what it was rebuilt from,
// through its client URLs.
//
// It promises:
//
//  1. The wait is bounded, and says at any time which member is waited for and why.
//  2. No quorum is an error, always. A member that is not up while a quorum serves
//     is none: the report names it, and is not Complete.
//  3. What was not looked at, for want of credentials or because a learner does not
//     serve it, is said to be unproved. Nothing is taken for proved.
//  4. What the proof writes is below one prefix of its own, /requorum-proof-…, is
//     bound to a lease of half a minute, and is deleted in the end.
//
// What its caller owes: that clients do not write meanwhile. Theirs would be no
// error, but they would have been let on a cluster that is not proved.
package proof
