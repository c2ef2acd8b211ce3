package web

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

// peerUID is the user at the other end of a unix socket, by the kernel.
func peerUID(c net.Conn) (int, error) {
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return -1, err
	}
	var peer *unix.Ucred
	var asked error
	err = raw.Control(func(fd uintptr) { peer, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := errors.Join(err, asked); err != nil {
		return -1, err
	}
	return int(peer.Uid), nil
}
