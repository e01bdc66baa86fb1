package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sallyport/sallyport/client"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// submission is what is submitted, in the words of the flags. A line of --from-file has the same.
type submission struct {
	Method      string            `json:"method"`
	URL         string            `json:"url"`
	Headers     []string          `json:"headers"` // 'Name: value'
	Body        string            `json:"body"`
	OperationID string            `json:"operation_id"`
	MaxRetries  *uint32           `json:"max_retries"`
	Backoff     string            `json:"backoff"`
	NotBefore   string            `json:"not_before"`
	Expire      string            `json:"expire"`
	Delivery    string            `json:"delivery"` // at-least-once | at-most-once
	Labels      map[string]string `json:"labels"`
}

const (
	atLeastOnce = "at-least-once"
	atMostOnce  = "at-most-once"
)

// request makes the message. Only what these words themselves can get wrong is checked: the broker knows the rest better.
func (s *submission) request() (*pb.SubmitDeferredCallRequest, error) {
	req := &pb.SubmitDeferredCallRequest{
		Call: &pb.CallRequest{
			Request:     &pb.HttpRequest{Method: s.Method, Url: s.URL, Body: []byte(s.Body)},
			OperationId: s.OperationID, Labels: s.Labels,
		},
		MaxRetries: s.MaxRetries,
	}
	for _, h := range s.Headers {
		field, err := parseHeader(h)
		if err != nil {
			return nil, err
		}
		req.Call.Request.Headers = append(req.Call.Request.Headers, field)
	}
	if s.Backoff != "" {
		d, err := time.ParseDuration(s.Backoff)
		if err != nil || d <= 0 {
			return nil, usagef("--backoff %q: give a duration above zero, for example 1s", s.Backoff)
		}
		req.Backoff = durationpb.New(d)
	}
	switch s.Delivery {
	case "":
	case atLeastOnce:
		req.Delivery = pb.DeliveryMode_DELIVERY_MODE_AT_LEAST_ONCE
	case atMostOnce:
		req.Delivery = pb.DeliveryMode_DELIVERY_MODE_AT_MOST_ONCE
	default:
		return nil, oneOf("delivery", s.Delivery, atLeastOnce, atMostOnce)
	}
	var err error
	if req.NotBeforeTime, err = instantOf("not-before", s.NotBefore, 1); err != nil {
		return nil, err
	}
	req.ExpireTime, err = instantOf("expire", s.Expire, 1)
	return req, err
}

// submitFlags are those of `deferred submit`.
type submitFlags struct {
	adminFlags
	submission
	labels      []string
	retries     uint32
	least, most bool
	file        string
	single      []string // the flags that speak of one submission
}

func newDeferredSubmit() *cobra.Command {
	var f submitFlags
	cmd := &cobra.Command{
		Use:   "submit METHOD URL",
		Short: "Have a call kept until it is done; prints its name once it is on the broker's disk",
		Long: `Have a call kept until it is done. The name it prints is that of a call on the broker's disk: from then on it is lost by no crash.
Give an --operation-id: the same submission under the same id is no second one, so that whoever got no answer may submit again.

What is repeated is ruled by the policy, as for a direct call. --at-least-once says that twice is better than never: any method is
repeated, under one Idempotency-Key. --at-most-once says the opposite: what may have been sent is not sent again. Without --max-retries
and --backoff the policy says how often and when; with one of them the other is 5 or 1s, and the wait doubles.

--from-file FILE submits a line at a time, - is standard input; each line is a JSON object in the words of the flags:

  {"method": "POST", "url": "https://hooks.example.com/a", "body": "{\"id\": 17}", "headers": ["Content-Type: application/json"],
   "operation_id": "a-17", "max_retries": 5, "backoff": "1s", "delivery": "at-least-once", "expire": "24h", "labels": {"team": "billing"}}

(on one line), or a SubmitDeferredCallRequest in protobuf JSON, known by its "call". The names are printed in the order of the file. A
line that is refused is told with its number, and the others go on. A file whose lines have operation ids can be submitted again: what
was accepted before is not doubled, and its name is printed again.

` + deferredHelp + "\n" + adminCodes + `
With --from-file: 0 when every line was accepted, 2 when one could not be read, else 3.`,
		Example: `  sallyport deferred submit POST https://hooks.example.com/orders -H 'Content-Type: application/json' -d @order.json \
      --operation-id order-4711 --at-least-once --label team=billing
  sallyport deferred submit POST https://sms.example.com/send -d @code.json --operation-id otp-17 --at-most-once --expire 2m
  sallyport deferred submit --from-file orders.jsonl`,
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("from-file") {
				return exactly()(cmd, args)
			}
			return exactly("METHOD", "URL")(cmd, args)
		},
		RunE: action(func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("from-file") {
				return f.submitAll(cmd)
			}
			return f.submitOne(cmd, args[0], args[1])
		}),
	}
	f.declare(cmd)
	return cmd
}

func (f *submitFlags) declare(cmd *cobra.Command) {
	f.adminFlags.declare(cmd)
	fs := cmd.Flags()
	before := map[string]bool{}
	fs.VisitAll(func(flag *pflag.Flag) { before[flag.Name] = true })
	fs.StringArrayVarP(&f.Headers, "header", "H", nil, "request field, 'Name: value' (repeatable)")
	fs.StringVarP(&f.Body, "data", "d", "", "request body; @FILE reads a file, @- standard input")
	fs.StringVar(&f.OperationID, "operation-id", "", "identity of the operation: the same id is the same deferred call")
	fs.Uint32Var(&f.retries, "max-retries", 0, "how many repeats there may be (default: the policy's, or 5 with --backoff)")
	fs.StringVar(&f.Backoff, "backoff", "", "the wait before the first repeat; it doubles (default: the policy's, or 1s with --max-retries)")
	fs.StringVar(&f.NotBefore, "not-before", "", "not tried before: an instant (RFC 3339), or how long from now (10m)")
	fs.StringVar(&f.Expire, "expire", "", "given up then: an instant (RFC 3339), or how long from now (24h) (default: the policy's max_age)")
	fs.BoolVar(&f.least, atLeastOnce, false, "rather twice than never: any method is repeated, under one Idempotency-Key")
	fs.BoolVar(&f.most, atMostOnce, false, "rather never than twice: what may have been sent is not sent again")
	fs.StringArrayVar(&f.labels, "label", nil, "KEY=VALUE, to find it by (repeatable)")
	fs.VisitAll(func(flag *pflag.Flag) {
		if !before[flag.Name] {
			f.single = append(f.single, flag.Name)
		}
	})
	fs.StringVar(&f.file, "from-file", "", "submit every line of a file of JSON objects; - is standard input")
	for _, flag := range []string{"header", "operation-id", "max-retries", "backoff", "not-before", "expire", "label"} {
		completeFlag(cmd, flag) // nothing is known, and they are no files
	}
	cmd.ValidArgsFunction = completeArgs(methodNames(), nil)
}

func (f *submitFlags) submitOne(cmd *cobra.Command, method, url string) error {
	f.Method, f.URL = method, url
	switch {
	case f.least && f.most:
		return usage(errors.New("--at-least-once and --at-most-once: give one of them"))
	case f.least:
		f.Delivery = atLeastOnce
	case f.most:
		f.Delivery = atMostOnce
	}
	if cmd.Flags().Changed("max-retries") {
		f.MaxRetries = &f.retries
	}
	var err error
	if f.Labels, err = labelsOf(f.labels); err != nil {
		return err
	}
	body, err := readBody(f.Body, cmd.InOrStdin())
	if err != nil {
		return usage(err)
	}
	f.Body = ""
	req, err := f.request()
	if err != nil {
		return usage(err)
	}
	req.Call.Request.Body = body
	return f.ask(cmd, func(ctx context.Context, c *client.Client) (proto.Message, error) {
		resp, err := c.SubmitDeferredCall(ctx, req)
		return resp.GetDeferredCall(), err
	}, func(m proto.Message) {
		sayName(cmd.OutOrStdout(), m.(*pb.DeferredCall)) //nolint:forcetypeassert // asked for above
	})
}

// sayName prints the name and nothing else: a shell takes it from there.
func sayName(w io.Writer, d *pb.DeferredCall) { sayf(w, "%s\n", plain(strings.TrimSpace(d.GetName()))) }
