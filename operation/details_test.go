package operation_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/operation"
)

const golden = `{"policy":"policies/pay@3","detail":"why","next":5,"retry_safe":true,"attempts":[{"number":2,"kind":2,"origin":"http://pay.example.com:80",` +
	`"start":"2026-01-02T03:04:05.000000006Z","offset":1,"waited":2,"queued":3,"timeout":4,"duration":5,"trace_id":"t","span_id":"s","evidence":3,"failure":4,` +
	`"timed_out":true,"detail":"lost","status":200,"remote":"192.0.2.1:80","protocol":"HTTP/1.1","reused":true,"verdict":2,"reason":5,"wait":6}],` +
	`"head":{"headers":[{"n":"X-Raw","v":"//4="}],"trailers":[{"n":"X-Sum","v":"OQ=="}],"protocol":"HTTP/2"},` +
	`"probes":[{"time":"2026-01-02T03:04:05Z","verdict":3,"status":404,"counts":true}]}`

// The stored form outlives programs: names are added, never changed.
func TestStoredFormIsTheSameInEveryVersion(t *testing.T) {
	at := time.Date(2026, 1, 2, 4, 4, 5, 6, time.FixedZone("", 3600))
	f := &call.Final{
		Detail: "why", Next: 5, RetrySafe: true, Note: "not kept",
		Attempts: []call.Attempt{{
			Number: 2, Kind: 2, Origin: "http://pay.example.com:80", Start: at, Offset: 1, Waited: 2, Queued: 3, Timeout: 4, Duration: 5, TraceID: "t", SpanID: "s",
			TraceParent: "not kept", Deadline: at, Remaining: 7,
			Result: call.Result{
				Evidence: 3, Failure: 4, TimedOut: true, Detail: "lost", Note: "not kept", Status: 200, RemoteAddress: "192.0.2.1:80", Protocol: "HTTP/1.1", Reused: true,
			},
			Decision: call.Decision{Verdict: 2, Reason: 5, Wait: 6},
		}},
		Response: &call.Response{
			Status: 200, Protocol: "HTTP/2", Body: []byte("kept elsewhere"), Trailers: []call.Header{{Name: "X-Sum", Value: "9"}, {Name: "set-cookie", Value: "b=2"}},
			Headers: []call.Header{{Name: "Set-Cookie", Value: "a=1"}, {Name: "X-Raw", Value: "\xff\xfe"}, {Name: "SET_COOKIE", Value: "c=3"}},
		},
	}
	probes := []operation.Finding{{Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Verdict: operation.VerdictNotApplied, Status: 404, Counts: true}}
	got, err := operation.Stored(f, "policies/pay@3", probes)
	if err != nil || string(got) != golden {
		t.Errorf("%s, %v, want\n%s", got, err, golden)
	}
	r := operation.Record{Status: 200, BodyBytes: 14, Details: []byte(golden)}
	k, err := r.Known()
	if err != nil {
		t.Fatal(err)
	}
	want := operation.Known{
		Attempts: []call.Attempt{f.Attempts[0]}, Detail: "why", Next: 5, RetrySafe: true, Policy: "policies/pay@3", Probes: probes,
		Response: &call.Response{
			Status: 200, Protocol: "HTTP/2", BodyOmitted: true,
			Headers: []call.Header{{Name: "X-Raw", Value: "\xff\xfe"}}, Trailers: []call.Header{{Name: "X-Sum", Value: "9"}},
		},
	}
	a := &want.Attempts[0]
	a.Start, a.TraceParent, a.Deadline, a.Remaining, a.Result.Note = at.UTC(), "", time.Time{}, 0, ""
	if !reflect.DeepEqual(k, want) {
		t.Errorf("read back: %+v\nwant %+v", k, want)
	}
}

func TestDetailsThatCannotBeReadAreAnError(t *testing.T) {
	r := operation.Record{State: operation.StateFinished, Details: []byte("{"), Request: []byte("{")}
	if k, err := r.Known(); err == nil {
		t.Errorf("%+v", k)
	}
	if q, err := operation.RequestOf(&r); err == nil {
		t.Errorf("%+v", q)
	}
}
