package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/sallyport/sallyport/client"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

const (
	// bulkAtOnce is how many submissions are under way: the broker writes those of many at once in one commit.
	bulkAtOnce = 64
	// bulkTries is how often a line is submitted where the broker has no room, or cannot be reached.
	bulkTries = 6
	bulkWait  = 200 * time.Millisecond
	// maxLine is a body of the largest size, escaped.
	maxLine = 8 * maxBodyBytes
)

// bulkLine is a line of the file and what became of it.
type bulkLine struct {
	number int
	req    *pb.SubmitDeferredCallRequest
	done   chan struct{} // closed when the fields below are set
	call   *pb.DeferredCall
	err    error
}

// unreadable is a line that cannot be submitted as it is written.
type unreadable struct{ error }

// submitAll submits every line of the file.
func (f *submitFlags) submitAll(cmd *cobra.Command) error {
	for _, flag := range f.single {
		if cmd.Flags().Changed(flag) {
			return usagef("--%s and --from-file: every line has its own; give one of them", flag)
		}
	}
	in := cmd.InOrStdin()
	if f.file != "-" {
		file, err := os.Open(f.file)
		if err != nil {
			return usagef("--from-file: %w", err)
		}
		defer func() { _ = file.Close() }() // read only
		in = file
	}
	return f.with(cmd, func(ctx context.Context, c *client.Client) error {
		ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		b := bulk{f: f, out: cmd.OutOrStdout(), errs: cmd.ErrOrStderr(), client: c, line: progressLine{to: cmd.ErrOrStderr()}}
		return b.run(ctx, in)
	})
}

// bulk is one run over a file.
type bulk struct {
	f         *submitFlags
	out, errs io.Writer
	client    *client.Client

	accepted, refused, broken int
	line                      progressLine
}

// run submits the lines, so many at once, and tells of them in the order of the file.
func (b *bulk) run(ctx context.Context, in io.Reader) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	lines := make(chan *bulkLine, bulkAtOnce) // closed by read
	read := make(chan error, 1)               // receives one value
	go func() {
		defer close(lines)
		read <- b.read(ctx, in, lines)
	}()
	var lost error
	for line := range lines {
		<-line.done
		if err := b.tell(line); err != nil { // nobody reads the names any more
			cancel(err)
			lost = err
		}
		if status.Code(line.err) == codes.Unavailable && lost == nil { // after all its tries
			lost = refused(line.err, b.f.broker)
			cancel(lost)
		}
		b.progress()
	}
	b.line.off()
	err := <-read
	sayf(b.errs, "%s submitted: %d accepted, %d refused\n", plural(uint32(b.accepted+b.refused+b.broken), "line"), b.accepted, b.refused+b.broken) //nolint:gosec // a count
	switch {
	case lost != nil:
		return lost
	case ctx.Err() != nil:
		return failure(errors.New("ended before the end of the file; submit it again to go on: lines with an operation id are not doubled"))
	case err != nil:
		return usagef("--from-file: %w", err)
	case b.broken > 0:
		return &exitError{code: exitUsage}
	case b.refused > 0:
		return &exitError{code: exitGRPC}
	}
	return nil
}

// read reads the lines and has them submitted; it returns when all of them are done.
func (b *bulk) read(ctx context.Context, in io.Reader, lines chan<- *bulkLine) error {
	slots := make(chan struct{}, bulkAtOnce) // holds a value for each that is under way
	defer func() {
		for range bulkAtOnce {
			slots <- struct{}{}
		}
	}()
	s := bufio.NewScanner(in)
	s.Buffer(nil, maxLine)
	for number := 1; s.Scan(); number++ {
		if len(bytes.TrimSpace(s.Bytes())) == 0 {
			continue
		}
		line := &bulkLine{number: number, done: make(chan struct{})}
		line.req, line.err = readSubmission(s.Bytes())
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		go func() {
			defer func() { <-slots }()
			defer close(line.done)
			if line.err == nil {
				line.call, line.err = b.submit(ctx, line.req)
			}
		}()
		lines <- line
	}
	if err := s.Err(); err != nil {
		return fmt.Errorf("%w", err)
	}
	return nil
}

// submit submits one line, again where there was no room and where no answer came: under its operation id that makes no second one.
func (b *bulk) submit(ctx context.Context, req *pb.SubmitDeferredCallRequest) (*pb.DeferredCall, error) {
	if req.GetCall() != nil && req.GetCall().GetOperationId() == "" {
		req.Call.OperationId = uuid.NewString()
	}
	for try := 1; ; try++ {
		one, cancel := context.WithTimeout(ctx, adminTime)
		resp, err := b.client.SubmitDeferredCall(one, req)
		cancel()
		code := status.Code(err)
		if err == nil || code != codes.Unavailable && code != codes.ResourceExhausted || try == bulkTries {
			return resp.GetDeferredCall(), err
		}
		wait := time.NewTimer(max(client.Explain(err).RetryAfter, bulkWait<<(try-1)))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return nil, err
		}
	}
}

// readSubmission reads one line: a message of the wire where it has a call, else the words of the flags.
func readSubmission(line []byte) (*pb.SubmitDeferredCallRequest, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		return nil, unreadable{fmt.Errorf("not a JSON object: %w", err)}
	}
	if _, wire := fields["call"]; wire {
		req := &pb.SubmitDeferredCallRequest{}
		if err := protojson.Unmarshal(line, req); err != nil {
			return nil, unreadable{err}
		}
		return req, nil
	}
	var s submission
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return nil, unreadable{err}
	}
	req, err := s.request()
	if err != nil {
		return nil, unreadable{err}
	}
	return req, nil
}

// tell tells what became of a line.
func (b *bulk) tell(line *bulkLine) error {
	if line.err != nil || isTerminal(b.out) {
		b.line.off()
	}
	if line.err == nil {
		b.accepted++
		if b.f.output != formText {
			return printStreamed(b.out, b.f.output, line.call)
		}
		_, err := fmt.Fprintln(b.out, plain(line.call.GetName()))
		return err //nolint:wrapcheck // a broken pipe needs no more words
	}
	if _, ours := errors.AsType[unreadable](line.err); ours {
		b.broken++
		sayf(b.errs, "line %d: %s\n", line.number, plain(line.err.Error()))
		return nil
	}
	b.refused++
	for _, text := range refusalLines(line.err, b.f.broker) {
		sayf(b.errs, "line %d: %s\n", line.number, plain(text))
	}
	return nil
}

// progress tells a person how far it is.
func (b *bulk) progress() {
	b.line.show(func() string { return fmt.Sprintf("%d accepted, %d refused", b.accepted, b.refused+b.broken) })
}
