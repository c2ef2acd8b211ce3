// Package merge makes few large log segments of the many small ones that
// archivers write, so that an archive of years stays quick to list and to
// replay, and so that object lock covers it at a bearable price.
//
// It promises:
//
//  1. Entries and marks are neither lost nor changed: a merged segment holds
//     all that its sources hold, in the same chain.
//  2. Nothing goes before what replaces it was read back whole, has lain in the
//     repository for Config.Keep, and was found to hold it, by the chain's value
//     before and after it. Times are compared by the sink's own clock only.
//  3. The end of the archive stays as it is: the newest segment of an archiver
//     is neither merged nor removed.
//  4. Gaps, anchors and overlaps stay boundaries: no merged segment spans one.
//  5. Of alive marks that tell the same (a member was still at an index) the
//     first and the last stay, and those with a stamp.
//  6. It may be killed at any point and run any number of times, by any number
//     of hosts at once. One of them works; that is thrift, not safety.
package merge
