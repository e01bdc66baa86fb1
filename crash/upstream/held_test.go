package upstream

import (
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/sallyport/sallyport/crash/history"
)

func startHeld(t *testing.T) (*Held, *history.Recorder) {
	t.Helper()
	h := history.NewRecorder(time.Now())
	u, err := StartHeld(t.Context(), 1, h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := u.Close(); err != nil {
			t.Error(err)
		}
	})
	return u, h
}

// sent sends one request; the status comes when its answer is there whole.
func sent(t *testing.T, address, path string) <-chan int {
	t.Helper()
	done := make(chan int, 1)
	transport := newTransport(t)
	go func() { done <- get(t, transport, "http://"+address+path) }()
	return done
}

// A request stops at its step, with its effect before or behind it, and goes on when it is let go.
func TestHeldStopsAtTheStep(t *testing.T) {
	for _, step := range []history.Step{history.FirstByte, history.Headers, history.Halfway} {
		t.Run(string(step), func(t *testing.T) {
			u, h := startHeld(t)
			hold := u.Hold(step, 1)
			done := sent(t, u.Address(), "/get/op")
			<-hold.Reached()
			if u.Written() != 0 || len(h.History().Arrivals) != 0 || len(done) != 0 {
				t.Error("it did not stop")
			}
			if happened := u.effects.Load() == 1; happened != (step != history.FirstByte) {
				t.Errorf("its effect happened: %t", happened)
			}
			u.Release(hold)
			status := <-done
			u.handling.Wait() // it counts when the answer has left
			if status != 201 || u.Written() != 1 {
				t.Errorf("status %d, %d written", status, u.Written())
			}
		})
	}
}

// Nobody is connected at a gate before it opens.
func TestGateIsShutUntilItOpens(t *testing.T) {
	u, h := startHeld(t)
	g, err := u.Gate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if status := get(t, newTransport(t), "http://"+g.Address()+"/get/early"); status != 0 {
		t.Errorf("status %d at a gate that is shut", status)
	}
	if err := g.Open(); err != nil {
		t.Fatal(err)
	}
	if status := <-sent(t, g.Address(), "/get/late"); status != 201 {
		t.Errorf("status %d at an open one", status)
	}
	for _, a := range h.History().Arrivals {
		if a.Operation != "late" {
			t.Errorf("%s arrived", a.Operation)
		}
	}
}

// newTransport gives up soon to connect.
func newTransport(t *testing.T) *http.Transport {
	t.Helper()
	const soon = 300 * time.Millisecond
	transport := &http.Transport{DisableKeepAlives: true, DialContext: (&net.Dialer{Timeout: soon}).DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// get gives the status, 0 without a whole answer.
func get(t *testing.T, transport *http.Transport, url string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", url, http.NoBody)
	if err != nil {
		t.Error(err)
		return 0
	}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0
	}
	return resp.StatusCode
}
