package main

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func load(t *testing.T, config string, environ []string, args ...string) (*settings, error) {
	t.Helper()
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	settingFlags(fs)
	if config != "" {
		path := filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--config", path)
	}
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return loadSettings(fs, environ)
}

func TestNarrowerSettingWins(t *testing.T) {
	const file = "grpc: 127.0.0.1:1\ndev: true\nallow-special: [169.254.0.0/16, '::ffff:192.0.2.0/120']\n"
	for _, tt := range []struct {
		name    string
		config  string
		environ []string
		args    []string
		grpc    string
		dev     bool
		special []string
	}{
		{"defaults", "", nil, nil, "127.0.0.1:7400", false, nil},
		{"file over defaults", file, nil, nil, "127.0.0.1:1", true, []string{"169.254.0.0/16", "192.0.2.0/24"}},
		{
			"environment over file", file,
			[]string{"SALLYPORT_GRPC=127.0.0.1:2", "SALLYPORT_DEV=false", "SALLYPORT_ALLOW_SPECIAL=240.0.0.0/4,2001:db8::/32"},
			nil, "127.0.0.1:2", false,
			[]string{"240.0.0.0/4", "2001:db8::/32"},
		},
		{
			"flags over all", file,
			[]string{"SALLYPORT_GRPC=127.0.0.1:2", "SALLYPORT_DEV=true"},
			[]string{"--grpc", "127.0.0.1:3", "--dev=false", "--allow-special", "0.0.0.0/8"},
			"127.0.0.1:3", false,
			[]string{"0.0.0.0/8"},
		},
		{"an empty variable is none", file, []string{"SALLYPORT_GRPC=", "SALLYPORT_BROKER=x", "OTHER=y"}, nil, "127.0.0.1:1", true, []string{"169.254.0.0/16", "192.0.2.0/24"}},
		{"a flag at its default still wins", file, nil, []string{"--grpc", "127.0.0.1:7400"}, "127.0.0.1:7400", true, []string{"169.254.0.0/16", "192.0.2.0/24"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := load(t, tt.config, tt.environ, tt.args...)
			if err != nil {
				t.Fatal(err)
			}
			var want []netip.Prefix
			for _, p := range tt.special {
				want = append(want, netip.MustParsePrefix(p))
			}
			if s.GRPC != tt.grpc || s.Dev != tt.dev || !slices.Equal(s.AllowSpecial, want) {
				t.Errorf("got %+v", s)
			}
		})
	}
}

func TestConfigFileIsNamedByTheEnvironmentToo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte("data: elsewhere\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := load(t, "", []string{"SALLYPORT_CONFIG=" + path})
	if err != nil || s.Data != "elsewhere" {
		t.Errorf("got %+v, %v", s, err)
	}
}

func TestBrokenSettingIsNamed(t *testing.T) {
	for _, tt := range []struct{ name, config, want string }{
		{"a second document", "dev: true\n---\ninsecure: true", "a second document"},
		{"unknown", "dvе: true", `unknown key "dvе"`}, // a Cyrillic letter
		{"nested", "tls:\n  cert: x", `unknown key "tls"`},
		{"dotted", "tls.cert: x", `unknown key "tls.cert"`},
		{"a number for text", "grpc: 7400", "grpc: 7400 is no text"},
		{"a list for a switch", "dev: [true]", "dev: \"[true]\" is neither true nor false"},
		{"no YAML", "a: b: c", "c.yaml: yaml:"},
		{"empty", "data: ''", "data: empty"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := load(t, tt.config, nil); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
