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

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
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
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/octet-stream")
			if r.URL.Path == onceOnly {
				w.Header().Set("Connection", "close")
			}
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
	spans, err := listen(ctx)
	if err != nil {
		return ready{}, nil, err
	}
	collector := grpc.NewServer()
	collectorpb.RegisterTraceServiceServer(collector, sink{})
	serving.Go(func() error { return collector.Serve(spans) })
	at := ready{
		HTTP: "http://" + plain.Addr().String(), HTTPS: "https://" + secure.Addr().String(), CA: ca,
		OTLP: "http://" + spans.Addr().String(),
	}
	return at, func() {
		collector.Stop()
		_ = server.Close() // nothing is measured any more
		_ = serving.Wait() // they say that they were closed
	}, nil
}

// onceOnly is the path whose answer ends its connection.
const onceOnly = "/once"

// sink is a collector that forgets what it is sent.
type sink struct {
	collectorpb.UnimplementedTraceServiceServer
}

// Export takes a batch (OTLP/gRPC).
func (sink) Export(context.Context, *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	return &collectorpb.ExportTraceServiceResponse{}, nil
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
