package broker

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// Authorities are those whose client certificates are believed, the file of --client-ca. They may be replaced while connections stand:
// whoever a connection belongs to is judged anew by then.
type Authorities struct {
	path string
	pool atomic.Pointer[x509.CertPool]
}

// LoadAuthorities reads certificates in PEM form.
func LoadAuthorities(path string) (*Authorities, error) {
	a := &Authorities{path: path}
	if err := a.Reload(); err != nil {
		return nil, err
	}
	return a, nil
}

// Reload reads the file again. With an error, what was in force stays.
func (a *Authorities) Reload() error {
	content, err := readBounded(a.path)
	if err != nil {
		return fmt.Errorf("client-ca: %w", err)
	}
	pool, err := parseAuthorities(content)
	if err != nil {
		return fmt.Errorf("client-ca: %s: %w", a.path, err)
	}
	if old := a.pool.Load(); old == nil || !old.Equal(pool) { // the same ones again give no connection another look
		a.pool.Store(pool)
	}
	return nil
}

// parseAuthorities is strict where [x509.CertPool.AppendCertsFromPEM] leaves out what it cannot read: an authority that is missing
// without a word locks out all of its clients.
func parseAuthorities(content []byte) (*x509.CertPool, error) {
	pool, n := x509.NewCertPool(), 0
	for {
		block, rest := pem.Decode(content)
		if block == nil {
			break
		}
		n++
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("block %d is no certificate; only certificates belong here", n)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", n, err)
		}
		pool.AddCert(cert)
		content = rest
	}
	switch {
	case bytes.Contains(content, []byte("-----BEGIN")):
		return nil, fmt.Errorf("certificate %d is broken", n+1)
	case n == 0:
		return nil, errors.New("holds no certificate in PEM form")
	}
	return pool, nil
}

// vouchFor says why the authorities of pool do not stand by the first certificate of chain at that time. Its errors repeat nothing of the
// certificate.
func vouchFor(pool *x509.CertPool, chain []*x509.Certificate, at time.Time) error {
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: pool, Intermediates: between, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return errors.New("no authority of --client-ca stands by it")
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		switch invalid.Reason { //nolint:exhaustive // the others are rare, and told below
		case x509.Expired:
			return errors.New("it, or one between it and its authority, has expired or is not valid yet")
		case x509.IncompatibleUsage:
			return errors.New("it is not for clients (extended key usage)")
		}
	}
	return errors.New("it does not lead to an authority of --client-ca by the rules of RFC 5280")
}
