package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
)

// answerBytes is the size of an answer's body.
const answerBytes = 1 << 10

// startUpstream starts a server that answers at once, over http and https, in HTTP/1.1.
func startUpstream(ctx context.Context) (ready, func(), error) {
	cert, ca, err := certificate()
	if err != nil {
		return ready{}, nil, err
	}
	body := bytes.Repeat([]byte("x"), answerBytes)
	plain, err := listen(ctx)
	if err != nil {
		return ready{}, nil, err
	}
	secure, err := listen(ctx)
	if err != nil {
		return ready{}, nil, err
	}
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/octet-stream")
			_, _ = w.Write(body) // a client that is gone is not counted
		}),
		ReadHeaderTimeout: time.Minute,
	}
	secure = tls.NewListener(secure, &tls.Config{
		Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS13,
	})
	var serving errgroup.Group
	serving.Go(func() error { return server.Serve(plain) })
	serving.Go(func() error { return server.Serve(secure) })
	at := ready{HTTP: "http://" + plain.Addr().String(), HTTPS: "https://" + secure.Addr().String(), CA: ca}
	return at, func() {
		_ = server.Close() // nothing is measured any more
		_ = serving.Wait() // both say that the server was closed
	}, nil
}

// certificate makes a self-signed certificate for 127.0.0.1, and its PEM.
func certificate() (tls.Certificate, string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, "", fmt.Errorf("key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bench"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, "", fmt.Errorf("certificate: %w", err)
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, string(ca), nil
}
