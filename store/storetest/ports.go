package storetest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/requorum/requorum/store/client"
)

// The ports of tests lie below those that requorum itself looks for. Each process has
// portsOfOne of them for itself: a member that is killed, to come back on its port,
// would else find another package's member there.
const (
	lowestPort = 12000
	processes  = 15
	portsOfOne = 400
)

// ownPorts holds the lock of this process's ports until it ends.
var ownPorts = sync.OnceValues(func() (*client.PortRange, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("requorum-test-ports-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	for i := range processes {
		fd, err := syscall.Open(filepath.Join(dir, fmt.Sprint(i)), syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, 0o600)
		if err != nil {
			return nil, err
		}
		if err := syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB); err == nil { // it stays open
			return client.NewPortRange(lowestPort+i*portsOfOne, lowestPort+(i+1)*portsOfOne), nil
		}
		if err := syscall.Close(fd); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("more processes of tests run than there are ports for: " + dir)
})

// freePorts finds n ports that no other process of tests uses, or will use soon.
func freePorts(n int) ([]int, error) {
	own, err := ownPorts()
	if err != nil {
		return nil, err
	}
	return own.Free(n)
}
