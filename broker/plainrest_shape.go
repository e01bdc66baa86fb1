package broker

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// idempotencyKey is the field of a submission that names its operation: one that is repeated with it is no other one.
const idempotencyKey = "Idempotency-Key"

// readPlain reads a submission, or names the field that cannot be taken.
func readPlain(r *http.Request) (req *pb.SubmitDeferredCallRequest, field, problem string) {
	raw, problem := readObject(r.Body)
	if problem != "" {
		return nil, "body", problem
	}
	asked := &pb.CallRequest{Request: &pb.HttpRequest{}}
	retries, wait, atMostOnce := int64(defaultRetries), defaultRetryBackoff.Milliseconds(), false
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		value := raw[name]
		optional := true
		switch name {
		case "url":
			asked.Request.Url, problem = readText(value)
			optional = false
		case "method":
			asked.Request.Method, problem = readText(value)
			optional = false
		case "body":
			var text string
			text, problem = readText(value)
			asked.Request.Body = []byte(text)
		case "maxRetries":
			retries, problem = readNumber(value, 0, maxRetries)
		case "backoffMs":
			wait, problem = readNumber(value, 1, maxRetryBackoff.Milliseconds())
		case "atMostOnce":
			atMostOnce, problem = readSwitch(value)
		default:
			return nil, name, "no field of a request; give url, method, body, maxRetries, backoffMs, atMostOnce"
		}
		switch {
		case optional && string(value) == "null": // as if it were not there
			switch name {
			case "maxRetries":
				retries = defaultRetries
			case "backoffMs":
				wait = defaultRetryBackoff.Milliseconds()
			}
		case problem != "":
			return nil, name, problem
		}
	}
	switch {
	case asked.GetRequest().GetUrl() == "":
		return nil, "url", "is missing"
	case asked.GetRequest().GetMethod() == "":
		return nil, "method", "is missing"
	}
	switch keys := r.Header.Values(idempotencyKey); {
	case len(keys) > 1:
		return nil, idempotencyKey, "is given more than once"
	case len(keys) == 1:
		if asked.OperationId = keys[0]; !validOperationID(keys[0]) {
			return nil, idempotencyKey, "not 1 to 255 visible ASCII characters"
		}
	}
	req = &pb.SubmitDeferredCallRequest{
		Call: asked, MaxRetries: new(uint32(retries)),
		Backoff:  durationpb.New(time.Duration(wait) * time.Millisecond),
		Delivery: pb.DeliveryMode_DELIVERY_MODE_AT_LEAST_ONCE,
	}
	if atMostOnce {
		req.Delivery = pb.DeliveryMode_DELIVERY_MODE_AT_MOST_ONCE
	}
	return req, "", ""
}

// readObject reads a JSON object, its members as they were written. Text that is no UTF-8 would become another one.
func readObject(from io.Reader) (raw map[string]json.RawMessage, problem string) {
	body, err := io.ReadAll(from) // it is in memory already
	if err != nil || !utf8.Valid(body) {
		return nil, "is no UTF-8"
	}
	if err := json.Unmarshal(body, &raw); err != nil || raw == nil {
		return nil, "is no JSON object"
	}
	return raw, ""
}

func readText(value json.RawMessage) (text, problem string) {
	if json.Unmarshal(value, &text) != nil || string(value) == "null" {
		return "", "is no text; give it in quotes"
	}
	return text, ""
}

func readNumber(value json.RawMessage, least, most int64) (n int64, problem string) {
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil || n < least || n > most {
		return 0, fmt.Sprintf("is no whole number from %d to %d", least, most)
	}
	return n, ""
}

func readSwitch(value json.RawMessage) (on bool, problem string) {
	if json.Unmarshal(value, &on) != nil || string(value) == "null" {
		return false, "is neither true nor false"
	}
	return on, ""
}

// plainStatus is a state in the words of the plain paths.
type plainStatus string

const (
	plainPending   plainStatus = "pending"
	plainRetrying  plainStatus = "retrying"
	plainCompleted plainStatus = "completed"
	plainFailed    plainStatus = "failed"
)

// states are those that may show as it; all of them for "".
func (s plainStatus) states() ([]pb.DeferredState, bool) {
	switch s {
	case "":
		return []pb.DeferredState{pb.DeferredState_DEFERRED_STATE_UNSPECIFIED}, true
	case plainPending:
		return []pb.DeferredState{pb.DeferredState_DEFERRED_STATE_PENDING, pb.DeferredState_DEFERRED_STATE_SENDING}, true
	case plainRetrying:
		return []pb.DeferredState{pb.DeferredState_DEFERRED_STATE_RETRYING, pb.DeferredState_DEFERRED_STATE_SENDING}, true
	case plainCompleted:
		return []pb.DeferredState{pb.DeferredState_DEFERRED_STATE_COMPLETED}, true
	case plainFailed:
		return []pb.DeferredState{pb.DeferredState_DEFERRED_STATE_FAILED, pb.DeferredState_DEFERRED_STATE_UNKNOWN, pb.DeferredState_DEFERRED_STATE_CANCELLED}, true
	}
	return nil, false
}

func plainStatusOf(d *pb.DeferredCall) plainStatus {
	switch d.GetState() {
	case pb.DeferredState_DEFERRED_STATE_PENDING:
		return plainPending
	case pb.DeferredState_DEFERRED_STATE_SENDING:
		if len(d.GetAttempts()) == 0 {
			return plainPending
		}
		return plainRetrying
	case pb.DeferredState_DEFERRED_STATE_RETRYING:
		return plainRetrying
	case pb.DeferredState_DEFERRED_STATE_COMPLETED:
		return plainCompleted
	}
	return plainFailed
}

// plainList and the types below are the answers of the plain paths.
type plainList struct {
	Requests []plainRequest `json:"requests"`
}

type plainRequest struct {
	ID                string         `json:"id"`
	URL               string         `json:"url"`
	Method            string         `json:"method"`
	Status            plainStatus    `json:"status"`
	Reason            string         `json:"reason,omitempty"`
	MaxRetries        uint32         `json:"maxRetries"`
	BackoffMs         int64          `json:"backoffMs"`
	AtMostOnce        bool           `json:"atMostOnce"`
	PossibleDuplicate bool           `json:"possibleDuplicate"`
	Attempts          []plainAttempt `json:"attempts"`
}

type plainAttempt struct {
	Number     uint32 `json:"number"`
	Status     uint32 `json:"status,omitempty"`
	Error      string `json:"error,omitempty"`
	StartedAt  string `json:"startedAt"`
	DurationMs int64  `json:"durationMs"`
}

func plainOf(d *pb.DeferredCall) plainRequest {
	p := plainRequest{
		ID: strings.TrimPrefix(d.GetName(), deferredPrefix), URL: d.GetCall().GetRequest().GetUrl(), Method: d.GetCall().GetRequest().GetMethod(),
		Status: plainStatusOf(d), MaxRetries: d.GetMaxRetries(), BackoffMs: d.GetBackoff().AsDuration().Milliseconds(),
		AtMostOnce:        d.GetDelivery() == pb.DeliveryMode_DELIVERY_MODE_AT_MOST_ONCE,
		PossibleDuplicate: d.GetPossibleDuplicate(), Attempts: []plainAttempt{},
	}
	if p.Status == plainFailed {
		p.Reason = plainReason(d)
	}
	for _, a := range d.GetAttempts() {
		one := plainAttempt{
			Number: a.GetNumber(), Status: a.GetStatus(),
			StartedAt: a.GetStartTime().AsTime().Format(time.RFC3339Nano), DurationMs: a.GetDuration().AsDuration().Milliseconds(),
		}
		if f := a.GetFailure(); f != 0 || a.GetStatus() == 0 {
			one.Error = cmp.Or(a.GetDetail(), plainWord(f.String(), "FAILURE_"))
		}
		p.Attempts = append(p.Attempts, one)
	}
	return p
}

// plainReason says why it failed: how it ended, and what stopped it.
func plainReason(d *pb.DeferredCall) string {
	how := plainWord(d.GetState().String(), "DEFERRED_STATE_")
	if f := d.GetFailure(); f != 0 {
		how = plainWord(f.String(), "DEFERRED_FAILURE_")
	}
	if d.GetState() == pb.DeferredState_DEFERRED_STATE_UNKNOWN {
		how = "unknown: it was sent, nobody knows whether it was done, and it must not be repeated"
	}
	if d.GetDetail() != "" {
		return how + ": " + d.GetDetail()
	}
	if d.GetReason() != 0 {
		return how + ": " + plainWord(d.GetReason().String(), "REASON_")
	}
	return how
}

// plainWord is a value of an enum as a person writes it.
func plainWord(value, prefix string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(value, prefix)), "_", " ")
}
