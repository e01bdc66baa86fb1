package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/sallyport/sallyport/client"
)

// connections is over how many gRPC connections the load goes to a server.
const connections = 2

// child is a process of ours in one of the roles.
type child struct {
	cmd     *exec.Cmd
	orders  io.WriteCloser
	answers *bufio.Reader
	at      ready
}

// startChild runs this program in a role. orders, if any, is sent before the child is ready.
func startChild(ctx context.Context, role string, orders any) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("executable: %w", err)
	}
	return startBuild(ctx, self, role, orders)
}

// startBuild runs a build of this program in a role.
func startBuild(ctx context.Context, program, role string, orders any) (*child, error) {
	var err error
	c := &child{cmd: exec.CommandContext(ctx, program, "-role", role)} //nolint:gosec // this very program, or as the flags say
	c.cmd.Env = append(os.Environ(), environment(orders)...)
	c.cmd.Stderr = os.Stderr
	if c.orders, err = c.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("%s: %w", role, err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", role, err)
	}
	c.answers = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", role, err)
	}
	if orders != nil {
		err = json.NewEncoder(c.orders).Encode(orders)
	}
	if err = errors.Join(err, c.read(&c.at)); err != nil {
		return nil, fmt.Errorf("%s: %w", role, errors.Join(err, c.stop()))
	}
	return c, nil
}

// environment has a broker export one trace in a hundred, where there is a collector.
func environment(orders any) []string {
	upstream, ok := orders.(ready)
	if !ok || upstream.OTLP == "" {
		return nil
	}
	return []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + upstream.OTLP, "OTEL_TRACES_SAMPLER=parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG=0.01",
	}
}

func (c *child) read(v any) error {
	line, err := c.answers.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("child: %w", err)
	}
	return json.Unmarshal(line, v) //nolint:wrapcheck // our own line
}

func (c *child) order(line string) (usage, error) {
	if _, err := io.WriteString(c.orders, line+"\n"); err != nil {
		return usage{}, fmt.Errorf("child: %w", err)
	}
	var u usage
	err := c.read(&u)
	return u, err
}

// stop tells the child that there are no more orders and waits for its end.
func (c *child) stop() error {
	return errors.Join(c.orders.Close(), c.cmd.Wait())
}

// startPair runs an upstream in a role, and a broker in one of its own in front of it.
func startPair(ctx context.Context, role, brokers string) (upstream, broker *child, stop func(), err error) {
	if upstream, err = startChild(ctx, role, nil); err != nil {
		return nil, nil, nil, err
	}
	if broker, err = startChild(ctx, brokers, upstream.at); err != nil {
		return nil, nil, nil, errors.Join(err, upstream.stop())
	}
	return upstream, broker, func() {
		_ = broker.stop() // nothing is measured any more
		_ = upstream.stop()
	}, nil
}

// variants are the servers that are compared.
var variants = []string{roleBare, roleBroker, rolePolicies}

// fleet is the processes, and the connections to those that are compared.
type fleet struct {
	upstream *child
	servers  map[string]*child
	clients  map[string][]*client.Client
}

// startFleet starts them; bare is the build of this program that the bare server runs in, "" this very one.
func startFleet(ctx context.Context, bare string) (*fleet, error) {
	f := &fleet{servers: make(map[string]*child), clients: make(map[string][]*client.Client)}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("executable: %w", err)
	}
	if f.upstream, err = startChild(ctx, roleUpstream, nil); err != nil {
		return nil, err
	}
	for _, role := range variants {
		program := self
		if role == roleBare && bare != "" {
			program = bare
		}
		c, err := startBuild(ctx, program, role, f.upstream.at)
		if err != nil {
			f.stop()
			return nil, err
		}
		f.servers[role] = c
		for range connections {
			cl, err := client.Dial(c.at.GRPC, client.Config{})
			if err != nil {
				f.stop()
				return nil, err
			}
			f.clients[role] = append(f.clients[role], cl)
		}
	}
	return f, nil
}

func (f *fleet) stop() {
	for _, clients := range f.clients {
		for _, c := range clients {
			_ = c.Close() // nothing is measured any more
		}
	}
	for _, c := range f.servers {
		_ = c.stop() // as above
	}
	_ = f.upstream.stop() // as above
}

// run measures one cell.
func (f *fleet) run(ctx context.Context, c cell, length time.Duration) (sample, error) {
	server := f.servers[c.variant]
	if _, err := f.load(ctx, c, warmUp); err != nil {
		return sample{}, err
	}
	before, err := server.order("usage")
	if err != nil {
		return sample{}, err
	}
	s, err := f.load(ctx, c, length)
	if err != nil {
		return sample{}, err
	}
	after, err := server.order("usage")
	if err != nil {
		return sample{}, err
	}
	s.cpu = after.CPU - before.CPU
	s.mallocs, s.bytes = after.Mallocs-before.Mallocs, after.Bytes-before.Bytes
	return s, nil
}

// profile runs the broker once more with a CPU profile, with every scheme for as long as all rounds of a cell take together, so that the
// profile weighs on no figure.
func (f *fleet) profile(ctx context.Context, o *options) error {
	server := f.servers[roleBroker]
	load := func(scheme string, d time.Duration) error {
		_, err := f.load(ctx, cell{variant: roleBroker, scheme: scheme, concurrency: o.concurrency[0]}, d)
		return err
	}
	for _, scheme := range o.schemes {
		if err := load(scheme, warmUp); err != nil {
			return err
		}
	}
	if _, err := server.order("profile " + o.profile); err != nil {
		return err
	}
	for _, scheme := range o.schemes {
		if err := load(scheme, o.length*time.Duration(o.rounds)); err != nil {
			return err
		}
	}
	_, err := server.order("profiled")
	return err
}
