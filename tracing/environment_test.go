package tracing_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sallyport/sallyport/tracing"
)

// start makes an observer of an environment with an endpoint and these variables, and gives the error.
func start(t *testing.T, pairs ...string) error {
	t.Helper()
	env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317"}
	for i := 0; i < len(pairs); i += 2 {
		env[pairs[i]] = pairs[i+1]
	}
	o, err := tracing.New(t.Context(), func(name string) (string, bool) { v, ok := env[name]; return v, ok }, "", slog.New(slog.DiscardHandler))
	if err == nil {
		if cerr := o.Close(t.Context()); cerr != nil {
			t.Error(cerr)
		}
	}
	return err
}

func TestBrokenVariableIsNamedAtTheStart(t *testing.T) {
	dir := t.TempDir()
	empty, gone := filepath.Join(dir, "empty.pem"), filepath.Join(dir, "gone.pem")
	if err := os.WriteFile(empty, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	const url, pairs = "give http://host:port or https://host:port", "give name=value,name=value with the values percent-encoded"
	for _, tt := range []struct{ name, value, want string }{
		{"OTEL_TRACES_EXPORTER", "console", `OTEL_TRACES_EXPORTER "console": give otlp or none`},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "://bad", "OTEL_EXPORTER_OTLP_ENDPOINT is no URL: " + url},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "127.0.0.1:4317", "OTEL_EXPORTER_OTLP_ENDPOINT is no URL: " + url},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317", "OTEL_EXPORTER_OTLP_ENDPOINT has no scheme http or https: " + url},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "ftp://127.0.0.1:4317", "OTEL_EXPORTER_OTLP_ENDPOINT has no scheme http or https: " + url},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://", "OTEL_EXPORTER_OTLP_ENDPOINT has no host: " + url},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://:4317", "OTEL_EXPORTER_OTLP_ENDPOINT has no host: " + url},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:", "OTEL_EXPORTER_OTLP_ENDPOINT has no port between 1 and 65535: " + url},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:65536", "OTEL_EXPORTER_OTLP_ENDPOINT has no port between 1 and 65535: " + url},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "127.0.0.1", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT has no scheme http or https: " + url},
		{"OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", `OTEL_EXPORTER_OTLP_PROTOCOL "http/json": give grpc or http/protobuf`},
		{"OTEL_EXPORTER_OTLP_HEADERS", "authorization", "OTEL_EXPORTER_OTLP_HEADERS: pair 1 has no =: " + pairs},
		{"OTEL_EXPORTER_OTLP_HEADERS", "a=1,b b=2", "OTEL_EXPORTER_OTLP_HEADERS: pair 2 has a name that is no header's: " + pairs},
		{"OTEL_EXPORTER_OTLP_TRACES_HEADERS", "a=%zz", "OTEL_EXPORTER_OTLP_TRACES_HEADERS: pair 1 has a broken % escape: " + pairs},
		{"OTEL_EXPORTER_OTLP_HEADERS", "a=b%0Ac", "OTEL_EXPORTER_OTLP_HEADERS: pair 1 has a value that no header can carry: " + pairs},
		{"OTEL_EXPORTER_OTLP_COMPRESSION", "zstd", `OTEL_EXPORTER_OTLP_COMPRESSION "zstd": give none or gzip`},
		{"OTEL_EXPORTER_OTLP_TIMEOUT", "10s", `OTEL_EXPORTER_OTLP_TIMEOUT "10s": give milliseconds, 0 to 86400000`},
		{"OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "-1", `OTEL_EXPORTER_OTLP_TRACES_TIMEOUT "-1": give milliseconds, 0 to 86400000`},
		{"OTEL_EXPORTER_OTLP_CERTIFICATE", gone, "OTEL_EXPORTER_OTLP_CERTIFICATE: open " + gone},
		{"OTEL_EXPORTER_OTLP_CERTIFICATE", empty, "OTEL_EXPORTER_OTLP_CERTIFICATE: no certificate in " + empty},
		{"OTEL_EXPORTER_OTLP_CLIENT_KEY", gone, "OTEL_EXPORTER_OTLP_CLIENT_KEY without OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE: give both"},
		{
			"OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE", gone,
			"OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE without OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY: give both",
		},
		{"OTEL_TRACES_SAMPLER", "sometimes", `OTEL_TRACES_SAMPLER "sometimes": give always_on, always_off, traceidratio, `},
		{"OTEL_TRACES_SAMPLER_ARG", "1.5", `OTEL_TRACES_SAMPLER_ARG "1.5": give a number from 0 to 1`},
		{"OTEL_TRACES_SAMPLER_ARG", "-0.1", `OTEL_TRACES_SAMPLER_ARG "-0.1": give a number from 0 to 1`},
		{"OTEL_TRACES_SAMPLER_ARG", "NaN", `OTEL_TRACES_SAMPLER_ARG "NaN": give a number from 0 to 1`},
		{"OTEL_BSP_MAX_QUEUE_SIZE", "-5", `OTEL_BSP_MAX_QUEUE_SIZE "-5": give a number from 1 to 1000000`},
		{"OTEL_BSP_MAX_QUEUE_SIZE", "100000000000", `OTEL_BSP_MAX_QUEUE_SIZE "100000000000": give a number from 1 to 1000000`},
		{"OTEL_BSP_MAX_QUEUE_SIZE", " 5", `OTEL_BSP_MAX_QUEUE_SIZE " 5": give a number from 1 to 1000000`},
		{"OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "0", `OTEL_BSP_MAX_EXPORT_BATCH_SIZE "0": give a number from 1 to 1000000`},
		{"OTEL_BSP_SCHEDULE_DELAY", "5s", `OTEL_BSP_SCHEDULE_DELAY "5s": give a number from 1 to 86400000`},
		{"OTEL_BSP_EXPORT_TIMEOUT", "-1", `OTEL_BSP_EXPORT_TIMEOUT "-1": give a number from 1 to 86400000`},
		{"OTEL_RESOURCE_ATTRIBUTES", "a=1,b", "OTEL_RESOURCE_ATTRIBUTES: pair 2 has no = or a broken % escape: give name=value,name=value"},
	} {
		t.Run(tt.name+"="+strings.ReplaceAll(tt.value, "/", "_"), func(t *testing.T) {
			if err := start(t, tt.name, tt.value); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
			if err := start(t, tt.name, tt.value, "OTEL_SDK_DISABLED", "true"); err != nil {
				t.Errorf("switched off: %v", err)
			}
		})
	}
}

func TestClientKeyThatIsGoneIsNamedAtTheStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.pem")
	if err := os.WriteFile(file, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ certificate, key, want string }{
		{file + "-", file, "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE: open "},
		{file, file + "-", "OTEL_EXPORTER_OTLP_CLIENT_KEY: open "},
		{file, file, "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and OTEL_EXPORTER_OTLP_CLIENT_KEY: "},
	} {
		err := start(t, "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", tt.certificate, "OTEL_EXPORTER_OTLP_CLIENT_KEY", tt.key)
		if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("got %v, want %s", err, tt.want)
		}
	}
}

func TestSoundVariableIsTaken(t *testing.T) {
	for _, tt := range []struct{ name, value string }{
		{"OTEL_TRACES_EXPORTER", "otlp"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", " HTTPS://collector.example.com "},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://[::1]:4317"},
		{"OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc=, x-tenant = a,"},
		{"OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"},
		{"OTEL_EXPORTER_OTLP_TIMEOUT", "0"},
		{"OTEL_TRACES_SAMPLER", "parentbased_traceidratio"},
		{"OTEL_TRACES_SAMPLER_ARG", "0.25"},
		{"OTEL_BSP_MAX_QUEUE_SIZE", "1"},
		{"OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test"},
	} {
		if err := start(t, tt.name, tt.value); err != nil {
			t.Errorf("%s=%s: %v", tt.name, tt.value, err)
		}
	}
}

// The variable for traces is in force, and the other one is not looked at.
func TestBrokenVariableBehindTheOneInForceIsNoError(t *testing.T) {
	if err := start(t, "OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"); err != nil {
		t.Error(err)
	}
}

func TestEveryBrokenVariableIsNamedAtOnce(t *testing.T) {
	err := start(t, "OTEL_EXPORTER_OTLP_TIMEOUT", "x", "OTEL_BSP_MAX_QUEUE_SIZE", "x")
	if err == nil || len(strings.Split(err.Error(), "\n")) != 2 {
		t.Errorf("got %v", err)
	}
}

// Whatever stands in an endpoint or in headers, and however broken, no error repeats it.
func TestNoErrorHoldsASecret(t *testing.T) {
	const secret = "s3cretpw"
	rapid.Check(t, func(rt *rapid.T) {
		noise := rapid.StringOfN(rapid.SampledFrom([]rune(":/@%=,#?[] \n\x7fé")), 0, 6, -1)
		endpoint := rapid.SampledFrom([]string{"http://u:", "https://", "u:", "://", ""}).Draw(rt, "begin") + noise.Draw(rt, "before") + secret + noise.Draw(rt, "after")
		headers := noise.Draw(rt, "left") + secret + noise.Draw(rt, "right")
		for _, err := range []error{
			start(t, "OTEL_EXPORTER_OTLP_ENDPOINT", endpoint+"@127.0.0.1:4317"), start(t, "OTEL_EXPORTER_OTLP_HEADERS", headers),
		} {
			if err != nil && strings.Contains(err.Error(), secret) {
				rt.Errorf("%v", err)
			}
		}
	})
}
