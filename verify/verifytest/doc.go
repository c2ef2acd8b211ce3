// Package verifytest makes repositories as real clusters fill them, and damages
// them in every way that verify promises to find.
//
//  1. A history is what a cluster of real members wrote: backups of its
//     databases, and its log. Repositories are written from it, plain or
//     encrypted, as often as wanted.
//  2. A fault is put into a copy. All sums that an attacker, or a tool gone
//     wrong, would fix up are fixed up: what is left to be found is the fault.
//  3. A fault that changes nothing fails the test.
package verifytest
