package broker

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/policy"
)

// overREST is a broker with REST on a real port.
type overREST struct {
	*running
	url string
}

func startREST(t *testing.T, s setup, own bool) *overREST {
	t.Helper()
	s.deferral = true
	r := &overREST{running: start(t, s)}
	inside := NewInside()
	client, err := inside.Client()
	if err != nil {
		t.Fatal(err)
	}
	handler, err := NewREST(RESTConfig{Client: client, Known: r.server.Knows, Plain: true, OwnHosts: own})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1) // receives one value, never closed
	go func() { served <- r.server.Serve(inside) }()
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		server.Close()
		_ = client.Close()
		r.server.Drain(context.WithoutCancel(t.Context()))
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	r.url = server.URL
	return r
}

// answer is what REST said.
type answer struct {
	code   int
	header http.Header
	text   string
	json   map[string]any
}

// ask sends a request; fields are pairs.
func (r *overREST) ask(t *testing.T, method, path, body string, fields ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(within(t), method, r.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(fields); i += 2 {
		if fields[i] == "Host" {
			req.Host = fields[i+1]
		}
		req.Header.Set(fields[i], fields[i+1])
	}
	resp, err := (&http.Client{}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := answer{code: resp.StatusCode, header: resp.Header, text: string(text)}
	_ = json.Unmarshal(text, &a.json)
	return a
}

func (r *overREST) until(t *testing.T, path, status string) answer {
	t.Helper()
	for ctx := within(t); ctx.Err() == nil; {
		if a := r.ask(t, "GET", path, ""); a.json["status"] == status {
			return a
		}
	}
	t.Fatalf("%s is not %s in time", path, status)
	return answer{}
}

func TestPlainRequestFailsThreeTimesAndSucceeds(t *testing.T) {
	up := play(t, 503, 503, 503, 200)
	r := startREST(t, setup{}, true)
	accepted := r.ask(t, "POST", "/request", `{"url":"`+up.URL+`/x","method":"POST","body":"otp=1","backoffMs":1}`)
	id, _ := accepted.json["id"].(string)
	if accepted.code != 202 || id == "" || accepted.json["status"] != "pending" || accepted.json["maxRetries"] != 5.0 || accepted.json["backoffMs"] != 1.0 || accepted.json["method"] != "POST" {
		t.Fatalf("accepted: %d %s", accepted.code, accepted.text)
	}
	done := r.until(t, "/requests/"+id, "completed")
	attempts, _ := done.json["attempts"].([]any)
	if len(attempts) != 4 || attempts[3].(map[string]any)["status"] != 200.0 || attempts[0].(map[string]any)["number"] != 1.0 || done.json["possibleDuplicate"] != true {
		t.Errorf("done: %s", done.text)
	}
	if keys := up.keys(); len(keys) != 4 || keys[0] == "" || keys[3] != keys[0] {
		t.Errorf("keys %q", keys)
	}
	for _, path := range []string{"/requests", "/requests?status=completed"} {
		if list := r.ask(t, "GET", path, ""); list.code != 200 || !strings.Contains(list.text, id) {
			t.Errorf("%s: %d %s", path, list.code, list.text)
		}
	}
	for _, status := range []string{"pending", "retrying", "failed"} {
		if list := r.ask(t, "GET", "/requests?status="+status, ""); list.code != 200 || strings.Contains(list.text, id) || !strings.Contains(list.text, `"requests":[]`) {
			t.Errorf("%s: %d %s", status, list.code, list.text)
		}
	}
}

func TestPlainDeadLetters(t *testing.T) {
	r := startREST(t, setup{}, true)
	up := play(t, 503)
	exhausted := r.ask(t, "POST", "/request", `{"url":"`+up.URL+`","method":"GET","maxRetries":2,"backoffMs":1}`)
	if a := r.until(t, "/requests/"+exhausted.json["id"].(string), "failed"); len(a.json["attempts"].([]any)) != 3 || !strings.Contains(a.json["reason"].(string), "exhausted") {
		t.Errorf("exhausted: %s", a.text)
	}
	once := r.ask(t, "POST", "/request", `{"url":"`+up.URL+`","method":"POST","backoffMs":1,"atMostOnce":true}`)
	if a := r.until(t, "/requests/"+once.json["id"].(string), "failed"); len(a.json["attempts"].([]any)) != 1 || !strings.Contains(a.json["reason"].(string), "unknown") || a.json["atMostOnce"] != true {
		t.Errorf("at most once: %s", a.text)
	}
}

func TestPlainRefusesWithFieldAndReason(t *testing.T) {
	r := startREST(t, setup{}, true)
	for _, tt := range []struct{ body, field string }{
		{`{"method":"GET"}`, "url"},
		{`{"url":5,"method":"GET"}`, "url"},
		{`{"url":"not a url","method":"GET"}`, "url"},
		{`{"url":"ftp://127.0.0.1/","method":"GET"}`, "url"},
		{`{"url":"http://127.0.0.1:1/"}`, "method"},
		{`{"url":"http://127.0.0.1:1/","method":"G ET"}`, "method"},
		{`{"url":"http://127.0.0.1:1/","method":"POST","body":{"a":1}}`, "body"},
		{`{"url":"http://127.0.0.1:1/","method":"GET","maxRetries":-1}`, "maxRetries"},
		{`{"url":"http://127.0.0.1:1/","method":"GET","maxRetries":1.5}`, "maxRetries"},
		{`{"url":"http://127.0.0.1:1/","method":"GET","maxRetries":"5"}`, "maxRetries"},
		{`{"url":"http://127.0.0.1:1/","method":"GET","maxRetries":1001}`, "maxRetries"},
		{`{"url":"http://127.0.0.1:1/","method":"GET","backoffMs":-5}`, "backoffMs"},
		{`{"url":"http://127.0.0.1:1/","method":"GET","backoffMs":0}`, "backoffMs"},
		{`{"url":"http://127.0.0.1:1/","method":"GET","backoffMs":1e99}`, "backoffMs"},
		{`{"url":"http://127.0.0.1:1/","method":"GET","atMostOnce":1}`, "atMostOnce"},
		{`{"url":"http://127.0.0.1:1/","method":"GET","retries":3}`, "retries"},
		{`[]`, "body"},
		{`null`, "body"},
		{`{`, "body"},
		{`{} {}`, "body"},
		{"{\"url\":\"\xff\"}", "body"},
	} {
		if a := r.ask(t, "POST", "/request", tt.body); a.code != 400 || a.json["field"] != tt.field || a.json["reason"] == "" || !strings.Contains(a.json["error"].(string), tt.field) {
			t.Errorf("%s: %d %s", tt.body, a.code, a.text)
		}
	}
	for path, code := range map[string]int{
		"/requests?status=bogus": 400, "/requests?status=": 200, "/requests?stat=failed": 400, "/requests/none": 404, "/requests/": 404, "/requests/a/b": 404, "/request": 405,
	} {
		if a := r.ask(t, "GET", path, ""); a.code != code {
			t.Errorf("%s: %d %s, want %d", path, a.code, a.text, code)
		}
	}
	if a := r.ask(t, "GET", "/requests?stat=failed", ""); a.json["field"] != "stat" || a.json["reason"] == nil {
		t.Errorf("a parameter that is none: %s", a.text)
	}
	if a := r.ask(t, "POST", "/request", `{} {}`); !strings.Contains(a.text, "after") {
		t.Errorf("two objects: %s", a.text)
	}
	if a := r.ask(t, "GET", "/requests", ""); a.text != "{\"requests\":[]}\n" {
		t.Errorf("kept all the same: %s", a.text)
	}
	valid := `{"url":"http://127.0.0.1:1/","method":"GET","body":"1"}`
	key := []string{"Idempotency-Key", "k"}
	first, again := r.ask(t, "POST", "/request", valid, key...), r.ask(t, "POST", "/request", valid, key...)
	if first.code != 202 || again.code != 202 || first.json["id"] != again.json["id"] {
		t.Errorf("twice under one key: %d %s, %d %s", first.code, first.text, again.code, again.text)
	}
	if a := r.ask(t, "POST", "/request", strings.Replace(valid, `"1"`, `"2"`, 1), key...); a.code != 409 {
		t.Errorf("another payload under that key: %d %s", a.code, a.text)
	}
}

func TestRESTIsTheServiceInJSON(t *testing.T) {
	up := play(t, 200)
	once := policy.Rule{Name: "policies/once", Revision: 1, File: true}
	once.Match.PathPrefix = "/once"
	once.Deferred.AtLeastOnce = new(false)
	r := startREST(t, setup{rules: []policy.Rule{once}}, true)
	a := r.ask(t, "POST", "/v1/deferredCalls", `{"call":{"request":{"method":"GET","url":"`+up.URL+`"}},"maxRetries":1,"backoff":"0.001s"}`)
	d, _ := a.json["deferredCall"].(map[string]any)
	name, _ := d["name"].(string)
	if a.code != 200 || !strings.HasPrefix(name, "deferredCalls/") || d["state"] != "DEFERRED_STATE_PENDING" || a.header.Get("Content-Type") != "application/json" {
		t.Fatalf("%d %s", a.code, a.text)
	}
	finished(t, within(t), r.running, name)
	if a := r.ask(t, "GET", "/v1/"+name, ""); a.code != 200 || a.json["deferredCall"].(map[string]any)["state"] != "DEFERRED_STATE_COMPLETED" {
		t.Errorf("get: %d %s", a.code, a.text)
	}
	if a := r.ask(t, "GET", "/v1/deferredCalls?state=DEFERRED_STATE_COMPLETED&page_size=1", ""); a.code != 200 || !strings.Contains(a.text, name) {
		t.Errorf("list: %d %s", a.code, a.text)
	}
	for _, tt := range []struct {
		method, path, body string
		code               int
		has                string
	}{
		{"POST", "/v1/deferredCalls", `{"call":{"request":{"method":"GET","url":"x"}}}`, 400, `"field":"call.request.url"`},
		{"POST", "/v1/deferredCalls", `{"cal":{}}`, 400, `"field":"cal"`},
		{"POST", "/v1/deferredCalls", `{"maxRetries":-1}`, 400, `"field":"maxRetries"`},
		{"POST", "/v1/deferredCalls", `{`, 400, `INVALID_REQUEST`},
		{"POST", "/v1/deferredCalls", `{"call":{"request":{"method":"GET","url":"` + up.URL + `"}}} {"maxRetries":1}`, 400, `"field":"body"`},
		{"POST", "/v1/deferredCalls", `{"call":{"request":{"method":"GET","url":"` + up.URL + `"}}}}`, 400, `"field":"body"`},
		{"POST", "/v1/deferredCalls", `{"call":{"request":{"method":"GET","url":"` + up.URL + `/once"}},"delivery":"DELIVERY_MODE_AT_LEAST_ONCE"}`, 400, "WRONG_STATE"},
		{"POST", "/v1/" + name + ":cancel", `{}`, 400, "WRONG_STATE"},
		{"POST", "/v1/deferredCalls:redrive", `{}`, 400, `"field":"names"`},
		{"POST", "/v1/deferredCalls:purge", `{"names":["` + name + `"]}`, 200, `"count":"1"`},
		{"GET", "/v1/" + name, "", 404, "NOT_FOUND"},
		{"GET", "/v1/deferredCalls?state=NONE", "", 400, `"field":"state"`},
		{"GET", "/v1/deferredCalls?stat=DEFERRED_STATE_FAILED", "", 400, `"field":"stat"`},
		{"GET", "/v1/deferredCalls?pageSize=-1", "", 400, `"field":"page_size"`},
		{"GET", "/v1/other", "", 404, "openapi.json"},
		{"DELETE", "/v1/deferredCalls", "{}", 405, "method"},
		{"GET", "/openapi.json", "", 200, `"/v1/deferredCalls"`},
	} {
		a := r.ask(t, tt.method, tt.path, tt.body)
		if a.code != tt.code || !strings.Contains(strings.ReplaceAll(a.text, `": `, `":`), tt.has) {
			t.Errorf("%s %s %s: %d %s", tt.method, tt.path, tt.body, a.code, a.text)
		}
	}
}

func TestPagesOfOtherSitesDoNothingOverREST(t *testing.T) {
	r := startREST(t, setup{}, true)
	valid := `{"url":"http://127.0.0.1:1/","method":"GET"}`
	for _, tt := range []struct {
		name   string
		code   int
		fields []string
	}{
		{"a form", 415, []string{"Content-Type", "text/plain"}},
		{"another site", 403, []string{"Sec-Fetch-Site", "cross-site"}},
		{"another origin", 403, []string{"Origin", "https://example.com"}},
		{"a name that was made to lead here", 421, []string{"Host", "example.com"}},
		{"this machine", 202, []string{"Host", "localhost:7480"}},
		{"an address of it", 202, []string{"Host", "[::1]:7480"}},
	} {
		for _, path := range []string{"/request", "/v1/deferredCalls:purge"} {
			a := r.ask(t, "POST", path, valid, tt.fields...)
			if want := tt.code; path == "/request" && a.code != want || want != 202 && a.code != want {
				t.Errorf("%s %s: %d %s", tt.name, path, a.code, a.text)
			}
		}
	}
	if a := r.ask(t, "GET", "/requests", "", "Host", "example.com"); a.code != 421 {
		t.Errorf("reading under another name: %d %s", a.code, a.text)
	}
	if a := r.ask(t, "POST", "/request", strings.Repeat(" ", maxRESTBody+1)); a.code != 413 {
		t.Errorf("too large: %d %s", a.code, a.text)
	}
}

func TestIdentityOverRESTIsTheTokenAlone(t *testing.T) {
	up := play(t, 200)
	r := startREST(t, setup{identities: known(map[string][]Role{"ann": {RoleCaller}, "ben": {RoleCaller}, "vic": {RoleViewer}})}, false)
	body := `{"url":"` + up.URL + `","method":"GET"}`
	accepted := r.ask(t, "POST", "/request", body, "Authorization", "Bearer ann")
	if accepted.code != 202 {
		t.Fatalf("%d %s", accepted.code, accepted.text)
	}
	id, _ := accepted.json["id"].(string)
	for _, tt := range []struct {
		token string
		code  int
	}{{"", 401}, {"Bearer wrong", 401}, {"Bearer vic", 403}, {"Bearer ben", 404}, {"Bearer ann", 200}} {
		fields := []string{}
		if tt.token != "" {
			fields = []string{"Authorization", tt.token}
		}
		for _, path := range []string{"/requests/" + id, "/v1/deferredCalls/" + id} {
			if a := r.ask(t, "GET", path, "", fields...); a.code != tt.code {
				t.Errorf("%s with %q: %d %s", path, tt.token, a.code, a.text)
			}
		}
	}
	if a := r.ask(t, "GET", "/requests", "", "Authorization", "Bearer ben"); a.text != "{\"requests\":[]}\n" {
		t.Errorf("another's list: %s", a.text)
	}
	if a := r.ask(t, "GET", "/requests", "", "Grpc-Metadata-Authorization", "Bearer ann"); a.code != 401 {
		t.Errorf("a token by another name: %d %s", a.code, a.text)
	}
	if a := r.ask(t, "POST", "/request", strings.Repeat(" ", smallRESTBody+1)); a.code != 401 {
		t.Errorf("a large body of a stranger: %d %s", a.code, a.text)
	}
}

func TestWatchOverRESTSaysEveryChangeAtOnce(t *testing.T) {
	up := play(t, 200)
	r := startREST(t, setup{}, true)
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	first := submit(t, ctx, r.running, submission(up.URL, "GET")).GetName()
	finished(t, ctx, r.running, first)
	// From the first position on, so that nothing is missed however late the watch begins.
	req, err := http.NewRequestWithContext(ctx, "POST", r.url+watchPath, strings.NewReader(`{"resumeToken":"`+pageToken("1")+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Client{}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	if !lines.Scan() || resp.StatusCode != 200 || !strings.Contains(lines.Text(), first) || !strings.Contains(lines.Text(), `"resumeToken"`) {
		t.Errorf("%d %s", resp.StatusCode, lines.Text())
	}
}
