package broker

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http/httptest"
	"regexp"
	"testing"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/tracing"
)

// counting is an observer that counts.
func counting(t *testing.T) *tracing.Observer {
	t.Helper()
	o, err := tracing.New(t.Context(), func(string) (string, bool) { return "", false }, "1.2.3", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// failures are the RPCs that ended with an error of the broker's own, by reason, as a scraper reads them.
func failures(t *testing.T, o *tracing.Observer) map[string]string {
	t.Helper()
	w := httptest.NewRecorder()
	o.Scrape(slog.New(slog.DiscardHandler)).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	all := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^sallyport_rpc_errors_total{sallyport_reason="([A-Z_]+)"} (.*)$`).FindAllStringSubmatch(w.Body.String(), -1) {
		all[m[1]] = m[2]
	}
	return all
}

// Every error of the broker's own is counted once under its reason, and every reason is there from the start.
func TestErrorsOfTheBrokerAreCounted(t *testing.T) {
	o := counting(t)
	entered, proceed := make(chan struct{}, 2), make(chan struct{})
	r := start(t, setup{
		observer: o, limits: Limits{MaxCalls: 1}, sender: gated(entered, proceed),
		identities: known(map[string][]Role{"checkout": {RoleCaller}, "looker": {RoleViewer}}),
	})
	want := map[string]string{}
	for _, reason := range reasons() {
		want[reason] = "0"
	}
	if got := failures(t, o); !maps.Equal(got, want) {
		t.Errorf("at the start %v, want %v", got, want)
	}
	call := func(token, url string) error {
		_, err := r.calls.Call(metadata.AppendToOutgoingContext(within(t), "authorization", "Bearer "+token), get(url))
		return err
	}
	fails := func(reason, token, url string) {
		t.Helper()
		if err := call(token, url); err == nil || unsent(err) != reason && reason != reasonInternal {
			t.Errorf("%s: %v", reason, err)
		}
		want[reason] = fmt.Sprint(1)
		if got := failures(t, o); !maps.Equal(got, want) {
			t.Errorf("after %s %v, want %v", reason, got, want)
		}
	}
	fails(reasonInvalidRequest, "checkout", "ftp://127.0.0.1/")
	fails(reasonUnauthenticated, "nobody", "http://127.0.0.1/")
	fails(reasonRoleRequired, "looker", "http://127.0.0.1/")
	fails(reasonInternal, "checkout", "http://127.0.0.1/panic")
	ended := make(chan error, 1) // receives one value, never closed
	go func() { ended <- call("checkout", "http://127.0.0.1/hold") }()
	over(t, "the way to the sender", entered)
	fails(reasonBrokerFull, "checkout", "http://127.0.0.1/")

	if got := r.server.Load(); got.Calls != 1 || got.MaxCalls != 1 || got.Bytes != answerShare || got.MaxBytes != DefaultMaxBytes {
		t.Errorf("load %+v", got)
	}
	close(proceed)
	if err := over(t, "the call in flight", ended); err != nil {
		t.Error(err)
	}
	if got := r.server.Load(); got.Calls != 0 || got.Bytes != 0 {
		t.Errorf("load %+v", got)
	}
	if err := call("checkout", "http://127.0.0.1/"); err != nil { // no error, no count
		t.Error(err)
	}
	if got := failures(t, o); !maps.Equal(got, want) {
		t.Errorf("in the end %v, want %v", got, want)
	}
}

// What is wrong with a message is no error of the broker, whoever sends it: INTERNAL is told of panics alone, and wakes somebody.
func TestBrokenMessagesAreNoErrorsOfTheBroker(t *testing.T) {
	o := counting(t)
	r := onSockets(t, setup{observer: o})
	c := r.raw(t)
	for n, content := range [][]byte{framed(0, []byte{0xff, 0xff}), framed(2, nil), framed(0, make([]byte, 100))[:50], nil} {
		for i, method := range []string{pb.CallService_Call_FullMethodName, healthpb.Health_Check_FullMethodName} {
			stream := uint32(4*n + 2*i + 1)
			c.open(stream, method, 0, false)
			c.write(func() error { return c.framer.WriteData(stream, true, content) })
			if err := c.answer(stream); status.Code(err) != codes.Internal || unsent(err) != "" {
				t.Errorf("%x to %s: %v", content, method, err)
			}
		}
	}
	for reason, n := range failures(t, o) {
		if n != "0" {
			t.Errorf("%s: %s", reason, n)
		}
	}
}

func TestReceptionTellsWhoIsInside(t *testing.T) {
	r := newReception(10, 2, 1<<20)
	var all []*arrival
	for _, whose := range []string{"one", "two", "three"} {
		a := &arrival{whose: whose}
		if !r.begin(a) {
			t.Fatal("no place")
		}
		r.mu.Lock()
		r.slots.take(a)
		r.mu.Unlock()
		all = append(all, a)
	}
	if got := r.load(); got != (tracing.Reception{Receiving: 2, Waiting: 1, Slots: 2}) {
		t.Errorf("%+v", got)
	}
	r.leave(all[0])
	if got := r.load(); got != (tracing.Reception{Receiving: 2, Slots: 2}) {
		t.Errorf("after one has left %+v", got)
	}
	for _, a := range all[1:] {
		r.leave(a)
	}
	if got := r.load(); got != (tracing.Reception{Slots: 2}) {
		t.Errorf("in the end %+v", got)
	}
}
