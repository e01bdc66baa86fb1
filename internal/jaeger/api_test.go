package jaeger

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"testing"

	"github.com/sallyport/sallyport/internal/process"
)

// get asks on a connection of its own, which leaves no goroutine behind.
func get(t *testing.T, address string) (code int, body []byte, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

// trace is what Jaeger tells of one.
type trace struct {
	TraceID   string             `json:"traceID"`
	Spans     []span             `json:"spans"`
	Processes map[string]service `json:"processes"`

	raw []byte
}

type service struct {
	Name string `json:"serviceName"`
}

// span is what Jaeger tells of one. Times are microseconds.
type span struct {
	TraceID    string      `json:"traceID"`
	ID         string      `json:"spanID"`
	Name       string      `json:"operationName"`
	Process    string      `json:"processID"`
	References []reference `json:"references"`
	Start      int64       `json:"startTime"`
	Duration   int64       `json:"duration"`
	Tags       []field     `json:"tags"`
	Events     []event     `json:"logs"`
}

type reference struct {
	Kind    string `json:"refType"`
	TraceID string `json:"traceID"`
	SpanID  string `json:"spanID"`
}

type event struct {
	Time   int64   `json:"timestamp"`
	Fields []field `json:"fields"`
}

type field struct {
	Key   string `json:"key"`
	Value any    `json:"value"`
}

// tags are the tags by key; a key that comes twice is a defect.
func (s *span) tags(t *testing.T) map[string]any {
	t.Helper()
	return byKey(t, s.Tags)
}

func byKey(t *testing.T, fields []field) map[string]any {
	t.Helper()
	values := map[string]any{}
	for _, f := range fields {
		if _, twice := values[f.Key]; twice {
			t.Errorf("%s comes twice", f.Key)
		}
		values[f.Key] = f.Value
	}
	return values
}

// ends may be a microsecond early: both parts are cut to whole ones.
func (s *span) ends() int64 { return s.Start + s.Duration }

// traces asks for traces; there may be none.
func (j *jaeger) traces(t *testing.T, path string) []trace {
	t.Helper()
	code, body, err := get(t, j.api+path)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if code == 404 {
		return nil
	}
	var answer struct {
		Data []json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(body, &answer); err != nil || code != 200 {
		t.Fatalf("%s: %d, %v\n%s", path, code, err, body)
	}
	var found []trace
	for _, raw := range answer.Data {
		one := trace{raw: raw}
		if err := json.Unmarshal(raw, &one); err != nil {
			t.Fatalf("%v\n%s", err, raw)
		}
		// Jaeger promises no order; ours is that of time.
		slices.SortStableFunc(one.Spans, func(a, b span) int { return cmp.Compare(a.Start, b.Start) })
		found = append(found, one)
	}
	return found
}

// trace waits until a trace has so many spans. More of them are a defect.
func (j *jaeger) trace(t *testing.T, id string, spans int) trace {
	t.Helper()
	var found []trace
	there := j.until(func() bool {
		found = j.traces(t, "/traces/"+id)
		return len(found) == 1 && len(found[0].Spans) >= spans
	})
	switch {
	case !there && len(found) == 0:
		t.Fatalf("trace %s does not come; Jaeger:\n%s", id, j.Log())
	case !there || len(found[0].Spans) > spans:
		t.Fatalf("trace %s has %d spans, want %d:\n%s", id, len(found[0].Spans), spans, found[0].raw)
	}
	return found[0]
}

// search finds traces by service and tags.
func (j *jaeger) search(t *testing.T, service string, tags map[string]string) []trace {
	t.Helper()
	text, err := json.Marshal(tags)
	if err != nil {
		t.Fatal(err)
	}
	return j.traces(t, "/traces?"+url.Values{"service": {service}, "tags": {string(text)}, "limit": {"100"}}.Encode())
}

// names asks for a list of names.
func (j *jaeger) names(t *testing.T, path string) []string {
	t.Helper()
	code, body, err := get(t, j.api+path)
	var answer struct {
		Data []string `json:"data"`
	}
	if err == nil && code == 200 {
		err = json.Unmarshal(body, &answer)
	}
	if err != nil || code != 200 {
		t.Fatalf("%s: %d, %v\n%s", path, code, err, body)
	}
	slices.Sort(answer.Data)
	return answer.Data
}
