package broker

import (
	"net"
	"strconv"
	"syscall"
)

// KnowsUsers says that this system tells which user is at the other end of a unix socket.
const KnowsUsers = true

// userOf is the user at the other end of a unix socket, "uid:1000": the one who connected, as the kernel noted then (unix(7),
// SO_PEERCRED). "" for every other connection.
func userOf(conn net.Conn) string {
	if limited, ok := conn.(*limitedConn); ok {
		conn = limited.Conn
	}
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return ""
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return ""
	}
	var who *syscall.Ucred
	var asked error
	err = raw.Control(func(fd uintptr) {
		who, asked = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err != nil || asked != nil {
		return ""
	}
	return userPrefix + strconv.FormatUint(uint64(who.Uid), 10)
}
