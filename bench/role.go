package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"syscall"
	"time"
)

// The roles of the processes beside the load.
const (
	roleBare     = "bare"
	roleBroker   = "broker"
	rolePolicies = "broker, 1000 policies"
	roleLedger   = "broker with a ledger"
	roleUpstream = "upstream"
	roleSlow     = "slow"
	roleStream   = "stream"
)

// ready is the first line a child prints: where it can be reached.
type ready struct {
	// GRPC is the address of a server of calls.
	GRPC string `json:"grpc,omitempty"`
	// HTTP and HTTPS are the URLs of the upstream, CA the authority of the latter's certificate in PEM.
	HTTP  string `json:"http,omitempty"`
	HTTPS string `json:"https,omitempty"`
	CA    string `json:"ca,omitempty"`
	// OTLP is where spans may be sent; they are taken and forgotten.
	OTLP string `json:"otlp,omitempty"`
	// Slow: the upstream holds its answers, so that the broker must be told to be patient.
	Slow bool `json:"slow,omitempty"`
}

// usage is what a process used since it started.
type usage struct {
	CPU     time.Duration `json:"cpu"`
	Mallocs uint64        `json:"mallocs"`
	Bytes   uint64        `json:"bytes"`
	// Resident, Heap and Stacks are bytes in use now, Goroutines and Files numbers.
	Resident   uint64 `json:"resident"`
	Heap       uint64 `json:"heap"`
	Stacks     uint64 `json:"stacks"`
	Goroutines int    `json:"goroutines"`
	Files      int    `json:"files"`
}

// runRole is a child: it starts, says where it is, and answers one line for each line it is sent, until there are no more.
//
//	usage          what the process used so far
//	collected      the same, after a collection of garbage
//	profile FILE   begins a CPU profile
//	profiled       ends it
func runRole(ctx context.Context, role string, in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	answers := json.NewEncoder(out)
	at, stop, err := startRole(ctx, role, lines)
	if err != nil {
		return err
	}
	defer stop()
	if err := answers.Encode(at); err != nil {
		return fmt.Errorf("%s: %w", role, err)
	}
	for lines.Scan() {
		answer, err := obey(lines.Text())
		if err != nil {
			return fmt.Errorf("%s: %w", role, err)
		}
		if err := answers.Encode(answer); err != nil {
			return fmt.Errorf("%s: %w", role, err)
		}
	}
	return nil // the parent has closed the pipe, or is gone
}

// startRole starts the role's server. One that calls the upstream is first sent the upstream's own ready line.
func startRole(ctx context.Context, role string, lines *bufio.Scanner) (ready, func(), error) {
	switch role {
	case roleUpstream:
		return startUpstream(ctx)
	case roleSlow:
		return startSlow(ctx)
	case roleStream:
		return startStream(ctx)
	}
	var upstream ready
	if !lines.Scan() {
		return ready{}, nil, fmt.Errorf("%s: no upstream was named", role)
	}
	if err := json.Unmarshal(lines.Bytes(), &upstream); err != nil {
		return ready{}, nil, fmt.Errorf("%s: %w", role, err)
	}
	switch role {
	case roleBare:
		return startBare(ctx, upstream.CA)
	case roleBroker:
		return startBroker(ctx, &upstream, nil, nil)
	case roleLedger:
		return startLedgerBroker(ctx, &upstream)
	case rolePolicies:
		return startBroker(ctx, &upstream, manyPolicies(), nil)
	}
	return ready{}, nil, fmt.Errorf("no role %q", role)
}

func obey(line string) (usage, error) {
	verb, file, _ := strings.Cut(line, " ")
	switch verb {
	case "usage":
		return used()
	case "collected":
		debug.FreeOSMemory()
		return used()
	case "profile":
		f, err := os.Create(file)
		if err != nil {
			return usage{}, fmt.Errorf("profile: %w", err)
		}
		return usage{}, pprof.StartCPUProfile(f) //nolint:wrapcheck // says all there is to say
	case "profiled":
		pprof.StopCPUProfile() // has written everything when it returns
		return usage{}, nil
	}
	return usage{}, fmt.Errorf("no order %q", line)
}

func used() (usage, error) {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return usage{}, fmt.Errorf("getrusage: %w", err)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{
		CPU:      time.Duration(r.Utime.Nano() + r.Stime.Nano()),
		Mallocs:  m.Mallocs,
		Bytes:    m.TotalAlloc,
		Resident: resident(), Heap: m.HeapAlloc, Stacks: m.StackInuse,
		Goroutines: runtime.NumGoroutine(), Files: openFiles(),
	}, nil
}
