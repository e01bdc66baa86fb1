package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/sallyport/sallyport/client"
)

// systemCA, in place of a file, names the roots of this machine.
const systemCA = "system"

// brokerFlags are the flags of every command that asks a broker: where it is, and who asks.
type brokerFlags struct {
	broker, token, ca     string
	clientCert, clientKey string
}

func (f *brokerFlags) declare(fs *pflag.FlagSet) {
	fs.StringVar(&f.broker, "broker", fromEnv("BROKER", "127.0.0.1:7400"), "address of the broker: host:port or unix:/path (SALLYPORT_BROKER)")
	// Its default stays out of --help: it is a secret.
	fs.StringVar(&f.token, "token", "", "bearer token of the caller (better: SALLYPORT_TOKEN)")
	fs.StringVar(&f.ca, "ca", fromEnv("CA", ""), "PEM file of the authority of the broker's certificate, or \"system\"; without it: cleartext (SALLYPORT_CA)")
	fs.StringVar(&f.clientCert, "client-cert", fromEnv("CLIENT_CERT", ""), "certificate chain of the caller, PEM; needs --ca (SALLYPORT_CLIENT_CERT)")
	fs.StringVar(&f.clientKey, "client-key", fromEnv("CLIENT_KEY", ""), "key of that certificate, PEM (SALLYPORT_CLIENT_KEY)")
}

func fromEnv(name, fallback string) string {
	if v := os.Getenv(envPrefix + name); v != "" {
		return v
	}
	return fallback
}

// dial makes the client. It connects when it is used.
func (f *brokerFlags) dial() (*client.Client, error) {
	if f.token == "" {
		f.token = fromEnv("TOKEN", "")
	}
	over, err := f.tls()
	if err != nil {
		return nil, err
	}
	return client.Dial(f.broker, client.Config{Token: f.token, TLS: over})
}

// tls gives the client's part of a handshake; nil: cleartext.
func (f *brokerFlags) tls() (*tls.Config, error) {
	switch {
	case (f.clientCert == "") != (f.clientKey == ""):
		return nil, errors.New("--client-cert and --client-key belong together: give both or neither")
	case f.ca == "" && f.clientCert != "":
		return nil, errors.New("--client-cert: a certificate is shown over TLS only; give --ca too")
	case f.ca == "":
		return nil, nil //nolint:nilnil // cleartext, and nothing wrong
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.ca != systemCA {
		pem, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, fmt.Errorf("--ca: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--ca %s: holds no certificate in PEM form", f.ca)
		}
	}
	if f.clientCert != "" {
		pair, err := tls.LoadX509KeyPair(f.clientCert, f.clientKey)
		if err != nil {
			return nil, fmt.Errorf("--client-cert %s, --client-key %s: %w", f.clientCert, f.clientKey, err)
		}
		// Shown whatever authorities the broker lists: with another one it says what is wrong, and without any it could not.
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return cfg, nil
}
