// Package recovery finds out what is left of a cluster that lost its quorum, and
// decides what to rebuild it from.
//
// Survey looks at everything: the data directories of members, and repositories.
// Decide ranks what was found, and says what would be lost. Neither changes
// anything.
//
// It promises:
//
//  1. Survey opens files for reading only and locks nothing. A directory that a
//     member runs on is refused: what is read of it would mix two moments.
//  2. Logs are compared entry by entry, in one pass that holds one entry of each
//     in memory. Two histories are told apart by what they hold, never by names,
//     times, or how long they are, and they are never ranked against each other.
//  3. "Proven" is said only where the logs that were read whole are those of a
//     majority of the voters of every membership that may have been in force.
//     Then every write that was ever acknowledged is in the log that is chosen.
//  4. What is kept from being used (removed members, other histories, refused
//     tails, damage) is named, with the reason and with what can be done. It is
//     used only when it is asked for by name.
//  5. What is found of a digest, which WriteDigest makes where the member's data
//     lies, is what would have been found of the data itself.
package recovery
