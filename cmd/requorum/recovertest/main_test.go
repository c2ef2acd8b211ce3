// Package recovertest has hosts to lose: each a network namespace with an address
// of its own, and in it a real etcd, where asked `requorum agent`, and, in the place of ssh,
// a command that runs `requorum host` there. Its tests are what `requorum recover` has to
// show from one end to the other, with the binary that users run. Machines are the real
// thing, for one test: the same addresses, with systemd as their first process, units for
// etcd and the agent, and ssh.
//
// It takes root and iproute2, and for machines systemd-nspawn and debootstrap. Names and
// addresses are unique on the machine, so that several tests run at once; all is removed
// when a test ends, and what a test binary that was killed has left is removed by the next
// one.
package recovertest

import (
	"os"
	"testing"

	"github.com/requorum/requorum/store/storetest"
)

// TestMain removes the binary after the tests.
func TestMain(m *testing.M) { os.Exit(storetest.M{M: m}.Run()) }
