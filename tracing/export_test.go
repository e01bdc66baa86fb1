package tracing_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sallyport/sallyport/tracing"
)

func TestEveryProtocolExportsTheSameSpans(t *testing.T) {
	for _, tt := range []struct {
		name  string
		start func(*testing.T, *collector) string
		more  []string
	}{
		{"default", startCollector, nil},
		{"grpc", startCollector, []string{"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"}},
		{"http/protobuf", startHTTPCollector, []string{"OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"}},
		{
			"of traces alone", startHTTPCollector,
			[]string{"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &collector{}
			o := observe(t, tt.start(t, c), tt.more...)
			do(t, o, giving(answered(503), answered(200)), open(), asked(t, "GET", "https://api.example.com/"), sampled)
			if spans := c.exported(t, o); len(spans) != 3 {
				t.Errorf("%d spans", len(spans))
			}
			if r := c.resources[0]; r["service.name"] != "sallyport" || r["service.version"] != "1.2.3" {
				t.Errorf("resource %v", r)
			}
		})
	}
}

func TestServiceNameOfTheEnvironmentWins(t *testing.T) {
	c := &collector{}
	o := observe(t, startCollector(t, c), "OTEL_SERVICE_NAME", "edge", "OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
	do(t, o, giving(answered(200)), open(), asked(t, "GET", "https://api.example.com/"), "")
	c.exported(t, o)
	if r := c.resources[0]; r["service.name"] != "edge" || r["deployment.environment.name"] != "test" {
		t.Errorf("resource %v", r)
	}
}

func TestWhatSwitchesTheExportOff(t *testing.T) {
	for _, tt := range []struct{ name, value string }{
		{"OTEL_SDK_DISABLED", "true"},
		{"OTEL_SDK_DISABLED", "TRUE"},
		{"OTEL_TRACES_EXPORTER", "none"},
		{"OTEL_TRACES_SAMPLER", "always_off"},
	} {
		t.Run(tt.name+"="+tt.value, func(t *testing.T) {
			c := &collector{}
			o := observe(t, startCollector(t, c), tt.name, tt.value)
			final := do(t, o, giving(answered(200)), open(), asked(t, "GET", "https://api.example.com/"), sampled)
			if spans := c.exported(t, o); len(spans) != 0 {
				t.Errorf("exported %v", spans)
			}
			if final.Attempts[0].TraceID != callerTrace {
				t.Errorf("the attempt is of trace %s", final.Attempts[0].TraceID)
			}
		})
	}
}

// Whatever the collector does, calls take no longer than without one, and the end of the process is held up for 3 s at most.
func TestCollectorNeverHoldsUpACall(t *testing.T) {
	const (
		calls = 200
		// more than calls may take than without export; a call that waited for an export would wait for seconds.
		more = 2 * time.Second
		// end is the bound of the last export, and what a loaded machine adds.
		end = 3*time.Second + 2*time.Second
	)
	without := elapsed(t, &tracing.Observer{}, calls)
	for _, tt := range []struct {
		name  string
		start func(*testing.T) string
	}{
		{"dead", closedPort},
		{"slow", slowCollector},
		{"hung", hungListener},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// A queue smaller than what comes, and an export at once: the full queue is what could block.
			o := observe(t, tt.start(t), "OTEL_BSP_MAX_QUEUE_SIZE", "16", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "8", "OTEL_BSP_SCHEDULE_DELAY", "1")
			if took := elapsed(t, o, calls); took > without+more {
				t.Errorf("%d calls took %s, and %s without export", calls, took, without)
			}
			began := time.Now()
			err := o.Close(t.Context())
			if took := time.Since(began); took > end {
				t.Errorf("the end took %s (%v)", took, err)
			}
		})
	}
}

// elapsed is the time that calls take whose upstream answers at once.
func elapsed(t *testing.T, o *tracing.Observer, calls int) time.Duration {
	t.Helper()
	began := time.Now()
	for range calls {
		do(t, o, giving(answered(200)), open(), asked(t, "GET", "https://api.example.com/"), sampled)
	}
	return time.Since(began)
}

func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return "http://" + l.Addr().String()
}

// slowCollector takes half a second for every batch.
func slowCollector(t *testing.T) string {
	t.Helper()
	return startCollector(t, &collector{export: func(ctx context.Context) error {
		timer := time.NewTimer(500 * time.Millisecond)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}})
}

// hungListener takes connections and never says a word.
func hungListener(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex // protects taken
	var taken []net.Conn
	accepting := make(chan struct{}) // closed by the goroutine below
	go func() {
		defer close(accepting)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			taken = append(taken, conn)
			mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-accepting
		for conn := range slices.Values(taken) {
			_ = conn.Close()
		}
	})
	return "http://" + l.Addr().String()
}

func TestNothingIsExportedWithoutAnEndpoint(t *testing.T) {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"} {
		t.Setenv(name, "")
	}
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "not looked at")
	o, err := tracing.New(t.Context(), os.LookupEnv, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	final := do(t, o, giving(answered(200)), open(), asked(t, "GET", "https://api.example.com/"), sampled)
	if len(final.Attempts) != 1 || final.Attempts[0].TraceParent == "" {
		t.Errorf("attempts %+v", final.Attempts)
	}
	if err := o.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestExportThatFailsIsLogged(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", startCollector(t, &collector{export: func(context.Context) error {
		return status.Error(codes.PermissionDenied, "no such tenant")
	}}))
	var log bytes.Buffer // read after Close, which waits for the export
	o, err := tracing.New(t.Context(), os.LookupEnv, "", slog.New(slog.NewJSONHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	do(t, o, giving(answered(200)), open(), asked(t, "GET", "https://api.example.com/"), sampled)
	if err := o.Close(t.Context()); err != nil {
		t.Error(err)
	}
	var line struct {
		Level string `json:"level"`
		Error string `json:"error"`
		Spans int    `json:"spans"`
	}
	if err := json.Unmarshal(log.Bytes(), &line); err != nil {
		t.Fatalf("%v: %s", err, log.String())
	}
	if line.Level != "WARN" || line.Spans != 2 || !strings.Contains(line.Error, "no such tenant") {
		t.Errorf("logged %s", log.String())
	}
}
