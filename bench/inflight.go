package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sallyport/sallyport/client"
)

const (
	// maxInFlight is the broker's own default limit.
	maxInFlight = 10_000
	// streamsUsed is how many calls go over one gRPC connection: under the server's limit of 1000, where further ones would wait in
	// the client and not be in flight.
	streamsUsed = 900
	// heldFor bounds how long a call may be held: until all are in flight and the memory is read.
	heldFor = time.Minute
	// settleTime is for what was opened to settle before memory at rest is read.
	settleTime = 2 * time.Second
	// watchEvery is how often the upstream is asked whether it holds all calls.
	watchEvery = 100 * time.Millisecond
)

// inFlight measures what calls in flight cost in memory: the broker's resident set at rest, with every call waiting for its upstream,
// and after all have ended.
func inFlight(ctx context.Context, calls int) error {
	upstream, broker, stop, err := startPair(ctx, roleSlow, roleBroker)
	if err != nil {
		return err
	}
	defer stop()
	var clients []*client.Client
	defer func() {
		for _, c := range clients {
			_ = c.Close() // nothing is measured any more
		}
	}()
	for range (calls + streamsUsed - 1) / streamsUsed {
		c, err := client.Dial(broker.at.GRPC, client.Config{})
		if err != nil {
			return err
		}
		clients = append(clients, c)
	}
	m := memory{of: broker, upstream: upstream.at.HTTP, calls: calls, clients: len(clients)}
	if err := m.measure(ctx, clients); err != nil {
		return err
	}
	fmt.Print(m.report())
	return nil
}

// memory is what was read of a process while calls were in flight.
type memory struct {
	of                *child
	upstream          string
	calls, clients    int
	rest, peak, after usage
}

func (m *memory) measure(ctx context.Context, clients []*client.Client) (err error) {
	for _, c := range clients { // the connections belong to the broker at rest
		if err := succeed(ctx, c, m.upstream+"/now", heldFor); err != nil {
			return err
		}
	}
	if m.rest, err = m.settled(ctx); err != nil {
		return err
	}
	group, calling := errgroup.WithContext(ctx)
	for i := range m.calls {
		group.Go(func() error { return succeed(calling, clients[i%len(clients)], m.upstream+"/hold", heldFor) })
	}
	err = m.reached(calling)
	if err == nil {
		m.peak, err = m.settled(calling)
	}
	_, releaseErr := ask(ctx, m.upstream+"/release")
	if err := errors.Join(group.Wait(), err, releaseErr); err != nil {
		return err
	}
	m.after, err = m.settled(ctx)
	return err
}

// reached waits until the upstream holds every call, or one of them has failed.
func (m *memory) reached(ctx context.Context) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		count, err := ask(ctx, m.upstream+"/held")
		if err != nil || count == strconv.Itoa(m.calls) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx) //nolint:wrapcheck // of our own call
		}
	}
}

// settled reads the process after a moment of quiet, without having it collect its garbage: nobody does that in earnest.
func (m *memory) settled(ctx context.Context) (usage, error) {
	timer := time.NewTimer(settleTime)
	defer timer.Stop()
	select {
	case <-timer.C:
		return m.of.order("usage")
	case <-ctx.Done():
		return usage{}, context.Cause(ctx) //nolint:wrapcheck // as above
	}
}

// ask gets what the upstream says of itself.
func ask(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err //nolint:wrapcheck // says all there is to say
	}
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return "", err //nolint:wrapcheck // as above
	}
	defer func() { _ = resp.Body.Close() }() // it was read to its end
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

// slowUpstream holds the answers to /hold until /release, and tells how many it holds.
func slowUpstream() http.Handler {
	var count atomic.Int64
	var once sync.Once
	released := make(chan struct{}) // closed by the first /release
	mux := http.NewServeMux()
	mux.HandleFunc("/now", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/hold", func(_ http.ResponseWriter, r *http.Request) {
		count.Add(1)
		defer count.Add(-1)
		select {
		case <-released:
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("/held", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, count.Load()) // whoever asks notices
	})
	mux.HandleFunc("/release", func(http.ResponseWriter, *http.Request) { once.Do(func() { close(released) }) })
	return mux
}

// startSlow starts the upstream of [inFlight].
func startSlow(ctx context.Context) (ready, func(), error) {
	l, err := listen(ctx)
	if err != nil {
		return ready{}, nil, err
	}
	server := &http.Server{Handler: slowUpstream(), ReadHeaderTimeout: time.Minute}
	var serving errgroup.Group
	serving.Go(func() error { return server.Serve(l) })
	return ready{HTTP: "http://" + l.Addr().String(), Slow: true}, func() {
		_ = server.Close() // nothing is measured any more
		_ = serving.Wait() // says that the server was closed
	}, nil
}

func (m *memory) report() string {
	const mib = 1 << 20
	perCall := func(now, rest uint64) float64 { return float64(int64(now)-int64(rest)) / float64(m.calls) / (1 << 10) } //nolint:gosec // far below
	var b strings.Builder
	fmt.Fprintf(&b, "%s. %s. %d calls in flight over %d gRPC connections, each waiting for its upstream.\n\n",
		time.Now().UTC().Format(time.DateOnly), machine(), m.calls, m.clients)
	b.WriteString("| broker | in flight | resident | Go heap | goroutine stacks | goroutines | files |\n|---|---:|---:|---:|---:|---:|---:|\n")
	for _, row := range []struct {
		name     string
		inFlight int
		u        usage
	}{{"at rest, gRPC connections open", 0, m.rest}, {"all in flight", m.calls, m.peak}, {"after the last answer", 0, m.after}} {
		fmt.Fprintf(&b, "| %s | %d | %.0f MiB | %.0f MiB | %.0f MiB | %d | %d |\n", row.name, row.inFlight,
			float64(row.u.Resident)/mib, float64(row.u.Heap)/mib, float64(row.u.Stacks)/mib, row.u.Goroutines, row.u.Files)
	}
	fmt.Fprintf(&b, "\nPer call in flight: %.1f KiB resident, of which %.1f KiB heap and %.1f KiB stacks.\n",
		perCall(m.peak.Resident, m.rest.Resident), perCall(m.peak.Heap, m.rest.Heap), perCall(m.peak.Stacks, m.rest.Stacks))
	return b.String()
}

// resident is the process's resident set in bytes (proc(5), statm: the second number, in pages); 0 where there is no /proc.
func resident() uint64 {
	content, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(content))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseUint(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * uint64(os.Getpagesize()) //nolint:gosec // positive
}

// openFiles is how many the process has open; 0 where there is no /proc.
func openFiles() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(entries)
}
