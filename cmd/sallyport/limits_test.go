package main

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// What the flags say reaches the service: the smallest limit leaves room for no call at all.
func TestLimitsRuleTheBroker(t *testing.T) {
	upstream := startUpstream(t, map[string][]reply{"/": {{status: 200}}})
	s := testSettings(t)
	s.Limits.MaxBytes = 1
	n := startTestNode(t, s)
	_, err := callFor(t, dialNode(t, n), upstream.url+"/")
	reason := ""
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			reason = info.GetReason()
		}
	}
	if status.Code(err) != codes.ResourceExhausted || reason != "BROKER_FULL" {
		t.Errorf("got %v, reason %q", err, reason)
	}
	if requests, _ := upstream.saw("/"); requests != 0 {
		t.Errorf("the upstream saw %d requests", requests)
	}
	if err := n.stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestHTTPPortBoundsItsConnections(t *testing.T) {
	n := startTestNode(t, testSettings(t))
	idle := make([]net.Conn, 0, httpMaxConns)
	for range httpMaxConns {
		idle = append(idle, open(t, n))
	}
	late := open(t, n)
	// Well below the time after which a silent connection is closed anyhow.
	_ = late.SetReadDeadline(time.Now().Add(httpHeaderTimeout / 2))
	if _, err := late.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("one too many: %v, want it closed at once", err)
	}
	_, _ = io.WriteString(idle[0], "GET /healthz HTTP/1.0\r\n\r\n") // what fails shows in the answer
	if answer, err := io.ReadAll(idle[0]); err != nil || len(answer) == 0 {
		t.Errorf("one within the limit: %q, %v", answer, err)
	}
	if err := n.stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func open(t *testing.T, n *node) net.Conn {
	t.Helper()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address(n.http))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
