// Package supervisor speaks to what keeps a host's programs running: systemd, the
// kubelet by its manifests, the container runtime, and programs of the user's. It
// promises:
//
//  1. A manifest is seen by the kubelet whole or not at all, is never overwritten,
//     and never moved a second time: whatever ended an attempt, the next one goes
//     on.
//  2. Programs are run without a shell, and not for longer than the time that
//     they were given.
//  3. What could not be asked is an error, never a no.
package supervisor
