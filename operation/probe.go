package operation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sallyport/sallyport/call"
)

// Probe asks the upstream what became of an operation.
type Probe struct {
	// URL is the template, filled in by [Fill].
	URL string
	// Applied, NotApplied and InProgress tell whether a status is in the list of that name.
	Applied, NotApplied, InProgress func(status int) bool
	// Pointer is where in a JSON answer the value stands that must be in the list of the same name too; "": the status alone decides.
	Pointer string
	// AppliedValues and NotAppliedValues are those lists.
	AppliedValues, NotAppliedValues []string
	// Authoritative: a "not applied" can be relied on, once Settle has passed since the last byte was sent.
	Authoritative bool
	Settle        time.Duration
	// Ask makes the GET, by that instant; nil: there was no complete answer.
	Ask func(ctx context.Context, until time.Time) *call.Response
}

// Verdict is what one probe says.
type Verdict int32

// The verdicts, in the order of the wire.
const (
	VerdictNothing Verdict = iota + 1
	VerdictApplied
	VerdictNotApplied
	VerdictInProgress
)

// String is the wire's word.
func (v Verdict) String() string {
	switch v {
	case VerdictNothing:
		return "NOTHING"
	case VerdictApplied:
		return "APPLIED"
	case VerdictNotApplied:
		return "NOT_APPLIED"
	case VerdictInProgress:
		return "IN_PROGRESS"
	}
	return "UNSPECIFIED"
}

// Finding is one probe as it is remembered.
type Finding struct {
	Time    time.Time `json:"time"`
	Verdict Verdict   `json:"verdict"`
	// Status is the answer's, 0 without one.
	Status int `json:"status,omitempty"`
	// Counts: a "not applied" on which something may be built.
	Counts bool `json:"counts,omitempty"`
}

// judge reads an answer. A status in one list decides, with a pointer only together with a value in the list of the same name; what is in
// two lists decides nothing. Under a pointer a status of the list of progress may be in another one too: the value tells them apart.
func (p *Probe) judge(r *call.Response) Verdict {
	if r == nil {
		return VerdictNothing
	}
	applied := p.Applied(r.Status) && p.holds(r.Body, p.AppliedValues)
	notApplied := p.NotApplied(r.Status) && p.holds(r.Body, p.NotAppliedValues)
	inProgress := p.InProgress(r.Status) && (p.Pointer == "" || !applied && !notApplied)
	switch {
	case applied && notApplied, applied && inProgress, notApplied && inProgress:
		return VerdictNothing
	case applied:
		return VerdictApplied
	case notApplied:
		return VerdictNotApplied
	case inProgress:
		return VerdictInProgress
	}
	return VerdictNothing
}

// holds: the value at the pointer is one of these.
func (p *Probe) holds(body []byte, values []string) bool {
	if p.Pointer == "" {
		return true
	}
	v, err := valueAt(body, p.Pointer)
	return err == nil && slices.Contains(values, v)
}

// Fill fills in a template: {operation_id}, and {body:/json/pointer} for a value of a JSON request body, both percent-encoded so that they
// stay within their segment or parameter (RFC 3986 §2.3). A value that is empty or null is none: without it the URL would ask for something
// else, such as all payments.
func Fill(template, id string, body []byte) (string, error) {
	var out strings.Builder
	rest := template
	for {
		before, after, found := strings.Cut(rest, "{")
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		name, behind, closed := strings.Cut(after, "}")
		if !closed {
			return "", errors.New("a { without its }")
		}
		value := id
		if name != "operation_id" {
			pointer, ok := strings.CutPrefix(name, "body:")
			if !ok {
				return "", fmt.Errorf("{%s} is neither {operation_id} nor {body:/json/pointer}", name)
			}
			v, err := find(body, pointer)
			if err == nil && v == nil {
				err = errors.New("the value in the body is null")
			}
			if err == nil {
				value, err = textOf(v)
			}
			if err == nil && value == "" {
				err = errors.New("the value in the body is empty")
			}
			if err != nil {
				return "", fmt.Errorf("{%s}: %w", name, err)
			}
		}
		out.WriteString(strings.ReplaceAll(url.QueryEscape(value), "+", "%20"))
		rest = behind
	}
}

// mostJSON bounds what is read as JSON.
const mostJSON = 1 << 20

var errNoJSON = errors.New("the body is no JSON")

// valueAt is the text of a string, number, boolean or null in a JSON document (RFC 6901).
func valueAt(document []byte, pointer string) (string, error) {
	v, err := find(document, pointer)
	if err != nil {
		return "", err
	}
	return textOf(v)
}

// find is the value at the pointer.
func find(document []byte, pointer string) (any, error) {
	if len(document) > mostJSON {
		return nil, errors.New("the body is larger than 1 MiB")
	}
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber() // as it was written
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, errNoJSON
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) { // more than one value
		return nil, errNoJSON
	}
	if pointer != "" && pointer[0] != '/' {
		return nil, errors.New("a JSON pointer begins with /")
	}
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if pointer == "" {
			break
		}
		ok := false
		switch at := v.(type) {
		case map[string]any:
			v, ok = at[strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")]
		case []any:
			i, err := strconv.Atoi(token)
			if ok = err == nil && i >= 0 && i < len(at) && strconv.Itoa(i) == token; ok {
				v = at[i]
			}
		}
		if !ok {
			return nil, errors.New("there is no such value in the body")
		}
	}
	return v, nil
}

func textOf(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	case bool:
		return strconv.FormatBool(v), nil
	case nil:
		return "null", nil
	}
	return "", errors.New("the value in the body is an object or an array")
}
