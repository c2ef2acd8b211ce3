// Package storetest starts real etcd servers of each version for tests: as
// processes of the real binaries, with their logs kept and shown when the test
// fails, and gone when the test is.
//
// A server that cannot be had is a skipped test, loudly; with REQUORUM_CI=1 it
// is a failed one.
package storetest
