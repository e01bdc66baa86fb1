package tracing

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Environment looks up a variable, as os.LookupEnv does.
type Environment func(name string) (string, bool)

// value is a variable without the blanks around it, which the SDK does not see either; "" where it is not set.
func (e Environment) value(name string) string {
	v, _ := e(name)
	return strings.TrimSpace(v)
}

// signal is the part of the telemetry that variables of an exporter are for: TRACES or METRICS.
type signal struct {
	Environment
	name string
}

func (e Environment) traces() signal  { return signal{e, "TRACES"} }
func (e Environment) metrics() signal { return signal{e, "METRICS"} }

// otlp is the variable of an exporter's setting that is in force: the one for the signal goes before the one for all.
func (s signal) otlp(setting string) (name, value string) {
	name = "OTEL_EXPORTER_OTLP_" + s.name + "_" + setting
	if v := s.value(name); v != "" {
		return name, v
	}
	name = "OTEL_EXPORTER_OTLP_" + setting
	return name, s.value(name)
}

// off: nothing of the signal is to be exported, and no other variable of it is looked at.
func (s signal) off() bool {
	_, endpoint := s.otlp("ENDPOINT")
	return endpoint == "" || strings.EqualFold(s.value("OTEL_SDK_DISABLED"), "true") || !s.wanted()
}

// wanted: spans unless they are switched off; metrics where they are asked for beside /metrics, which is always there.
func (s signal) wanted() bool {
	exporters := strings.ToLower(s.value("OTEL_" + s.name + "_EXPORTER"))
	if s.name == "METRICS" {
		return slices.Contains(strings.FieldsFunc(exporters, func(r rune) bool { return r == ',' || r == ' ' }), "otlp")
	}
	return exporters != "none"
}

// The bounds of what is a number. A queue is memory that is taken at once; a time beyond a day is a slip.
const (
	maxQueue        = 1_000_000
	maxMilliseconds = 24 * 60 * 60 * 1000
)

// check reads every documented variable as the SDK will, and tells all that are broken. The SDK itself starts with another value than
// the one it was given, logs the value, which may be a secret, or panics. So no error here repeats the value of an endpoint or of
// headers.
func (s signal) check() error {
	if s.name == "METRICS" {
		const temporality = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"
		return errors.Join(
			s.collector(),
			s.choice(temporality, strings.ToLower(s.value(temporality)), "cumulative", "delta", "lowmemory"),
			s.number("OTEL_METRIC_EXPORT_INTERVAL", maxMilliseconds),
			s.number("OTEL_METRIC_EXPORT_TIMEOUT", maxMilliseconds),
			s.resource(),
		)
	}
	e := s.Environment
	return errors.Join(
		e.choice("OTEL_TRACES_EXPORTER", strings.ToLower(e.value("OTEL_TRACES_EXPORTER")), "otlp", "none"),
		s.collector(),
		e.choice("OTEL_TRACES_SAMPLER", strings.ToLower(e.value("OTEL_TRACES_SAMPLER")), "always_on", "always_off", "traceidratio",
			"parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio"),
		e.ratio("OTEL_TRACES_SAMPLER_ARG"),
		e.number("OTEL_BSP_MAX_QUEUE_SIZE", maxQueue),
		e.number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", maxQueue),
		e.number("OTEL_BSP_SCHEDULE_DELAY", maxMilliseconds),
		e.number("OTEL_BSP_EXPORT_TIMEOUT", maxMilliseconds),
		e.resource(),
	)
}

// collector checks what tells where a signal goes, and how.
func (s signal) collector() error {
	return errors.Join(
		s.endpoint(),
		s.choiceOTLP("PROTOCOL", "grpc", "http/protobuf"),
		s.headers(),
		s.choiceOTLP("COMPRESSION", "none", "gzip"),
		s.timeout(),
		s.authorities(),
		s.clientCertificate(),
	)
}

func (Environment) choice(name, value string, choices ...string) error {
	if value == "" || slices.Contains(choices, value) {
		return nil
	}
	last := len(choices) - 1
	return fmt.Errorf("%s %q: give %s or %s", name, value, strings.Join(choices[:last], ", "), choices[last])
}

func (s signal) choiceOTLP(setting string, choices ...string) error {
	name, value := s.otlp(setting)
	return s.choice(name, value, choices...)
}

func (e Environment) ratio(name string) error {
	value := e.value(name)
	if value == "" {
		return nil
	}
	if r, err := strconv.ParseFloat(value, 64); err != nil || !(r >= 0 && r <= 1) { // so NaN is out of it
		return fmt.Errorf("%s %q: give a number from 0 to 1", name, value)
	}
	return nil
}

// number reads as the SDK does, which takes no blanks here.
func (e Environment) number(name string, most int) error {
	value, _ := e(name)
	if value == "" {
		return nil
	}
	if n, err := strconv.Atoi(value); err != nil || n < 1 || n > most {
		return fmt.Errorf("%s %q: give a number from 1 to %d", name, value, most)
	}
	return nil
}

// numberOr is a number that has been checked, or the default.
func (e Environment) numberOr(name string, otherwise int) int {
	value, _ := e(name)
	if n, err := strconv.Atoi(value); err == nil {
		return n
	}
	return otherwise
}

func (e Environment) resource() error {
	const name = "OTEL_RESOURCE_ATTRIBUTES"
	value := e.value(name)
	if value == "" {
		return nil
	}
	for i, pair := range strings.Split(value, ",") {
		_, escaped, found := strings.Cut(pair, "=")
		if _, err := url.PathUnescape(escaped); !found || err != nil {
			return fmt.Errorf("%s: pair %d has no = or a broken %% escape: give name=value,name=value", name, i+1)
		}
	}
	return nil
}
