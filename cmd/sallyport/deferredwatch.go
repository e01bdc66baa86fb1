package main

import (
	"context"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/sallyport/sallyport/client"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

func newDeferredWatch() *cobra.Command {
	var f adminFlags
	var pick pickFlags
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Follow your deferred calls: a live table at a terminal, else a line for each change",
		Long: `Follow your deferred calls until you end it. At a terminal it is a table of the newest, with how many you have in each state above
it. Elsewhere it is a line for each change from now on; of several changes of one call only the last may be told. -o json writes a line
for each message of the broker, and -o yaml a document.

A connection that is lost, as when the broker is started again, is made anew, and the changes in between are told, once there was one to
go on after.

` + deferredHelp + "\n" + adminCodes,
		Example: `  sallyport deferred watch
  sallyport deferred watch --state failed | while read -r line; do echo "a dead letter: $line"; done
  sallyport deferred watch --origin https://hooks.example.com -o json | jq -r .deferredCall.state`,
		Args: cobra.NoArgs,
		RunE: action(func(cmd *cobra.Command, _ []string) error {
			filter, err := pick.filter(deferredStates()...)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if f.output == formText && isTerminal(out) {
				return f.watch(cmd, func(ctx context.Context, c *client.Client, begun func()) error {
					return liveDeferred(ctx, c, filter, out, begun)
				})
			}
			req := &pb.WatchDeferredCallsRequest{Filter: filter}
			return f.watch(cmd, func(ctx context.Context, c *client.Client, begun func()) error {
				return followDeferred(ctx, c, req, begun, func(m *pb.WatchDeferredCallsResponse) error {
					if f.output != formText {
						return printStreamed(out, f.output, m)
					}
					sayf(out, "%s\n", fitted(plain(deferredLine(m.GetDeferredCall())), columns(out)))
					return nil
				})
			})
		}),
	}
	f.declare(cmd)
	pick.declare(cmd, deferredStates()...)
	completeFlagBy(cmd, "origin", f.originNames())
	return cmd
}

// followDeferred hears of changes until the stream ends. The request remembers where to go on.
func followDeferred(ctx context.Context, c *client.Client, req *pb.WatchDeferredCallsRequest, begun func(), hear func(m *pb.WatchDeferredCallsResponse) error) error {
	// A watch says nothing before the first change; a list tells whether the broker is there and would have it.
	p := req.GetFilter()
	if _, err := c.ListDeferredCalls(ctx, &pb.ListDeferredCallsRequest{State: p.GetState(), Origin: p.GetOrigin(), PageSize: 1}); err != nil {
		return err
	}
	stream, err := c.WatchDeferredCalls(ctx, req)
	if err != nil {
		return err
	}
	begun()
	for {
		m, err := stream.Recv()
		if err != nil {
			return err //nolint:wrapcheck // its status is read by the caller
		}
		if err := hear(m); err != nil {
			return err
		}
		req.ResumeToken = m.GetResumeToken()
	}
}

// deferredLine is one change: when, which, and what it is now.
func deferredLine(d *pb.DeferredCall) string {
	parts := []string{
		d.GetUpdateTime().AsTime().UTC().Format(time.RFC3339), strings.TrimPrefix(d.GetName(), deferredPrefix), deferredStateText(d),
		"attempts " + strconv.Itoa(len(d.GetAttempts())), deferredCallText(d),
	}
	if d.GetNextAttemptTime() != nil {
		parts = append(parts, "next "+instant(d.GetNextAttemptTime()))
	}
	return strings.Join(parts, "  ")
}

// redrawEvery is how often the table is drawn anew at most, and redrawAges how often where nothing changes but ages.
const (
	redrawEvery = 250 * time.Millisecond
	redrawAges  = time.Second
)

// liveDeferred draws the table anew whenever something changed.
func liveDeferred(ctx context.Context, c *client.Client, filter *pb.DeferredCallFilter, out io.Writer, begun func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changed := make(chan struct{}, 1) // holds one value when something is to be drawn
	ended := make(chan error, 1)      // receives one value
	go func() {
		// The table itself says what is there, so that it begins anew after a lost connection.
		ended <- followDeferred(ctx, c, &pb.WatchDeferredCallsRequest{Filter: filter}, begun, func(*pb.WatchDeferredCallsResponse) error {
			select {
			case changed <- struct{}{}:
			default:
			}
			return nil
		})
	}()
	var all *pb.ListDeferredCallsResponse
	ages := time.NewTicker(redrawAges)
	defer ages.Stop()
	for stale := true; ; {
		if stale {
			fresh, err := deferredOf(ctx, c, filter, max(1, screenRows(out)-4))
			if err != nil {
				cancel()
				<-ended //nolint:errcheck // it was cancelled
				return err
			}
			all, stale = fresh, false
		}
		draw(out, all)
		select {
		case err := <-ended:
			return err
		case <-changed:
			stale = true
			pause := time.NewTimer(redrawEvery) // many changes are one drawing
			select {
			case <-pause.C:
			case <-ctx.Done():
				pause.Stop()
			}
		case <-ages.C:
		}
	}
}

// screenRows is how many lines a terminal has.
func screenRows(w io.Writer) int {
	const usual = 24
	f, ok := w.(*os.File)
	if !ok {
		return usual
	}
	if _, rows, err := term.GetSize(int(f.Fd())); err == nil && rows > 0 {
		return rows
	}
	return usual
}

// draw writes the table over what was there.
func draw(out io.Writer, all *pb.ListDeferredCallsResponse) {
	var text strings.Builder
	text.WriteString("all of yours: " + countsText(all.GetCounts()) + "\n\n")
	at := clock()
	rows := make([][]string, 0, len(all.GetDeferredCalls())+1)
	rows = append(rows, deferredColumns())
	for _, d := range all.GetDeferredCalls() {
		rows = append(rows, deferredCells(d, at))
	}
	writeTable(&text, columns(out), rows)
	// Home, each line with its rest cleared, and what was below it.
	sayf(out, "\x1b[H%s\x1b[J", strings.ReplaceAll(text.String(), "\n", "\x1b[K\r\n"))
}
