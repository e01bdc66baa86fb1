package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sallyport/sallyport/client"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

const (
	// maxStreamMiB bounds the flag.
	maxStreamMiB = 16 << 10
	// peakEvery is how often the broker's memory is read.
	peakEvery = 20 * time.Millisecond
)

// streams measures the memory of the shipped broker with an upload and a download of so many MiB in parallel.
func streams(ctx context.Context, o *options) error {
	for _, scheme := range []string{"http", "https"} {
		s := streaming{bytes: int64(o.stream) << 20, scheme: scheme}
		if err := s.measure(ctx, o.broker); err != nil {
			return err
		}
	}
	return nil
}

// streaming is one measurement.
type streaming struct {
	bytes          int64
	scheme         string // http is HTTP/1.1, https is HTTP/2
	up, down       time.Duration
	first          time.Duration // until the first byte of the download
	rest, peak     float64       // MiB
	cpu            time.Duration
	protocolUp     string
	protocolDown   string
	upstreamSaw    int64
	callerReceived int64
}

func (s *streaming) measure(ctx context.Context, binary string) error {
	dir, err := os.MkdirTemp("", "bench-stream-")
	if err != nil {
		return fmt.Errorf("data: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	upstream, err := startChild(ctx, roleStream, nil)
	if err != nil {
		return err
	}
	defer func() { _ = upstream.stop() }()
	policies := filepath.Join(dir, "policies.yaml")
	text := "policies:\n  - name: policies/default\n    attempt: {timeout: 10m, protocols: [PROTOCOL_HTTP_2, PROTOCOL_HTTP_1_1]}\n    egress: {tls: {ca_pem: " +
		strconv.Quote(upstream.at.CA) + "}}\n"
	if err := os.WriteFile(policies, []byte(text), 0o600); err != nil {
		return fmt.Errorf("policies: %w", err)
	}
	p, err := startProgram(ctx, binary, filepath.Join(dir, "data"), "--policies", policies)
	if err != nil {
		return err
	}
	defer p.stop()
	url := upstream.at.HTTP
	if s.scheme == "https" {
		url = upstream.at.HTTPS
	}
	var clients [2]*client.Client
	defer func() {
		for _, c := range clients {
			if c != nil {
				_ = c.Close()
			}
		}
	}()
	for i := range clients {
		if clients[i], err = client.Dial(p.grpc, client.Config{}); err != nil {
			return err
		}
		if err := succeed(ctx, clients[i], url+"/0", time.Minute); err != nil { // connections are open
			return err
		}
	}
	if s.rest, err = p.resident(); err != nil {
		return err
	}
	before, err := p.cpu()
	if err != nil {
		return err
	}
	if err := s.run(ctx, p, clients[:], url); err != nil {
		return err
	}
	after, err := p.cpu()
	if err != nil {
		return err
	}
	s.cpu = after - before
	s.report()
	return nil
}

// run streams both ways at once, and reads the memory meanwhile.
func (s *streaming) run(ctx context.Context, p *program, clients []*client.Client, url string) error {
	watching, done := context.WithCancel(ctx)
	var watch, load errgroup.Group
	watch.Go(func() error { return s.watch(watching, p) })
	load.Go(func() error {
		began := time.Now()
		saw := &counter{}
		result, err := clients[0].Stream(ctx, asks("PUT", url+"/up"), io.LimitReader(zeros{}, s.bytes), client.Answer{Body: saw})
		s.up, s.protocolUp = time.Since(began), protocolOf(result)
		s.upstreamSaw, _ = strconv.ParseInt(saw.text.String(), 10, 64)
		return unless(result, err)
	})
	load.Go(func() error {
		began := time.Now()
		saw := &counter{}
		result, err := clients[1].Stream(ctx, asks("GET", fmt.Sprintf("%s/%d", url, s.bytes)), nil, client.Answer{Body: saw})
		s.down, s.protocolDown, s.callerReceived, s.first = time.Since(began), protocolOf(result), saw.n, saw.first.Sub(began)
		return unless(result, err)
	})
	err := load.Wait()
	done()
	err = errors.Join(err, watch.Wait())
	if err == nil && (s.upstreamSaw != s.bytes || s.callerReceived != s.bytes) {
		return fmt.Errorf("the upstream got %d bytes, the caller %d", s.upstreamSaw, s.callerReceived)
	}
	return err
}

func (s *streaming) watch(ctx context.Context, p *program) error {
	tick := time.NewTicker(peakEvery)
	defer tick.Stop()
	for {
		now, err := p.resident()
		if err != nil {
			return err
		}
		s.peak = max(s.peak, now)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (s *streaming) report() {
	mib := float64(s.bytes) / (1 << 20)
	fmt.Printf("| %s | %.0f MiB | %.0f MiB/s | %.0f MiB/s | %.1f ms | %.1f MiB | %.1f MiB | %.1f MiB | %.2f |\n", s.protocolDown, mib, mib/s.up.Seconds(),
		mib/s.down.Seconds(), float64(s.first.Microseconds())/1000, s.rest, s.peak, s.peak-s.rest, s.cpu.Seconds()/(2*mib/1024))
}

func asks(method, url string) *pb.CallRequest {
	return &pb.CallRequest{Request: &pb.HttpRequest{Method: method, Url: url}}
}

// unless gives what went wrong.
func unless(r *pb.CallResponse, err error) error {
	if err == nil && r.GetOutcome() != pb.Outcome_OUTCOME_SUCCESS {
		err = fmt.Errorf("%v: %s", r.GetOutcome(), r.GetDetail())
	}
	return err
}

func protocolOf(r *pb.CallResponse) string { return r.GetResponse().GetProtocol() }

// zeros never ends.
type zeros struct{}

// Read gives zeros (io.Reader).
func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// counter counts what it is written, and keeps a little of it.
type counter struct {
	n     int64
	first time.Time
	text  strings.Builder
}

// Write takes all (io.Writer).
func (c *counter) Write(p []byte) (int, error) {
	if c.n == 0 {
		c.first = time.Now()
	}
	c.n += int64(len(p))
	if c.n < 64 {
		c.text.Write(p)
	}
	return len(p), nil
}

// startStream starts the upstream of [streams]: it gives as many bytes as the path says, and counts what is sent to /up.
func startStream(ctx context.Context) (ready, func(), error) {
	cert, ca, err := certificate()
	if err != nil {
		return ready{}, nil, err
	}
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
			if r.URL.Path == "/up" {
				n, _ := io.Copy(io.Discard, r.Body) // the count tells
				_, _ = fmt.Fprint(w, n)
				return
			}
			n, _ := strconv.ParseInt(strings.TrimPrefix(r.URL.Path, "/"), 10, 64)
			_, _ = io.Copy(w, io.LimitReader(zeros{}, n)) // as above
		}),
		ReadHeaderTimeout: time.Minute,
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13, NextProtos: []string{"h2", "http/1.1"}},
	}
	var serving errgroup.Group
	serving.Go(func() error { return server.Serve(plain) })
	serving.Go(func() error { return server.ServeTLS(secure, "", "") })
	return ready{HTTP: "http://" + plain.Addr().String(), HTTPS: "https://" + secure.Addr().String(), CA: ca}, func() {
		_ = server.Close() // nothing is measured any more
		_ = serving.Wait() // they say that they were closed
	}, nil
}
