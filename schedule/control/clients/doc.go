// Package clients stops and starts what writes through a cluster from this host,
// such as an API server, whatever it runs under. It promises:
//
//  1. Stopped is proved, not believed: the supervisor will not start the client
//     again by itself, and no process of its name runs on the host. A process table
//     that hides processes proves nothing.
//  2. Each method may be repeated, and goes on where an earlier call was ended.
//  3. Nothing is killed here: whatever ignores SIGTERM is left to its supervisor,
//     waited for, and named.
package clients
