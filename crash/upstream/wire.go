package upstream

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
)

// write answers whole, and tells whether it could.
func write(w http.ResponseWriter, a answer) bool {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(a.body)))
	w.WriteHeader(a.status)
	if _, err := io.WriteString(w, a.body); err != nil {
		return false
	}
	return http.NewResponseController(w).Flush() == nil
}

// lose ends the connection without an answer, or amid it.
func lose(w http.ResponseWriter, how loss, a answer) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return // it is gone already
	}
	defer func() { _ = conn.Close() }() // that is all there is left to do to it
	if how == halved {
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 %d Created\r\nContent-Length: %d\r\n\r\n%s", a.status, len(a.body), a.body[:len(a.body)/2])
	}
	if tcp, ok := conn.(*net.TCPConn); ok && how != closed {
		_ = tcp.SetLinger(0) // Close then sends a reset
	}
}
