// Package difference compares two databases of etcd, row by row in every
// bucket: two that should be the same state of one cluster.
//
// It promises:
//
//  1. A row that one of them lacks, or has otherwise, is a finding, and the
//     first one in the order of revisions comes first. Only what is listed below
//     is no finding.
//  2. Both are compared after the same logical compaction: the later one of the
//     two, applied while reading. How far a member had come with deleting rows
//     does not matter.
//  3. Findings show keys, names, sizes and revisions, never a value or the hash
//     of a password.
//  4. Both are read once, in order, and nothing is written. Memory is flat but
//     for about 50 bytes for each key that changed between the compaction that a
//     side has finished and the later one of the two: none where they are the same.
//
// What is left out is what the raft log does not give, and what another version
// writes in another way; docs/format.md lists it for who compares by hand, and
// walreplay/engine says where it comes from. Result.Left says what of that was
// met.
package difference
