package tracing

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/sallyport/sallyport/call"
)

// endpoint wants an address the exporters can use. One that they would read otherwise than it was meant is refused: without a
// scheme it would be a name of a resolver, and a user name and password would be left out without a word.
func (s signal) endpoint() error {
	const give = "give http://host:port or https://host:port"
	name, value := s.otlp("ENDPOINT")
	u, err := url.Parse(value)
	switch {
	case err != nil: // which repeats the value
		return fmt.Errorf("%s is no URL: %s", name, give)
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("%s has no scheme http or https: %s", name, give)
	case u.Hostname() == "":
		return fmt.Errorf("%s has no host: %s", name, give)
	case u.User != nil:
		return fmt.Errorf("%s has a user name or password, which would not be sent: give them in OTEL_EXPORTER_OTLP_HEADERS", name)
	}
	if u.Port() == "" && !strings.HasSuffix(u.Host, ":") {
		return nil
	}
	if port, err := strconv.ParseUint(u.Port(), 10, 16); err != nil || port == 0 {
		return fmt.Errorf("%s has no port between 1 and 65535: %s", name, give)
	}
	return nil
}

// headers checks name=value pairs, the value percent-encoded (OTLP exporter specification, after W3C Baggage). A broken pair is named
// by its place: any part of it may be the secret.
func (s signal) headers() error {
	name, value := s.otlp("HEADERS")
	for i, pair := range strings.Split(value, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		field, escaped, found := strings.Cut(pair, "=")
		text, err := url.PathUnescape(escaped)
		var cause string
		switch {
		case !found:
			cause = "has no ="
		case !call.ValidToken(strings.TrimSpace(field)):
			cause = "has a name that is no header's"
		case err != nil: // which repeats a part of the value
			cause = "has a broken % escape"
		case !printable(strings.TrimSpace(text)):
			cause = "has a value that no header can carry"
		default:
			continue
		}
		return fmt.Errorf("%s: pair %d %s: give name=value,name=value with the values percent-encoded", name, i+1, cause)
	}
	return nil
}

// printable is what both gRPC metadata and HTTP take as a value.
func printable(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}

// timeout may be 0: no limit but the one of OTEL_BSP_EXPORT_TIMEOUT.
func (s signal) timeout() error {
	name, value := s.otlp("TIMEOUT")
	if value == "" {
		return nil
	}
	if n, err := strconv.Atoi(value); err != nil || n < 0 || n > maxMilliseconds {
		return fmt.Errorf("%s %q: give milliseconds, 0 to %d", name, value, maxMilliseconds)
	}
	return nil
}

func (s signal) authorities() error {
	name, file := s.otlp("CERTIFICATE")
	if file == "" {
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("%s: %w: give a file of certificates in PEM", name, err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(text) {
		return fmt.Errorf("%s: no certificate in %s: give a file of certificates in PEM", name, file)
	}
	return nil
}

// clientCertificate checks the pair. Its halves are of one kind: the exporters join none of a signal with one for all.
func (s signal) clientCertificate() error {
	for _, prefix := range []string{"OTEL_EXPORTER_OTLP_" + s.name + "_", "OTEL_EXPORTER_OTLP_"} {
		name, keyName := prefix+"CLIENT_CERTIFICATE", prefix+"CLIENT_KEY"
		file, keyFile := s.value(name), s.value(keyName)
		switch {
		case file == "" && keyFile == "":
			continue
		case file == "":
			return fmt.Errorf("%s without %s: give both or neither", keyName, name)
		case keyFile == "":
			return fmt.Errorf("%s without %s: give both or neither", name, keyName)
		}
		chain, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("%s: %w: give a certificate in PEM", name, err)
		}
		key, err := os.ReadFile(keyFile)
		if err != nil {
			return fmt.Errorf("%s: %w: give a key in PEM", keyName, err)
		}
		if _, err = tls.X509KeyPair(chain, key); err != nil {
			return fmt.Errorf("%s and %s: %w: give a certificate and its key in PEM", name, keyName, err)
		}
		return nil
	}
	return nil
}
