package storetest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// owner tells which of the processes made a loopback connection, by the end
// that was accepted; -1 when none did. Who asks is not in the bytes (they may
// be TLS), and all members come from one address.
func owner(accepted net.Conn, pids []int) int {
	remote, ok := accepted.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return -1
	}
	local, ok := accepted.LocalAddr().(*net.TCPAddr)
	if !ok {
		return -1
	}
	inode := socketInode(remote.Port, local.Port)
	if inode == "" {
		return -1
	}
	want := "socket:[" + inode + "]"
	for i, pid := range pids {
		if pid == 0 {
			continue
		}
		links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		if err != nil {
			continue
		}
		for _, link := range links {
			if target, err := os.Readlink(link); err == nil && target == want {
				return i
			}
		}
	}
	return -1
}

// socketInode finds the connection from port to port in the kernel's table.
func socketInode(from, to int) string {
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		data, err := os.ReadFile(table)
		if err != nil {
			continue
		}
		localEnd, remoteEnd := fmt.Sprintf(":%04X", from), fmt.Sprintf(":%04X", to)
		for line := range strings.Lines(string(data)) {
			fields := strings.Fields(line)
			if len(fields) > 9 && strings.HasSuffix(fields[1], localEnd) && strings.HasSuffix(fields[2], remoteEnd) {
				return fields[9]
			}
		}
	}
	return ""
}
