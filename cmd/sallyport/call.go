package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/sallyport/sallyport/client"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

func newCall() *cobra.Command {
	var f callFlags
	cmd := &cobra.Command{
		Use:   "call METHOD URL",
		Short: "Make one call through a broker and show what became of it",
		Long: `Make one outbound HTTP call through a broker. The text output shows the attempts as a small timeline, with what was proved
of each and what was decided after it, then what to do next, then the answer.

With -o FILE the answer is streamed into the file, of any size and as it comes, and so is a body with it; a body of more than 3 MiB is
streamed in any case, unless there is an --operation-id: a stream has none (docs/streaming.md).

Settings that a broker may need come from the environment where a flag is not given: SALLYPORT_BROKER, SALLYPORT_TOKEN
(better there than in --token, which other users of the machine can see), SALLYPORT_CA, SALLYPORT_CLIENT_CERT, SALLYPORT_CLIENT_KEY.

` + exitHelp(),
		Example: `  sallyport call GET https://api.example.com/orders/17
  sallyport call POST https://api.example.com/orders -H 'Content-Type: application/json' -d @order.json \
      --operation-id order-4711 --deadline 3s
  sallyport call GET https://api.example.com/orders/17 -o json | jq .outcome
  sallyport call PUT https://files.example.com/backup -d @backup.tar
  sallyport call GET https://files.example.com/backup -o backup.tar`,
		Args: exactly("METHOD", "URL"),
		RunE: action(func(cmd *cobra.Command, args []string) error {
			return f.call(cmd, args[0], args[1])
		}),
	}
	f.declare(cmd.Flags())
	return cmd
}

// exitHelp lists the exit codes; the outcomes are those of the wire, so that none can be forgotten.
func exitHelp() string {
	var b strings.Builder
	b.WriteString("Exit codes:\n   0  SUCCESS\n   2  usage or configuration\n   3  a gRPC error: of the broker, or of the way to it\n")
	values := pb.Outcome_OUTCOME_UNSPECIFIED.Descriptor().Values()
	for i := range values.Len() {
		o := pb.Outcome(values.Get(i).Number())
		if o == pb.Outcome_OUTCOME_UNSPECIFIED || o == pb.Outcome_OUTCOME_SUCCESS {
			continue
		}
		fmt.Fprintf(&b, "  %2d  %s\n", outcomeCode(o), outcomeName(o))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// call makes the call and prints what became of it.
func (f *callFlags) call(cmd *cobra.Command, method, url string) error {
	if f.output == formYAML || f.output == "" { // a form that other commands have
		return oneOf("output", f.output, "text", "json")
	}
	req, err := f.request(method, url)
	if err != nil {
		return usage(err)
	}
	body, streamed, err := f.streamed(req, cmd.InOrStdin())
	if err != nil {
		return usage(err)
	}
	ctx, cancel, err := withDeadline(cmd, f.deadline)
	if err != nil {
		return err
	}
	defer cancel()
	c, err := f.dial()
	if err != nil {
		return usage(err)
	}
	defer func() { _ = c.Close() }() // the answer is here
	var resp *pb.CallResponse
	var received int64
	if streamed {
		resp, received, err = f.stream(ctx, cmd, c, req, body)
	} else {
		resp, err = c.Call(ctx, req)
	}
	if _, ours := errors.AsType[*exitError](err); ours {
		return err
	}
	if err != nil {
		printRefusal(cmd.ErrOrStderr(), client.Explain(err), f.broker)
		return &exitError{code: exitGRPC}
	}
	if f.toFile() {
		err = f.printStream(cmd, req, resp, received)
	} else {
		err = f.print(cmd.OutOrStdout(), req, resp)
	}
	if err != nil {
		return err
	}
	if code := outcomeCode(resp.GetOutcome()); code != exitOK {
		return &exitError{code: code}
	}
	return nil
}

func (f *callFlags) print(w io.Writer, req *pb.CallRequest, resp *pb.CallResponse) error {
	if f.output == "json" {
		return printJSON(w, resp)
	}
	_, err := io.WriteString(w, timeline(req, resp)+answer(resp.GetResponse()))
	return err //nolint:wrapcheck // a broken pipe needs no more words
}

// printJSON writes a message in the form of protobuf JSON, the same bytes each time (protojson varies its blanks on purpose).
func printJSON(w io.Writer, m proto.Message) error {
	raw, err := protojson.Marshal(m)
	if err != nil {
		return fmt.Errorf("json: %w", err)
	}
	return printIndented(w, json.RawMessage(raw))
}

// printIndented writes JSON that is safe to show: what is not printable is escaped, since protojson escapes the controls below
// 0x20 only and a terminal obeys others too.
func printIndented(w io.Writer, v any) error {
	raw, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("json: %w", err)
	}
	_, err = io.WriteString(w, escaped(string(raw))+"\n")
	return err //nolint:wrapcheck // a broken pipe needs no more words
}

// escaped writes what a terminal might obey by its code. It is for texts where such a thing can stand in quotes only.
func escaped(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r != '\n' && r <= 0xffff && (unicode.IsControl(r) || !showable(r)) {
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}
