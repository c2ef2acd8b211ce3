package storetest

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// SmallDisk mounts a file system of a size as mount takes it ("64m"), for the time
// of the test. It takes root.
func SmallDisk(t testing.TB, size string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		Unavailable(t, "mounting a small file system takes root: "+err.Error())
	}
	t.Cleanup(func() {
		require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH))
	})
	return dir
}

// GrowDisk gives a SmallDisk another size.
func GrowDisk(t testing.TB, dir, size string) {
	t.Helper()
	require.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT, "size="+size))
}

// WithParent sends a process that a test starts a signal when the test's own
// process ends, however that ends: one that is killed must leave nothing behind.
func WithParent(signal syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: signal}
}

// owners says which of the processes made loopback connections, by the ends that
// were accepted; those that none made are left out. Who asks is not in the bytes
// (they may be TLS), and all members come from one address.
func owners(accepted []net.Conn, pids []int) map[net.Conn]int {
	process := map[string]int{} // by its socket
	for i, pid := range pids {
		links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		if err != nil {
			continue
		}
		for _, link := range links {
			if target, err := os.Readlink(link); err == nil {
				process[target] = i
			}
		}
	}
	found := map[net.Conn]int{}
	for _, conn := range accepted {
		inode, err := otherEnd(conn)
		if err != nil {
			continue // it is closed
		}
		if i, ok := process[fmt.Sprintf("socket:[%d]", inode)]; ok {
			found[conn] = i
		}
	}
	return found
}

// otherEnd is the inode of the socket at the other end of a connection of this machine
// over IPv4. The kernel is asked for that one (sock_diag(7)): to list them all, as
// /proc/net/tcp does, takes it milliseconds, and an isolated etcd tries dozens of times
// a second.
func otherEnd(conn net.Conn) (inode uint32, err error) {
	theirs, ok := conn.RemoteAddr().(*net.TCPAddr)
	ours, ok2 := conn.LocalAddr().(*net.TCPAddr)
	if !ok || !ok2 || theirs.IP.To4() == nil || ours.IP.To4() == nil {
		return 0, fmt.Errorf("%s is no connection over IPv4", conn.RemoteAddr())
	}
	// struct nlmsghdr, then struct inet_diag_req_v2, then struct inet_diag_sockid.
	const size = unix.SizeofNlMsghdr + 8 + 48
	ask := make([]byte, 0, size)
	ask = binary.NativeEndian.AppendUint32(ask, size)
	ask = binary.NativeEndian.AppendUint16(ask, unix.SOCK_DIAG_BY_FAMILY)
	ask = binary.NativeEndian.AppendUint16(ask, unix.NLM_F_REQUEST)
	ask = append(ask, make([]byte, 8)...) // the kernel numbers neither
	ask = append(ask, unix.AF_INET, unix.IPPROTO_TCP, 0, 0)
	ask = binary.NativeEndian.AppendUint32(ask, ^uint32(0)) // in whatever state
	ask = binary.BigEndian.AppendUint16(ask, uint16(theirs.Port))
	ask = binary.BigEndian.AppendUint16(ask, uint16(ours.Port))
	ask = append(append(ask, theirs.IP.To4()...), make([]byte, 12)...)
	ask = append(append(ask, ours.IP.To4()...), make([]byte, 12)...)
	ask = append(ask, make([]byte, 4)...)                             // on any interface
	ask = append(ask, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff) // INET_DIAG_NOCOOKIE
	socket, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return 0, err
	}
	defer unix.Close(socket)
	if err := unix.Sendto(socket, ask, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(socket, answer, 0)
	if err != nil {
		return 0, err
	}
	// struct inet_diag_msg ends with the inode.
	const end = unix.SizeofNlMsghdr + 72
	if n < end || binary.NativeEndian.Uint16(answer[4:]) != unix.SOCK_DIAG_BY_FAMILY {
		return 0, fmt.Errorf("the kernel knows no socket of %s", conn.RemoteAddr())
	}
	return binary.NativeEndian.Uint32(answer[end-4:]), nil
}
