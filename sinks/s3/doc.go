// Package s3 is the sink that keeps objects in an S3 bucket, at Amazon or at
// any server that speaks the protocol.
//
// How it keeps the promises of package sinks:
//
//  1. Whole or absent: an object is one conditional PutObject, or a multipart
//     upload whose completion is conditional. Abort confirms that the upload
//     is gone.
//  2. Written once: If-None-Match on every put and completion. Whether the
//     server heeds it is probed once for each Sink; on one that does not, each
//     Commit looks first, which is safe with a single writer, and Abilities
//     says so.
//  3. An answer that may have been a success is cleared up: each upload
//     carries an identity of its own in the object's metadata, and Commit reads
//     it back. Where the server stays out of reach, Commit says
//     sinks.ErrUncertain.
//  4. What the configuration asks for (encryption, storage class, object lock)
//     is read back as well; a server that ignores it is an error.
//
// Memory is bounded: a Writer holds at most five parts of 16 MiB, whatever the
// size of the stream up to 62 GiB, and grows its parts beyond that; a reader
// holds at most five chunks of 8 MiB.
package s3
