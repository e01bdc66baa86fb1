package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"strconv"
	"strings"

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
	// GRPC, HTTP and Admin are where the broker listens: host:port, or for GRPC and Admin unix:/path. Admin "": the services that
	// administer are on GRPC.
	GRPC, HTTP, Admin string
	// Data is the directory of the broker's state.
	Data string
	// Policies, Tokens and Secrets name files and a directory; "" for none.
	Policies, Tokens, Secrets string
	// TLSCert and TLSKey are PEM files; both or none. ClientCA is one too, "" asks for no client certificates.
	TLSCert, TLSKey, ClientCA string
	// SocketMode is that of unix sockets.
	SocketMode fs.FileMode
	// Dev opens loopback destinations, Insecure listens off loopback without TLS or tokens.
	Dev, Insecure bool
	// PlainREST serves the paths of a plain retry service off loopback too.
	PlainREST bool
	// AccessLog writes a line for every finished call.
	AccessLog bool
	// Limits bound all calls together.
	Limits broker.Limits
	// Replicas is how many brokers serve the same callers.
	Replicas uint64
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
		"client-ca": kindText, "admin": kindText, "socket-mode": kindText, "access-log": kindSwitch, "max-calls": kindNumber, "max-bytes": kindNumber,
		"replicas": kindNumber, "plain-rest": kindSwitch,
	}
}

func defaultSettings() map[string]any {
	return map[string]any{
		"grpc": "127.0.0.1:7400", "http": "127.0.0.1:7480", "data": "./sallyport-data", "max-calls": "10000", "max-bytes": "1GiB",
		"socket-mode": "0600", "replicas": "1",
	}
}

// settingFlags declares the flags of `serve`. Their defaults stand in [defaultSettings]; here they are only shown.
func settingFlags(f *pflag.FlagSet) {
	d := defaultSettings()
	f.String("config", "", "YAML file with these settings by their names; flags and SALLYPORT_* win over it")
	f.String("grpc", fmt.Sprint(d["grpc"]), "address of the gRPC listener: host:port or unix:/path")
	f.String("http", fmt.Sprint(d["http"]), "address of the HTTP listener: REST, /healthz, /readyz, /metrics")
	f.String("admin", "", "address of a listener for the services that administer: host:port or unix:/path; without it they are on --grpc")
	f.String("data", fmt.Sprint(d["data"]), "directory of the broker's state")
	f.String("policies", "", "policy file, YAML or JSON")
	f.String("tokens", "", "file that says who may do what: bearer tokens, names in client certificates, users; without one every caller is \"local\"")
	f.String("secrets", "", "directory of the files that credentials in policies name")
	f.String("tls-cert", "", "certificate chain of all listeners, PEM")
	f.String("tls-key", "", "key of the certificate, PEM")
	f.String("client-ca", "", "authorities of client certificates, PEM; callers are known by their SPIFFE id or DNS name")
	f.String("socket-mode", fmt.Sprint(d["socket-mode"]), "mode of unix sockets, octal; others than the owner need --tokens")
	f.Bool("dev", false, "let calls go to loopback addresses, on any port")
	f.Bool("insecure", false, "listen off loopback without TLS, or without tokens and client certificates")
	f.Bool("plain-rest", false, "serve POST /request and GET /requests off loopback too")
	f.Bool("access-log", false, "log a line for every finished call")
	f.String("max-calls", fmt.Sprint(d["max-calls"]), "calls in flight at once, in all; more are refused")
	f.String("max-bytes", fmt.Sprint(d["max-bytes"]), "bytes that the bodies of all calls may hold; takes KiB, MiB, GiB")
	f.String("replicas", fmt.Sprint(d["replicas"]), "how many brokers serve the same callers; above 1 calls with an operation id are refused, since no broker knows the others' ids")
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
		GRPC: k.String("grpc"), HTTP: k.String("http"), Admin: k.String("admin"), Data: k.String("data"),
		Policies: k.String("policies"), Tokens: k.String("tokens"), Secrets: k.String("secrets"),
		TLSCert: k.String("tls-cert"), TLSKey: k.String("tls-key"), ClientCA: k.String("client-ca"),
		Dev: k.Bool("dev"), Insecure: k.Bool("insecure"), PlainREST: k.Bool("plain-rest"), AccessLog: k.Bool("access-log"),
	}
	var err error
	if s.Limits.MaxCalls, err = parseCount(k.String("max-calls")); err != nil {
		return nil, fmt.Errorf("max-calls: %w", err)
	}
	if s.Replicas, err = parseCount(k.String("replicas")); err != nil {
		return nil, fmt.Errorf("replicas: %w", err)
	}
	if s.Limits.MaxBytes, err = parseSize(k.String("max-bytes")); err != nil {
		return nil, fmt.Errorf("max-bytes: %w", err)
	}
	if s.Limits.MaxBytes < broker.MinMaxBytes {
		return nil, fmt.Errorf("max-bytes: %d would refuse calls even without a body; give 64KiB or more", s.Limits.MaxBytes)
	}
	if s.SocketMode, err = parseSocketMode(k.String("socket-mode")); err != nil {
		return nil, fmt.Errorf("socket-mode: %w", err)
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
	case s.ClientCA != "" && s.TLSCert == "":
		return errors.New("client-ca: a client certificate is shown over TLS only; give tls-cert and tls-key too")
	case s.SocketMode&0o077 != 0 && s.Tokens == "" && s.ClientCA == "":
		return fmt.Errorf("socket-mode: %04o lets other users open the socket, and without tokens each would be local, who may do everything; give tokens", s.SocketMode)
	case s.GRPC == "":
		return errors.New("grpc: empty; give host:port or unix:/path")
	case s.HTTP == "":
		return errors.New("http: empty; give host:port")
	case s.Data == "":
		return errors.New("data: empty; give a directory")
	}
	return nil
}

// parseSocketMode reads a mode as chmod does.
func parseSocketMode(text string) (fs.FileMode, error) {
	mode, err := strconv.ParseUint(text, 8, 32)
	if err != nil || mode > 0o777 || mode&0o600 != 0o600 {
		return 0, fmt.Errorf("%q: give an octal mode in which the owner may read and write, such as \"0660\"", text)
	}
	return fs.FileMode(mode), nil
}

// guarded: over the network only those may call who have proved who they are.
func (s *settings) guarded() bool { return s.TLSCert != "" && (s.Tokens != "" || s.ClientCA != "") }

// proofs are what this broker can see of its connections.
func (s *settings) proofs() broker.Proofs {
	socket := strings.HasPrefix(s.GRPC, unixPrefix) || strings.HasPrefix(s.Admin, unixPrefix)
	return broker.Proofs{Certificates: s.ClientCA != "", Users: socket && broker.KnowsUsers}
}
