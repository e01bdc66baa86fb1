package main

import (
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
)

// hungCollector takes connections and never says a word.
func hungCollector(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // what the kernel has accepted hangs until then
	return "http://" + l.Addr().String()
}

// With a collector that hangs the second signal ends the process as fast as without, and every loss is told before the last line.
func TestSecondSignalDoesNotWaitForAHungCollector(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", hungCollector(t))
	url, arrived, _ := slowUpstream(t)
	p := startProcess(t)
	result := inFlight(t, p.client, url, arrived)
	p.signal(t, syscall.SIGTERM)
	p.await(t, `msg="draining;`)
	begin := time.Now()
	p.signal(t, syscall.SIGTERM)
	if got := <-result; got.err != nil {
		t.Error(got.err)
	}
	var lost int
	var last string
	for line := range p.lines {
		if last = line; strings.Contains(line, `msg="spans are lost`) {
			lost++
		}
	}
	if code := p.end(t); code != 0 || time.Since(begin) > 2*time.Second {
		t.Errorf("exit %d after %v", code, time.Since(begin))
	}
	if lost == 0 || !strings.Contains(last, "msg=stopped") {
		t.Errorf("%d lines about lost spans, the last line is %q", lost, last)
	}
}
