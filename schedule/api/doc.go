// Package api is what an agent says and is asked over HTTP, on one port: the
// status page, health, metrics, and a small JSON API (docs/api.md has every
// route). It promises:
//
//  1. Beyond loopback nothing is served in plain text, unless that is asked for
//     by name.
//  2. A page of another site can neither read nor start anything here: on
//     loopback the Host header is checked (DNS rebinding), a job is started by
//     a request of this origin with a JSON body only, and no answer may be
//     read across origins.
//  3. Certificates, keys and client CAs are read again at each handshake: a
//     rotation needs no restart, and one that is half done breaks nothing.
//  4. A client that is slow, or sends much, holds nothing for long.
package api
