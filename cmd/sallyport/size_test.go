package main

import (
	"math"
	"strings"
	"testing"
)

func TestSizeIsBytesOrABinaryUnit(t *testing.T) {
	for text, want := range map[string]uint64{
		"1": 1, "1073741824": 1 << 30, "1KiB": 1 << 10, "512MiB": 512 << 20, "1GiB": 1 << 30, "2TiB": 2 << 40,
		"9223372036854775807": math.MaxInt64, "8388607TiB": 8388607 << 40,
	} {
		if got, err := parseSize(text); err != nil || got != want {
			t.Errorf("%s: %d, %v, want %d", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"": "no size", "GiB": "no size", "1GB": "512MiB", "1 GiB": "no size", "1gib": "no size", "-1": "no size", "1.5GiB": "no size", "1e9": "no size",
		"0": "above it", "0GiB": "above it", "9223372036854775808": "larger", "8388608TiB": "larger", "99999999999999999999": "no size",
	} {
		if got, err := parseSize(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %d, %v, want %q", text, got, err, want)
		}
	}
}

func TestLimitsComeFromEveryLayer(t *testing.T) {
	const file = "max-calls: 20\nmax-bytes: 512MiB\n"
	for _, tt := range []struct {
		name         string
		config       string
		environ      []string
		args         []string
		calls, bytes uint64
	}{
		{"defaults", "", nil, nil, 10_000, 1 << 30},
		{"file", file, nil, nil, 20, 512 << 20},
		{"plain bytes in a file", "max-bytes: 65536", nil, nil, 10_000, 65536},
		{"environment", file, []string{"SALLYPORT_MAX_CALLS=30", "SALLYPORT_MAX_BYTES=70000"}, nil, 30, 70000},
		{"flags", file, []string{"SALLYPORT_MAX_CALLS=30"}, []string{"--max-calls=40", "--max-bytes", "2GiB"}, 40, 2 << 30},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := load(t, tt.config, tt.environ, tt.args...)
			if err != nil {
				t.Fatal(err)
			}
			if s.Limits.MaxCalls != tt.calls || s.Limits.MaxBytes != tt.bytes {
				t.Errorf("got %+v", s.Limits)
			}
		})
	}
	for _, args := range [][]string{{"--max-calls=0"}, {"--max-calls=x"}, {"--max-calls=-1"}, {"--max-bytes=0"}, {"--max-bytes=1GB"}, {"--max-bytes=65535"}, {"--max-bytes=63KiB"}} {
		if s, err := load(t, "", nil, args...); err == nil || !strings.HasPrefix(err.Error(), strings.TrimPrefix(args[0][:11], "--")) {
			t.Errorf("%v: %+v, %v", args, s, err)
		}
	}
	if _, err := load(t, "max-calls: [1]", nil); err == nil || !strings.Contains(err.Error(), "no whole number") {
		t.Errorf("a list: %v", err)
	}
}
