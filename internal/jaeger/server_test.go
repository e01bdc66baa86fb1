package jaeger

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/process"
)

// jaeger is a running Jaeger, with its memory for storage.
type jaeger struct {
	*process.Process
	otlp map[string]string // endpoints, by OTEL_EXPORTER_OTLP_PROTOCOL
	api  string            // its query API
	args []string          // to start it again at the same ports
}

// startJaeger runs a Jaeger of its own for the test.
func startJaeger(t *testing.T) *jaeger {
	t.Helper()
	if _, err := os.Stat(server); err != nil {
		const lacking = server + " is not there: make tools-jaeger builds it"
		if os.Getenv("SALLYPORT_REQUIRE_JAEGER") == "1" {
			t.Fatal(lacking)
		}
		t.Skip(lacking)
	}
	process.DependOnSources(t)
	// Whoever takes one of the ports between its choice and the start is met with another try.
	for range 3 {
		if j := tryJaeger(t, freePorts(t, 7)); j != nil {
			return j
		}
	}
	t.Fatal("Jaeger does not start")
	return nil
}

func tryJaeger(t *testing.T, at []string) *jaeger {
	t.Helper()
	j := &jaeger{
		otlp: map[string]string{"grpc": "http://" + at[0], "http/protobuf": "http://" + at[1]},
		api:  "http://" + at[2] + "/api",
		args: []string{
			"--collector.otlp.grpc.host-port=" + at[0], "--collector.otlp.http.host-port=" + at[1],
			"--query.http-server.host-port=" + at[2], "--query.grpc-server.host-port=" + at[3],
			"--collector.grpc-server.host-port=" + at[4], "--collector.http-server.host-port=" + at[5],
			"--admin.http.host-port=" + at[6],
		},
	}
	if !j.run(t) {
		j.Kill()
		t.Logf("Jaeger ended:\n%s", j.Log())
		return nil
	}
	return j
}

// run starts the process, and tells whether it serves.
func (j *jaeger) run(t *testing.T) bool {
	t.Helper()
	// Its own spans would stand among ours.
	j.Process = process.Start(t, []string{"OTEL_TRACES_SAMPLER=always_off"}, server, j.args...)
	admin := "http://" + strings.TrimPrefix(j.args[6], "--admin.http.host-port=")
	return j.until(func() bool {
		code, _, err := get(t, admin)
		return err == nil && code == 200 // it says so when every listener is there
	})
}

// until asks every few milliseconds whether it is so, since Jaeger tells on request only; false: its time was up, or Jaeger has ended.
func (j *jaeger) until(so func() bool) bool {
	limit, tick := time.NewTimer(process.Patience), time.NewTicker(10*time.Millisecond)
	defer limit.Stop()
	defer tick.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-limit.C:
			return false
		case <-j.Ended():
			return false
		}
	}
	return true
}

// freePorts gives loopback addresses that nobody has at this moment.
func freePorts(t *testing.T, n int) []string {
	t.Helper()
	addresses, listeners := make([]string, n), make([]net.Listener, n)
	for i := range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addresses[i], listeners[i] = l.Addr().String(), l
	}
	for _, l := range listeners { // only now, so that no port comes twice
		_ = l.Close()
	}
	return addresses
}
