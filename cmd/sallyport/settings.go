package main

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"

	"github.com/sallyport/sallyport/broker"
	"github.com/sallyport/sallyport/egress/guard"
)

// envPrefix begins the environment variables that mirror the flags.
const envPrefix = "SALLYPORT_"

// settings are what `serve` is told. The names of the flags are those of the configuration file and, in capitals and with
// underscores, of the environment.
type settings struct {
	// GRPC and HTTP are where the broker listens: host:port, or for GRPC unix:/path.
	GRPC, HTTP string
	// Data is the directory of the broker's state.
	Data string
	// Policies, Tokens and Secrets name files and a directory; "" for none.
	Policies, Tokens, Secrets string
	// TLSCert and TLSKey are PEM files; both or none.
	TLSCert, TLSKey string
	// Dev opens loopback destinations, Insecure listens off loopback without TLS or tokens.
	Dev, Insecure bool
	// AccessLog writes a line for every finished call.
	AccessLog bool
	// Limits bound all calls together.
	Limits broker.Limits
	// AllowSpecial opens hard ranges.
	AllowSpecial []netip.Prefix
}

// kind is the type of a setting.
type kind uint8

const (
	kindText kind = iota + 1
	kindSwitch
	kindList
	kindNumber // a number, or a text that begins with one
)

// settingKinds lists every setting.
func settingKinds() map[string]kind {
	return map[string]kind{
		"grpc": kindText, "http": kindText, "data": kindText, "policies": kindText, "tokens": kindText, "secrets": kindText,
		"tls-cert": kindText, "tls-key": kindText, "dev": kindSwitch, "insecure": kindSwitch, "allow-special": kindList,
		"access-log": kindSwitch, "max-calls": kindNumber, "max-bytes": kindNumber,
	}
}

func defaultSettings() map[string]any {
	return map[string]any{
		"grpc": "127.0.0.1:7400", "http": "127.0.0.1:7480", "data": "./sallyport-data", "max-calls": "10000", "max-bytes": "1GiB",
	}
}

// settingFlags declares the flags of `serve`. Their defaults stand in [defaultSettings]; here they are only shown.
func settingFlags(f *pflag.FlagSet) {
	d := defaultSettings()
	f.String("config", "", "YAML file with these settings by their names; flags and SALLYPORT_* win over it")
	f.String("grpc", fmt.Sprint(d["grpc"]), "address of the gRPC listener: host:port or unix:/path")
	f.String("http", fmt.Sprint(d["http"]), "address of the HTTP listener: /healthz, /readyz, /metrics")
	f.String("data", fmt.Sprint(d["data"]), "directory of the broker's state")
	f.String("policies", "", "policy file, YAML or JSON")
	f.String("tokens", "", "file with the bearer tokens of callers; without one every caller is \"local\"")
	f.String("secrets", "", "directory of the files that credentials in policies name")
	f.String("tls-cert", "", "certificate chain of both listeners, PEM")
	f.String("tls-key", "", "key of the certificate, PEM")
	f.Bool("dev", false, "let calls go to loopback addresses, on any port")
	f.Bool("insecure", false, "listen off loopback without TLS or tokens")
	f.Bool("access-log", false, "log a line for every finished call")
	f.String("max-calls", fmt.Sprint(d["max-calls"]), "calls in flight at once, in all; more are refused")
	f.String("max-bytes", fmt.Sprint(d["max-bytes"]), "bytes that the bodies of all calls may hold; takes KiB, MiB, GiB")
	f.StringSlice("allow-special", nil, "open this CIDR although it is reserved, link-local or the like (repeatable)")
}

// loadSettings reads the settings: defaults, then the file, then the environment, then the flags that were given.
func loadSettings(flags *pflag.FlagSet, environ []string) (*settings, error) {
	k := koanf.New(noDelimiter)
	layers := []func() (map[string]any, error){
		func() (map[string]any, error) { return defaultSettings(), nil },
		func() (map[string]any, error) { return fileLayer(configPath(flags, environ)) },
		func() (map[string]any, error) { return envLayer(environ) },
		func() (map[string]any, error) { return flagLayer(flags) },
	}
	for _, layer := range layers {
		values, err := layer()
		if err != nil {
			return nil, err
		}
		if err := k.Load(confmap.Provider(values, ""), nil); err != nil {
			return nil, fmt.Errorf("settings: %w", err)
		}
	}
	s := &settings{
		GRPC: k.String("grpc"), HTTP: k.String("http"), Data: k.String("data"),
		Policies: k.String("policies"), Tokens: k.String("tokens"), Secrets: k.String("secrets"),
		TLSCert: k.String("tls-cert"), TLSKey: k.String("tls-key"),
		Dev: k.Bool("dev"), Insecure: k.Bool("insecure"), AccessLog: k.Bool("access-log"),
	}
	var err error
	if s.Limits.MaxCalls, err = parseCount(k.String("max-calls")); err != nil {
		return nil, fmt.Errorf("max-calls: %w", err)
	}
	if s.Limits.MaxBytes, err = parseSize(k.String("max-bytes")); err != nil {
		return nil, fmt.Errorf("max-bytes: %w", err)
	}
	if s.Limits.MaxBytes < broker.MinMaxBytes {
		return nil, fmt.Errorf("max-bytes: %d would refuse calls even without a body; give 64KiB or more", s.Limits.MaxBytes)
	}
	for _, cidr := range k.Strings("allow-special") {
		p, err := guard.ParseSpecial(cidr)
		if err != nil {
			return nil, fmt.Errorf("allow-special %q: %w", cidr, err)
		}
		s.AllowSpecial = append(s.AllowSpecial, p)
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *settings) check() error {
	switch {
	case (s.TLSCert == "") != (s.TLSKey == ""):
		return errors.New("tls-cert and tls-key belong together: give both or neither")
	case s.GRPC == "":
		return errors.New("grpc: empty; give host:port or unix:/path")
	case s.HTTP == "":
		return errors.New("http: empty; give host:port")
	case s.Data == "":
		return errors.New("data: empty; give a directory")
	}
	return nil
}
