package broker

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sallyport/sallyport/call"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// blowUp is what the stack in the log must name.
func blowUp(context.Context, *call.Call) call.Result { panic("made for a test") }

// logged finds the record of the panic whose id the message holds.
func logged(t *testing.T, log *logBuffer, err error) map[string]any {
	t.Helper()
	id := strings.TrimPrefix(status.Convert(err).Message(), "internal error ")
	for line := range strings.Lines(log.String()) {
		record := map[string]any{}
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if record["id"] == id && uuidForm.MatchString(id) {
			return record
		}
	}
	t.Fatalf("%v: its id is not in the log %q", err, log)
	return nil
}

func TestPanicEndsOneCallOnly(t *testing.T) {
	entered, proceed := make(chan struct{}), make(chan struct{})
	r := start(t, setup{sender: senderFunc(func(ctx context.Context, c *call.Call) call.Result {
		switch c.Target.Path {
		case "/panic":
			return blowUp(ctx, c)
		case "/slow":
			close(entered)
			<-proceed
		}
		return answered(200)
	})})
	slow := make(chan error, 1) // receives one value, never closed
	go func() {
		_, err := r.calls.Call(within(t), get("http://127.0.0.1/slow"))
		slow <- err
	}()
	<-entered
	_, err := r.calls.Call(within(t), get("http://127.0.0.1/panic"))
	if status.Code(err) != codes.Internal || len(status.Convert(err).Details()) != 0 {
		t.Errorf("a panic after the call was taken: %v with details %v; a byte may have left", err, status.Convert(err).Details())
	}
	record := logged(t, r.log, err)
	if stack, _ := record["stack"].(string); record["value"] != "made for a test" || !strings.Contains(stack, "broker.blowUp") {
		t.Errorf("log record %v", record)
	}
	if strings.Contains(err.Error(), "made for a test") {
		t.Errorf("the caller is told of our inside: %v", err)
	}
	close(proceed)
	if err := <-slow; err != nil {
		t.Errorf("the call beside it: %v", err)
	}
	if resp, err := r.calls.Call(within(t), get("http://127.0.0.1/")); err != nil || resp.GetOutcome() != pb.Outcome_OUTCOME_SUCCESS {
		t.Errorf("the call after it: %v, %v", resp, err)
	}
}

func TestPanicBeforeTheCallWasTakenSaysThatNothingWasSent(t *testing.T) {
	r := start(t, setup{noTable: true})
	for range 2 { // the server lives on
		_, err := r.calls.Call(within(t), get("http://127.0.0.1/"))
		if status.Code(err) != codes.Internal || unsent(err) != "INTERNAL" {
			t.Errorf("got %v, unsent reason %q", err, unsent(err))
		}
		if stack, _ := logged(t, r.log, err)["stack"].(string); !strings.Contains(stack, "(*CallService).Call") {
			t.Errorf("stack %q", stack)
		}
	}
}

// An error that cannot know what was sent does not say so.
func TestPanicOfUnknownPlaceClaimsNothing(t *testing.T) {
	log, o := &logBuffer{}, counting(t)
	err := recovered(newLog(log), o)(t.Context(), "made for a test")
	if status.Code(err) != codes.Internal || unsent(err) != "" || logged(t, log, err)["stack"] == "" {
		t.Errorf("got %v", err)
	}
	if n := failures(t, o)[reasonInternal]; n != "1" {
		t.Errorf("counted %q times", n)
	}
}
