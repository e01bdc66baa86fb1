package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

func TestFlagsBecomeTheRequest(t *testing.T) {
	file := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(file, []byte("from a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		args []string
		want *pb.CallRequest
	}{
		{"nothing but the target", nil, &pb.CallRequest{Request: &pb.HttpRequest{}}},
		{"body", []string{"-d", "text"}, &pb.CallRequest{Request: &pb.HttpRequest{Body: []byte("text")}}},
		{"body from a file", []string{"-d", "@" + file}, &pb.CallRequest{Request: &pb.HttpRequest{Body: []byte("from a file")}}},
		{"body from standard input", []string{"-d", "@-"}, &pb.CallRequest{Request: &pb.HttpRequest{Body: []byte("from stdin")}}},
		{"headers keep their order and repeat", []string{"-H", "A: 1", "-H", "B:2, 3", "-H", "A:\t x:y "}, &pb.CallRequest{
			Request: &pb.HttpRequest{Headers: []*pb.HttpHeader{{Name: "A", Value: "1"}, {Name: "B", Value: "2, 3"}, {Name: "A", Value: "x:y"}}},
		}},
		{"a header that is not UTF-8", []string{"-H", "A: \xff"}, &pb.CallRequest{
			Request: &pb.HttpRequest{Headers: []*pb.HttpHeader{{Name: "A", RawValue: []byte{0xff}}}},
		}},
		{
			"limits",
			[]string{
				"--operation-id", "o", "--repeat-safety", "never", "--max-attempts", "2", "--attempt-timeout", "1s", "--reserve", "20ms",
				"--max-response-bytes", "9", "--single-use-body",
			},
			&pb.CallRequest{
				Request: &pb.HttpRequest{}, OperationId: "o", RepeatSafety: pb.RepeatSafety_REPEAT_SAFETY_NEVER, MaxAttempts: 2,
				AttemptTimeout: ms(1000), Reserve: ms(20), MaxResponseBytes: 9, SingleUseBody: true,
			},
		},
		{"the caller's word", []string{"--repeat-safety", "idempotent"}, &pb.CallRequest{
			Request: &pb.HttpRequest{}, RepeatSafety: pb.RepeatSafety_REPEAT_SAFETY_IDEMPOTENT,
		}},
		// The broker refuses it and names the field; the command line does not silently drop it.
		{"a negative limit goes out as it is", []string{"--attempt-timeout", "-1s"}, &pb.CallRequest{
			Request: &pb.HttpRequest{}, AttemptTimeout: ms(-int(time.Second / time.Millisecond)),
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var f callFlags
			fs := pflag.NewFlagSet("call", pflag.ContinueOnError)
			f.declare(fs)
			if err := fs.Parse(tt.args); err != nil {
				t.Fatal(err)
			}
			tt.want.Request.Method, tt.want.Request.Url = "POST", "http://127.0.0.1/"
			got, err := f.request("POST", "http://127.0.0.1/")
			if err != nil {
				t.Fatal(err)
			}
			if _, streamed, err := f.streamed(got, strings.NewReader("from stdin")); streamed || err != nil {
				t.Fatal(streamed, err)
			}
			if !proto.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestBodyLargerThanAnyPolicyAllowsIsNotRead(t *testing.T) {
	if _, err := readBody("@-", endless{}); err == nil || !strings.Contains(err.Error(), "more than 16777216 bytes") {
		t.Errorf("got %v", err)
	}
}

// endless never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestFlagWinsOverTheEnvironment(t *testing.T) {
	t.Setenv("SALLYPORT_TOKEN", "from-env")
	t.Setenv("SALLYPORT_BROKER", "127.0.0.1:1")
	for _, tt := range []struct {
		args          []string
		token, broker string
	}{
		{nil, "from-env", "127.0.0.1:1"},
		{[]string{"--token", "flag", "--broker", "127.0.0.1:2"}, "flag", "127.0.0.1:2"},
	} {
		var f callFlags
		fs := pflag.NewFlagSet("call", pflag.ContinueOnError)
		f.declare(fs)
		if err := fs.Parse(tt.args); err != nil {
			t.Fatal(err)
		}
		if _, err := f.request("GET", "http://127.0.0.1/"); err != nil {
			t.Fatal(err)
		}
		c, err := f.dial()
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close() // it never connected
		if f.token != tt.token || f.broker != tt.broker {
			t.Errorf("%v: token %q, broker %q", tt.args, f.token, f.broker)
		}
		if usage := fs.FlagUsages(); strings.Contains(usage, "from-env") {
			t.Error("--help shows the token")
		}
	}
}

func TestEveryCommandExplainsItself(t *testing.T) {
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Short == "" || c.Long == "" || c.Example == "" {
			t.Errorf("%s lacks a part of its help", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRoot())
}
