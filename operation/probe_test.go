package operation_test

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/operation"
)

// among tells whether a status is one of these.
func among(statuses ...int) func(int) bool {
	return func(status int) bool { return slices.Contains(statuses, status) }
}

func TestProbeIsJudged(t *testing.T) {
	byStatus := operation.Probe{Applied: among(200, 300, 400), NotApplied: among(404, 300, 500), InProgress: among(202, 400, 500)}
	byValue := operation.Probe{
		Applied: among(200), NotApplied: among(200, 404), InProgress: among(200, 202), Pointer: "/state",
		AppliedValues: []string{"done", "both", "7", "true"}, NotAppliedValues: []string{"none", "both"},
	}
	for _, tt := range []struct {
		name   string
		probe  *operation.Probe
		status int // 0: no answer
		body   string
		want   operation.Verdict
	}{
		{"applied", &byStatus, 200, "", operation.VerdictApplied},
		{"not applied", &byStatus, 404, "", operation.VerdictNotApplied},
		{"in progress", &byStatus, 202, "", operation.VerdictInProgress},
		{"in no list", &byStatus, 503, "", operation.VerdictNothing},
		{"no answer", &byStatus, 0, "", operation.VerdictNothing},
		{"applied and not", &byStatus, 300, "", operation.VerdictNothing},
		{"applied and in progress", &byStatus, 400, "", operation.VerdictNothing},
		{"not applied and in progress", &byStatus, 500, "", operation.VerdictNothing},
		{"value: applied", &byValue, 200, `{"state":"done"}`, operation.VerdictApplied},
		{"value: a number", &byValue, 200, `{"state":7}`, operation.VerdictApplied},
		{"value: a number as it is written", &byValue, 200, `{"state":7.0}`, operation.VerdictInProgress},
		{"value: a boolean", &byValue, 200, `{"state":true}`, operation.VerdictApplied},
		{"value: not applied", &byValue, 200, `{"state":"none"}`, operation.VerdictNotApplied},
		{"value: neither, and the status is also that of progress", &byValue, 200, `{"state":"pending"}`, operation.VerdictInProgress},
		{"value: both", &byValue, 200, `{"state":"both"}`, operation.VerdictNothing},
		{"value: of the other list's status", &byValue, 404, `{"state":"done"}`, operation.VerdictNothing},
		{"value: none at a status that alone would do", &byValue, 404, ``, operation.VerdictNothing},
		{"value: no such", &byValue, 404, `{"other":"none"}`, operation.VerdictNothing},
		{"value: an object", &byValue, 404, `{"state":{"none":"none"}}`, operation.VerdictNothing},
		{"value: cut off", &byValue, 404, `{"state":"none"`, operation.VerdictNothing},
		{"value: and more", &byValue, 404, `{"state":"none"}{"state":"done"}`, operation.VerdictNothing},
		{"progress needs no value", &byValue, 202, ``, operation.VerdictInProgress},
	} {
		var r *call.Response
		if tt.status != 0 {
			r = &call.Response{Status: tt.status, Body: []byte(tt.body)}
		}
		if got := tt.probe.Judge(r); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestJSONPointers has the examples of RFC 6901 §5 that are no objects, and what goes wrong.
func TestJSONPointers(t *testing.T) {
	const document = `{"foo":["bar","baz"],"":0,"a/b":1,"c%d":2,"e^f":3,"g|h":4,"i\\j":5,"k\"l":6," ":7,"m~n":8,
		"deep":{"er":[{"x":"y"}]},"~1":"tilde one","big":12345678901234567890.50,"exp":1E+2,"neg":-0,"t":true,"f":false,"null":null,"é":"ü"}`
	for _, tt := range []struct{ pointer, want, problem string }{
		{"/foo/0", "bar", ""},
		{"/", "0", ""},
		{"/a~1b", "1", ""},
		{"/c%d", "2", ""},
		{"/e^f", "3", ""},
		{"/g|h", "4", ""},
		{`/i\j`, "5", ""},
		{`/k"l`, "6", ""},
		{"/ ", "7", ""},
		{"/m~0n", "8", ""},
		{"/~01", "tilde one", ""},
		{"/deep/er/0/x", "y", ""},
		{"/big", "12345678901234567890.50", ""},
		{"/exp", "1E+2", ""},
		{"/neg", "-0", ""},
		{"/t", "true", ""},
		{"/f", "false", ""},
		{"/null", "null", ""},
		{"/é", "ü", ""},
		{"", "", "object or an array"},
		{"/foo", "", "object or an array"},
		{"/deep", "", "object or an array"},
		{"/foo/2", "", "no such value"},
		{"/foo/-", "", "no such value"},
		{"/foo/-1", "", "no such value"},
		{"/foo/+1", "", "no such value"},
		{"/foo/01", "", "no such value"},
		{"/foo/0/bar", "", "no such value"},
		{"/foo/", "", "no such value"},
		{"/nothing", "", "no such value"},
		{"/null/x", "", "no such value"},
		{"foo", "", "begins with /"},
	} {
		got, err := operation.ValueAt([]byte(document), tt.pointer)
		if got != tt.want || (err != nil) != (tt.problem != "") || err != nil && !strings.Contains(err.Error(), tt.problem) {
			t.Errorf("%q: %q, %v", tt.pointer, got, err)
		}
	}
	if got, err := operation.ValueAt([]byte(`"whole"`), ""); got != "whole" || err != nil {
		t.Errorf("the whole: %q, %v", got, err)
	}
	for _, document := range []string{"", "{", "nonsense", `{"a":1} {"a":2}`, `{"a":1}x`, strings.Repeat(" ", 1<<20) + "1", strings.Repeat("[", 1<<17)} {
		if got, err := operation.ValueAt([]byte(document), "/a"); err == nil {
			t.Errorf("%.20q: %q", document, got)
		}
	}
}

func TestTemplatesAreFilledIn(t *testing.T) {
	const body = `{"ref":"r 7/ü","amount":1.50,"list":[{"id":"x&y=z"}],"empty":"","null":null,"name":"null","ok":true,"dots":".."}`
	for _, tt := range []struct{ template, id, want, problem string }{
		{"/payments/{operation_id}", "order-1", "/payments/order-1", ""},
		{"/payments/{operation_id}", "a/b?c#d%e+f g&h=i;j:k@l", "/payments/a%2Fb%3Fc%23d%25e%2Bf%20g%26h%3Di%3Bj%3Ak%40l", ""},
		{"/payments/{operation_id}", "A-Z_a.z~0", "/payments/A-Z_a.z~0", ""},
		{"/payments/{operation_id}", "{operation_id}", "/payments/%7Boperation_id%7D", ""},
		{"/p?id={operation_id}&ref={body:/ref}", "1", "/p?id=1&ref=r%207%2F%C3%BC", ""},
		{"{body:/list/0/id}{body:/amount}{body:/ok}{body:/name}", "1", "x%26y%3Dz1.50truenull", ""},
		{"/plain", "1", "/plain", ""},
		{"/p}", "1", "/p}", ""},
		{"", "1", "", ""},
		{"/{operation_id", "1", "", "without its }"},
		{"/{id}", "1", "", "neither"},
		{"/{}", "1", "", "neither"},
		{"/{body:/none}", "1", "", "no such value"},
		{"/{body:none}", "1", "", "begins with /"},
		{"/{body:/list}", "1", "", "object or an array"},
		{"/{body:/empty}", "1", "", "empty"}, // it would ask another question: /payments/ lists them all
		{"/{body:/null}", "1", "", "null"},
	} {
		got, err := operation.Fill(tt.template, tt.id, []byte(body))
		if got != tt.want || (err != nil) != (tt.problem != "") || err != nil && !strings.Contains(err.Error(), tt.problem) {
			t.Errorf("%q: %q, %v", tt.template, got, err)
		}
	}
	if got, err := operation.Fill("/{body:/ref}", "1", []byte("no JSON")); err == nil {
		t.Errorf("no JSON: %q", got)
	}
}

func FuzzFill(f *testing.F) {
	f.Add("/p/{operation_id}?r={body:/ref}", "id-1", []byte(`{"ref":"x"}`))
	f.Add("/{body:/a~1b/0}", "../../x", []byte(`{"a/b":["\u0000"]}`))
	f.Fuzz(func(t *testing.T, template, id string, body []byte) {
		got, err := operation.Fill(template, id, body)
		if err != nil {
			if got != "" {
				t.Errorf("%q beside %v", got, err)
			}
			return
		}
		// What is filled in adds none of the bytes that end a segment, a parameter or the path.
		for _, mark := range []string{"/", "?", "#", "&", "=", ";", " ", "\x00", "\n", "{"} {
			if strings.Count(got, mark) > strings.Count(template, mark) {
				t.Errorf("%q became %q with one %q more", template, got, mark)
			}
		}
		if again, err := operation.Fill(template, id, body); again != got || err != nil {
			t.Errorf("%q, then %q, %v", got, again, err)
		}
	})
}

func FuzzValueAt(f *testing.F) {
	f.Add([]byte(`{"a":[1,"x",null,true]}`), "/a/1")
	f.Add([]byte(`{"m~n":{"":-1e5}}`), "/m~0n/")
	f.Fuzz(func(t *testing.T, document []byte, pointer string) {
		got, err := operation.ValueAt(document, pointer)
		if err != nil {
			if got != "" {
				t.Errorf("%q beside %v", got, err)
			}
			return
		}
		if !utf8.ValidString(got) {
			t.Errorf("%q", got)
		}
		// The same value one level deeper is found by the same pointer behind its name.
		if len(document) < 1<<20-20 {
			wrapped := append(append([]byte(`{"~/":`), document...), '}')
			if again, err := operation.ValueAt(wrapped, "/~0~1"+pointer); again != got || err != nil {
				t.Errorf("%q, one level deeper %q, %v", got, again, err)
			}
		}
	})
}
