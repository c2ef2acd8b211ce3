// Package rebuilding is how a control process rebuilds its member: it gathers what
// a plan is made of, replays it, and builds the member's directories. It promises:
//
//  1. What it reads is this host's own set-aside data, what other hosts' control
//     processes send of theirs, and the repositories that this host's configuration
//     names: never what a request names otherwise.
//  2. Of other hosts' data only what the plan needs is copied, each piece compared
//     with the sum that the sender reckoned. A copy that was cut off goes on where
//     it was.
//  3. Where there are several ways to the same entry, this host's own data comes
//     first, then what is quickest. When a way fails midway another one is taken.
//  4. What is built is the cluster that the plan says, and from the cluster that it
//     says, or nothing is.
//  5. Done again by the same run, after whatever ended it, it goes on, or tells what
//     was built. What it gathered is removed in the end, and by the next run.
package rebuilding
