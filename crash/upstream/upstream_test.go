package upstream

import (
	"bytes"
	"io"
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sallyport/sallyport/crash/history"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scripted gives the first operation whose first request is treated that way.
func scripted(t *testing.T, seed uint64, name string) string {
	t.Helper()
	const many = 10_000
	for i := range many {
		operation := "op" + string(rune('a'+i%26)) + time.Duration(i).String()
		if scriptFor(seed, operation, 1).name == name {
			return operation
		}
	}
	t.Fatalf("no operation is treated as %q", name)
	return ""
}

func start(t *testing.T, seed uint64) (*Upstream, *history.Recorder, *http.Client) {
	t.Helper()
	h := history.NewRecorder(time.Now())
	u, err := Start(t.Context(), seed, h, func(Moment) {})
	if err != nil {
		t.Fatal(err)
	}
	// One connection each, and so nothing that net/http would send again.
	transport := &http.Transport{DisableKeepAlives: true}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := u.Close(); err != nil {
			t.Error(err)
		}
	})
	return u, h, &http.Client{Transport: transport}
}

// send gives status and body; 0 when no answer came whole.
func send(t *testing.T, c *http.Client, u *Upstream, path, key string, other bool) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+u.Address()+path, bytes.NewReader(Body(other, 20_000)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("Traceparent", "00-trace-span-00")
	resp, err := c.Do(r)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, ""
	}
	return resp.StatusCode, string(text)
}

func TestScriptsDoAsTheySay(t *testing.T) {
	const seed = 1
	u, h, c := start(t, seed)
	for _, tt := range []struct {
		script string
		status int
		effect bool
	}{
		{"answers", 201, true},
		{"answers after a while", 201, true},
		{"commits, answers late", 201, true},
		{"commits late", 201, true},
		{"commits, closes", 0, true},
		{"commits, resets", 0, true},
		{"commits, resets amid the answer", 0, true},
		{"works, commits, resets", 0, true},
		{"commits, 502", 502, true},
		{"commits, 504", 504, true},
		{"commits, 500", 500, true},
		{"closes", 0, false},
		{"resets", 0, false},
		{"resets amid the request", 0, false},
		{"503", 503, false},
		{"429", 429, false},
		{"401", 401, false},
		{"404", 404, false},
		{"502 at once", 502, false},
	} {
		t.Run(tt.script, func(t *testing.T) {
			operation := scripted(t, seed, tt.script)
			status, body := send(t, c, u, "/plain/"+operation, "", false)
			a := arrival(t, u, h, operation)
			if status != tt.status || a.Status != tt.status {
				t.Errorf("status %d, written down as %d, want %d", status, a.Status, tt.status)
			}
			if done := a.Committed > 0; done != tt.effect || done && (a.Committed < a.At || a.Committed > a.End) {
				t.Errorf("committed at %s of %s to %s, want one: %t", a.Committed, a.At, a.End, tt.effect)
			}
			if status == 201 && body != a.Answer || a.Trace != "trace" {
				t.Errorf("answer %q, effect %q, trace %q", body, a.Answer, a.Trace)
			}
		})
	}
}

// arrival is the only one of an operation, once the upstream is done with it.
func arrival(t *testing.T, u *Upstream, h *history.Recorder, operation string) history.Arrival {
	t.Helper()
	u.finish()
	var found []history.Arrival
	for _, a := range h.History().Arrivals {
		if a.Operation == operation {
			found = append(found, a)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d arrivals, want 1", len(found))
	}
	return found[0]
}

func TestKeysAreHonoured(t *testing.T) {
	u, h, c := start(t, 1)
	u.Calm()
	_, first := send(t, c, u, "/keyed/a", "k", false)
	status, again := send(t, c, u, "/keyed/a", "k", false)
	if status != 201 || again != first {
		t.Errorf("the same key: %d %q, want 201 %q", status, again, first)
	}
	if status, _ := send(t, c, u, "/keyed/a", "k", true); status != 422 {
		t.Errorf("another payload: %d, want 422", status)
	}
	if status, other := send(t, c, u, "/keyed/a", "l", false); status != 201 || other == first {
		t.Errorf("another key: %d %q, want another effect", status, other)
	}
	if status, other := send(t, c, u, "/plain/b", "k", false); status != 201 || other == first {
		t.Errorf("no contract: %d %q, want another effect", status, other)
	}
	u.finish()
	effects := 0
	for _, a := range h.History().Arrivals {
		if a.Committed > 0 {
			effects++
		}
	}
	if effects != 3 {
		t.Errorf("%d effects, want 3", effects)
	}
}

func TestKeyIsBusyAndExpires(t *testing.T) {
	k := keys{known: map[string]*entry{}}
	now := time.Unix(0, 0)
	for _, step := range []struct {
		after   time.Duration
		payload string
		finish  bool
		want    verdict
	}{
		{0, "one", false, fresh},
		{time.Second, "one", false, busy},
		{2 * time.Second, "other", true, mismatch},
		{10 * time.Second, "one", false, known},
		{11 * time.Second, "one", false, fresh},
	} {
		if got, _ := k.take("k", step.payload, 10*time.Second, now.Add(step.after)); got != step.want {
			t.Errorf("after %s: %d, want %d", step.after, got, step.want)
		}
		if step.finish {
			k.finish("k", answer{})
		}
	}
}

func TestSameSeedGivesSameScripts(t *testing.T) {
	differ := 0
	for n := range 100 {
		first := scriptFor(1, "op", n)
		if again := scriptFor(1, "op", n); again != first {
			t.Fatalf("request %d: %v, %v", n, first, again)
		}
		if first.name != scriptFor(2, "op", n).name {
			differ++
		}
	}
	if differ == 0 {
		t.Error("another seed gives the same")
	}
}
