package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sallyport/sallyport/client"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// fanOutModes are those of --mode, in the order of the wire.
var fanOutModes = []string{"all", "best-effort", "first-success", "quorum"}

func newFanOut() *cobra.Command {
	var f fanOutFlags
	cmd := &cobra.Command{
		Use:   "fanout (-f FILE | --call 'METHOD URL'...)",
		Short: "Make several calls under one deadline and show what became of each",
		Long: `Make several outbound HTTP calls under one deadline. The text output shows each branch under its id, as ` + "`call`" + ` does, then what
became of the whole. The last line tells.

The calls come from a file, a FanOutRequest in YAML or JSON (-f -: standard input), from --call, or from both: those of --call follow
those of the file, and their ids are 1, 2, 3 and so on, by their place among all. A flag that is given wins over the file.

  branches:
    - id: profile
      call: { request: { method: GET, url: "https://api.example.com/profile" } }
    - id: advice
      call: { request: { method: GET, url: "https://api.example.com/advice" } }
      optional: true            # its failure does not fail the whole (mode all)
      reserve_after: 0.2s       # it has so much less time
  mode: FAN_OUT_MODE_ALL

Modes: all (a required branch's failure ends the rest), best-effort (all run to their end), first-success, quorum (so many successes
end the rest).

Exit codes:
   0  COMPLETE: all succeeded, or as many as it takes
   2  usage or configuration
   3  a gRPC error: of the broker, or of the way to it
  12  PARTIAL: some branches failed that need not succeed
  13  FAILED: any other end`,
		Example: `  sallyport fanout --call 'GET https://api.example.com/profile' --call 'GET https://api.example.com/advice' --deadline 2s
  sallyport fanout --mode quorum --quorum 2 --call 'GET https://a.example.com/x' --call 'GET https://b.example.com/x' \
      --call 'GET https://c.example.com/x'
  sallyport fanout -f page.yaml -o json | jq .outcome`,
		Args: exactly(),
		RunE: action(func(cmd *cobra.Command, _ []string) error { return f.fanOut(cmd) }),
	}
	f.declare(cmd.Flags())
	completeFlag(cmd, "mode", fanOutModes...)
	completeFlag(cmd, "output", "text", "json")
	return cmd
}

// fanOutFlags are the flags of `fanout`. Those that are not given leave what the file says.
type fanOutFlags struct {
	file        string
	calls       []string
	mode        string
	quorum      uint32
	maxParallel uint32
	deadline    time.Duration
	output      string

	brokerFlags
}

func (f *fanOutFlags) declare(fs *pflag.FlagSet) {
	fs.StringVarP(&f.file, "file", "f", "", "the request in YAML or JSON; -: standard input")
	fs.StringArrayVar(&f.calls, "call", nil, "a branch, 'METHOD URL' (repeatable)")
	fs.StringVar(&f.mode, "mode", "", "all | best-effort | first-success | quorum (default: the file's, else all)")
	fs.Uint32Var(&f.quorum, "quorum", 0, "with --mode quorum: how many successes end it")
	fs.Uint32Var(&f.maxParallel, "max-parallel", 0, "how many branches run at once (default: all)")
	fs.DurationVar(&f.deadline, "deadline", 0, "time allowed for all of it (default: that of policies/default)")
	f.brokerFlags.declare(fs)
	fs.StringVarP(&f.output, "output", "o", "text", "text | json")
}

// fanOut makes the calls and prints what became of them.
func (f *fanOutFlags) fanOut(cmd *cobra.Command) error {
	if err := oneOf("output", f.output, "text", "json"); err != nil {
		return err
	}
	req, err := f.request(cmd.Flags().Changed, cmd.InOrStdin())
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
	resp, err := c.FanOut(ctx, req)
	if err != nil {
		printRefusal(cmd.ErrOrStderr(), client.Explain(err), f.broker)
		return &exitError{code: exitGRPC}
	}
	if err := f.print(cmd.OutOrStdout(), req, resp); err != nil {
		return err
	}
	if code := fanOutCode(resp.GetOutcome()); code != exitOK {
		return &exitError{code: code}
	}
	return nil
}

// request makes the request. Only what the command line itself can get wrong is checked: the broker knows the rest better.
func (f *fanOutFlags) request(given func(flag string) bool, in io.Reader) (*pb.FanOutRequest, error) {
	req := &pb.FanOutRequest{}
	switch {
	case f.file != "":
		if err := readMessage(f.file, in, req); err != nil {
			return nil, err
		}
	case len(f.calls) == 0:
		return nil, errors.New("no calls: give -f FILE, or --call 'METHOD URL' for each (see sallyport fanout --help)")
	}
	for _, c := range f.calls {
		parts := strings.Fields(c)
		if len(parts) != 2 {
			return nil, errors.New("--call: write 'METHOD URL'") // without the text: a query may hold a secret
		}
		req.Branches = append(req.Branches, &pb.Branch{
			Id: strconv.Itoa(len(req.GetBranches()) + 1), Call: &pb.CallRequest{Request: &pb.HttpRequest{Method: parts[0], Url: parts[1]}},
		})
	}
	if given("mode") {
		mode, ok := pb.FanOutMode_value["FAN_OUT_MODE_"+strings.ToUpper(strings.ReplaceAll(f.mode, "-", "_"))]
		if err := oneOf("mode", f.mode, fanOutModes...); err != nil || !ok {
			return nil, err
		}
		req.Mode = pb.FanOutMode(mode)
	}
	if req.GetMode() == pb.FanOutMode_FAN_OUT_MODE_UNSPECIFIED {
		req.Mode = pb.FanOutMode_FAN_OUT_MODE_ALL
	}
	if given("quorum") {
		req.Quorum = f.quorum
	}
	if given("max-parallel") {
		req.MaxParallel = f.maxParallel
	}
	return req, nil
}

func (f *fanOutFlags) print(w io.Writer, req *pb.FanOutRequest, resp *pb.FanOutResponse) error {
	if f.output == "json" {
		return printJSON(w, resp)
	}
	_, err := io.WriteString(w, fanOutText(req, resp))
	return err //nolint:wrapcheck // a broken pipe needs no more words
}

// fanOutText shows each branch as a call of its own under its id, then what became of the whole.
func fanOutText(req *pb.FanOutRequest, resp *pb.FanOutResponse) string {
	var b strings.Builder
	succeeded := 0
	for i, r := range resp.GetResults() {
		var asked *pb.Branch
		if i < len(req.GetBranches()) {
			asked = req.GetBranches()[i]
		}
		head := "[" + plain(r.GetId()) + "]"
		if asked.GetOptional() && req.GetMode() == pb.FanOutMode_FAN_OUT_MODE_ALL {
			head += " optional"
		}
		b.WriteString(cut(head) + "\n")
		for line := range strings.Lines(timeline(asked.GetCall(), r.GetResponse()) + answer(r.GetResponse().GetResponse())) {
			b.WriteString(strings.TrimRight("  "+line, " \n") + "\n")
		}
		b.WriteString("\n")
		if r.GetResponse().GetOutcome() == pb.Outcome_OUTCOME_SUCCESS {
			succeeded++
		}
	}
	fmt.Fprintf(&b, "%s  %d of %d branches succeeded\n", strings.TrimPrefix(resp.GetOutcome().String(), "FAN_OUT_OUTCOME_"), succeeded, len(resp.GetResults()))
	return b.String()
}

// fanOutCode is the exit code of a fan-out that was taken: 0 when it is complete, else 10 and the number of its outcome.
func fanOutCode(o pb.FanOutOutcome) int {
	if o == pb.FanOutOutcome_FAN_OUT_OUTCOME_COMPLETE {
		return exitOK
	}
	return exitOutcome + int(o)
}
