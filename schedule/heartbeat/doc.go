// Package heartbeat tells others how the agent is: pings in the convention of
// healthchecks to a service that raises the alarm when they stay away, and a
// webhook that is told of each problem that comes and goes.
//
// It promises:
//
//  1. A ping of success says that this agent writes the archive, and that its
//     Status is of a moment ago and has no critical problem. An agent that stands
//     by, that hangs or that is gone sends none.
//  2. Events of the webhook are delivered in the order in which they happened,
//     each at least once; one that could not be delivered for an hour, or that
//     the receiver refuses, is dropped, and that is a problem of its own.
//  3. The URLs are secrets: no error, log line or problem has a part of them, and
//     no redirect takes what is sent to another host.
//
// The caller asks for Problem and adds it to the Status.
package heartbeat
