package h1_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/sallyport/sallyport/egress/h1"
)

// smallBuffer keeps the kernel from swallowing a whole upload, which would end it before the answer comes.
const smallBuffer = 64 << 10

// refusing is a server that answers 413 as soon as it has the head and then ends the connection its way. The caller
// gives one connection at a time.
func refusing(t *testing.T, end func(*net.TCPConn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{}) // closed by the server
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if _, err := http.ReadRequest(bufio.NewReaderSize(c, 16)); err == nil {
				_, _ = io.WriteString(c, "HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 7\r\n\r\ntoo big")
				end(c.(*net.TCPConn))
			}
			_ = c.Close()
		}
	}()
	return l.Addr().String()
}

// upload posts 1 MiB and reads the answer at the same time.
func upload(t *testing.T, addr string, body []byte) (r h1.Response, sendErr, readErr error) {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
	_ = nc.(*net.TCPConn).SetWriteBuffer(smallBuffer)
	c := h1.New(nc)
	c.Start("POST", "/", "example.com")
	sent := make(chan error, 1)
	go func() { sent <- c.Send(body, false) }()
	readErr = c.ReadResponse(&r, roomy())
	c.Interrupt()
	sendErr = <-sent
	if c.Written() == 0 {
		t.Error("an answer, and nothing written")
	}
	if c.Reusable() {
		t.Error("reusable after an early answer")
	}
	return r, sendErr, readErr
}

func TestEarlyAnswerIsSeenWhileUploading(t *testing.T) {
	addr := refusing(t, func(c *net.TCPConn) {
		_ = c.CloseWrite()
		_, _ = io.Copy(io.Discard, c)
	})
	for i := range 100 {
		r, _, err := upload(t, addr, make([]byte, 1<<20))
		if err != nil || r.Status != 413 || string(r.Body) != "too big" {
			t.Fatalf("run %d: %d %q: %v", i, r.Status, r.Body, err)
		}
	}
}

// TestEarlyAnswerBeforeAReset counts only: whether the answer survives the reset is the kernel's choice. What is promised
// is that each run ends in the answer or in a typed loss.
func TestEarlyAnswerBeforeAReset(t *testing.T) {
	addr := refusing(t, func(c *net.TCPConn) { _ = c.SetLinger(0) })
	seen, failed := 0, 0
	for range 100 {
		r, sendErr, err := upload(t, addr, make([]byte, 1<<20))
		switch {
		case err == nil && r.Status == 413 && string(r.Body) == "too big":
			seen++
		case kindOf(t, err) != h1.Lost:
			t.Error(err)
		}
		if sendErr != nil {
			failed++
			if k := kindOf(t, sendErr); k != h1.WriteFailed && k != h1.Timeout {
				t.Error(sendErr)
			}
		}
	}
	t.Logf("answer seen in %d of 100 runs, %d sends failed", seen, failed)
}

func TestAnswerIsReadableAfterAFailedSend(t *testing.T) {
	addr := refusing(t, func(c *net.TCPConn) {
		_ = c.CloseWrite()
		_, _ = io.CopyN(io.Discard, c, 64<<10)
	})
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
	c := h1.New(nc)
	c.Start("POST", "/", "example.com")
	sendErr := c.Send(make([]byte, 64<<20), false)
	if kindOf(t, sendErr) != h1.WriteFailed {
		t.Fatalf("send: %v", sendErr)
	}
	var r h1.Response
	err = c.ReadResponse(&r, roomy())
	if k := kindOf(t, err); k != 0 && k != h1.Lost || k == 0 && r.Status != 413 {
		t.Error(fmt.Errorf("%d: %w", r.Status, err))
	}
}

// TestLargeUploadKeepsTheConnection: with Send on its own goroutine a connection serves one upload after another.
func TestLargeUploadKeepsTheConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan struct{}) // closed by the server
	received := make(chan struct{}, 1)
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		in := bufio.NewReader(c)
		for {
			q, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			n, _ := io.Copy(io.Discard, q.Body)
			<-received // answer only after the client has seen its send end
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\n%07d\r\n0\r\n\r\n", n)
		}
	}()
	nc, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
	c := h1.New(nc)
	var r h1.Response
	for range 10 {
		c.Start("PUT", "/", "example.com")
		sent := make(chan error, 1)
		go func() {
			err := c.Send(make([]byte, 1<<20), false)
			received <- struct{}{}
			sent <- err
		}()
		if err := c.ReadResponse(&r, roomy()); err != nil || string(r.Body) != "1048576" {
			t.Fatalf("%q: %v", r.Body, err)
		}
		if err := <-sent; err != nil || !c.Reusable() {
			t.Fatalf("reusable %v: %v", c.Reusable(), err)
		}
	}
	_ = nc.Close()
	<-done
}
