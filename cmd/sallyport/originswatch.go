package main

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sallyport/sallyport/client"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

func newOriginsWatch() *cobra.Command {
	var f adminFlags
	var host string
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Follow the origins of a broker: a line for each change",
		Long: `Follow the origins of a broker until you end it: first a line for each that is known, then one for each that changes, at most
once a second. A broker that is started again is followed again. -o json writes a line for each message of the broker, and -o yaml a
document.
` + adminCodes,
		Example: `  sallyport origins watch
  sallyport origins watch --host '*.example.com' -o json`,
		Args: cobra.NoArgs,
		RunE: action(func(cmd *cobra.Command, _ []string) error {
			told := originTeller{w: cmd.OutOrStdout(), said: map[string]string{}}
			return f.watch(cmd, func(ctx context.Context, c *client.Client, begun func()) error {
				stream, err := c.Origins().WatchOrigins(ctx, &pb.WatchOriginsRequest{Host: host})
				if err != nil {
					return err
				}
				for {
					m, err := stream.Recv()
					if err != nil {
						return err //nolint:wrapcheck // its status is read by the caller
					}
					begun()
					if f.output != formText {
						if err := printStreamed(told.w, f.output, m); err != nil {
							return err
						}
						continue
					}
					told.hear(m, clock())
				}
			})
		}),
	}
	f.declare(cmd)
	cmd.Flags().StringVar(&host, "host", "", "only of this host: exact, or *.example.com for all names below")
	return cmd
}

// originTeller writes what is new to its reader.
type originTeller struct {
	w    io.Writer
	said map[string]string // of each origin
}

func (t *originTeller) hear(m *pb.WatchOriginsResponse, at time.Time) {
	o := m.GetOrigin()
	var text string
	switch {
	case m.GetSynced():
		return
	case m.GetForgotten():
		text = "forgotten"
	default:
		text = originLine(o, at)
		if t.said[o.GetOrigin()] == text {
			return // something changed that the line does not show
		}
	}
	if t.said[o.GetOrigin()] = text; m.GetForgotten() {
		delete(t.said, o.GetOrigin())
	}
	line := strings.Join([]string{at.UTC().Format(time.RFC3339), o.GetOrigin(), text}, "  ")
	sayf(t.w, "%s\n", fitted(plain(line), columns(t.w)))
}

// originLine tells how an origin is; it has no ages, which change by themselves.
func originLine(o *pb.Origin, at time.Time) string {
	parts := []string{stateText(o), "in flight " + inFlightText(o), "budget left " + budgetText(o), "p95 " + p95Text(o)}
	if holdText(o, at) != none {
		parts = append(parts, "held")
	}
	if o.GetForced().GetReason() != "" {
		parts = append(parts, o.GetForced().GetReason())
	}
	return strings.Join(parts, "  ")
}
