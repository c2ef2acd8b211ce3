// Package control is `requorum agent control`: a process of its own, with rights
// of its own, through which a recovery stops, sets aside, rebuilds and starts the
// member of a host. The agent, which reads and backs up, stays without them. It
// is off unless it is configured, and promises:
//
//  1. Nobody is answered without a certificate of the one CA that is configured
//     for it, and each verb takes a role of its own in that certificate.
//  2. A request counts once, for a short time, for one member and one run of this
//     process: it can be neither repeated nor kept for later.
//  3. Requests name members, never paths: what can be read and moved is what the
//     configuration names.
//  4. Each request, allowed or refused, and each handshake that failed is a line
//     in the audit file; what cannot be audited is not done.
//  5. Nothing of the user's is destroyed: data is set aside by renaming, and what
//     is put back sets aside what had taken its place.
//  6. No data is moved or sent while the member is not proved to be stopped, and
//     none is started that has no log to start from, or whose cluster was superseded.
//  7. Each action may be repeated by its run, after whatever ended it: it goes on,
//     or says what was done.
//  8. What writes through the cluster from this host is stopped with proof, and of it
//     only what ran before is started again.
package control
