// Package snapshot takes consistent full snapshots of an etcd cluster, keeps
// them described in repositories, and opens them again.
//
// It promises:
//
//  1. A backup exists once its manifest does, and the manifest is written after
//     everything that it describes was stored and read back from where it is.
//     What is interrupted or fails leaves no manifest.
//  2. A snapshot holds every write that the cluster had acknowledged before
//     Take was called: its stored bytes reach the barrier, or it is no backup.
//  3. An Image's reader returns io.EOF only after every check passed that the
//     image allows; damage is a *DamagedError that names the object.
//  4. Memory stays flat, whatever the database's size; nothing is written to a
//     temporary file.
//  5. Histories that differ are never ranked against each other.
package snapshot
