// Package lineage writes into repositories that a cluster goes on in another one.
//
// It promises:
//
//  1. Whatever it was that stopped it, doing it again ends in the same state: each
//     document is written once, and found by the next run.
//  2. A repository that cannot be written stops nothing in the others.
//  3. A recovery that was taken back can be taken back and made again, any number
//     of times: no document is changed or deleted.
package lineage
