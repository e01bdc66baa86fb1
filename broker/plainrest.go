package broker

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// plainPaths serves the paths of a plain retry service, for those who come from one: what it keeps is delivered at least once, unless it is
// asked for at most once.
type plainPaths struct {
	client pb.DeferredServiceClient
}

func newPlain(client pb.DeferredServiceClient) *plainPaths { return &plainPaths{client} }

// isPlain reports whether a path is one of these.
func isPlain(path string) bool {
	return path == "/request" || path == "/requests" || strings.HasPrefix(path, "/requests/")
}

// mostPlain is how many a list gives, the newest.
const mostPlain = 1000

// ServeHTTP is of a request whose body was read, and whose parameters are known.
func (p *plainPaths) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx := forwarded(r)
	method := http.MethodGet
	if r.URL.Path == "/request" {
		method = http.MethodPost
	}
	if r.Method != method && (r.Method != http.MethodHead || method != http.MethodGet) {
		w.Header().Set("Allow", method)
		writePlainError(w, http.StatusMethodNotAllowed, "", "this path takes "+method)
		return
	}
	switch {
	case method == http.MethodPost:
		p.submit(ctx, w, r) //nolint:contextcheck // forwarded is of the request's own, here and below
	case r.URL.Path == "/requests":
		p.list(ctx, w, r) //nolint:contextcheck // see above
	default:
		p.get(ctx, w, strings.TrimPrefix(r.URL.Path, "/requests/")) //nolint:contextcheck // see above
	}
}

// forwarded is the context of an RPC in the name of whoever asks.
func forwarded(r *http.Request) context.Context {
	md := metadata.MD{}
	for name, values := range r.Header {
		if passed, ok := traceHeaders(name); ok {
			md.Set(passed, values...)
		}
	}
	if values := r.Header.Values("Authorization"); len(values) > 0 {
		md.Set("authorization", values...)
	}
	return metadata.NewOutgoingContext(r.Context(), md)
}

func (p *plainPaths) submit(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	req, field, problem := readPlain(r)
	if problem != "" {
		writePlainError(w, http.StatusBadRequest, field, problem)
		return
	}
	resp, err := p.client.SubmitDeferredCall(ctx, req)
	if err != nil {
		writePlainStatus(w, err)
		return
	}
	writePlain(w, http.StatusAccepted, plainOf(resp.GetDeferredCall()))
}

func (p *plainPaths) get(ctx context.Context, w http.ResponseWriter, id string) {
	if _, problem := deferredID(deferredPrefix + id); problem != "" {
		writePlainError(w, http.StatusNotFound, "id", "no request has that id")
		return
	}
	resp, err := p.client.GetDeferredCall(ctx, &pb.GetDeferredCallRequest{Name: deferredPrefix + id})
	if err != nil {
		writePlainStatus(w, err)
		return
	}
	writePlain(w, http.StatusOK, plainOf(resp.GetDeferredCall()))
}

// list gives the newest of one state, or of all.
func (p *plainPaths) list(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	asked := r.URL.Query()["status"]
	if len(asked) > 1 {
		writePlainError(w, http.StatusBadRequest, "status", "is given more than once")
		return
	}
	status := plainStatus("")
	if len(asked) == 1 {
		status = plainStatus(asked[0])
	}
	states, ok := status.states()
	if !ok {
		writePlainError(w, http.StatusBadRequest, "status", "is none of pending, retrying, completed, failed")
		return
	}
	all := []*pb.DeferredCall{}
	for _, state := range states {
		some, err := p.ofState(ctx, state, status)
		if err != nil {
			writePlainStatus(w, err)
			return
		}
		all = append(all, some...)
	}
	slices.SortStableFunc(all, func(a, b *pb.DeferredCall) int {
		if c := b.GetCreateTime().AsTime().Compare(a.GetCreateTime().AsTime()); c != 0 {
			return c
		}
		return cmp.Compare(b.GetName(), a.GetName())
	})
	list := plainList{Requests: []plainRequest{}}
	for _, d := range all[:min(len(all), mostPlain)] {
		list.Requests = append(list.Requests, plainOf(d))
	}
	writePlain(w, http.StatusOK, list)
}

// ofState gives the newest in a state that show as that status.
func (p *plainPaths) ofState(ctx context.Context, state pb.DeferredState, status plainStatus) (all []*pb.DeferredCall, err error) {
	req := &pb.ListDeferredCallsRequest{State: state, PageSize: maxPage}
	for {
		resp, err := p.client.ListDeferredCalls(ctx, req)
		if err != nil {
			return nil, err
		}
		for _, d := range resp.GetDeferredCalls() {
			if status == "" || plainStatusOf(d) == status {
				all = append(all, d)
			}
		}
		req.PageToken = resp.GetNextPageToken()
		if req.GetPageToken() == "" || len(all) >= mostPlain {
			return all, nil
		}
	}
}

// plainError is an error of the plain paths.
type plainError struct {
	Error  string `json:"error"`
	Field  string `json:"field,omitempty"`
	Reason string `json:"reason"`
}

func writePlainError(w http.ResponseWriter, code int, field, reason string) {
	e := plainError{Error: reason, Field: field, Reason: reason}
	if field != "" {
		e.Error = field + ": " + reason
	}
	writePlain(w, code, e)
}

// writePlainStatus writes the error of an RPC with the names of these paths.
func writePlainStatus(w http.ResponseWriter, err error) {
	st := statusOf(err)
	code := runtime.HTTPStatusFromCode(st.Code())
	if st.Code() == codes.Unauthenticated {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	for _, detail := range st.Details() {
		switch detail := detail.(type) {
		case *errdetails.RetryInfo:
			w.Header().Set("Retry-After", "1")
		case *errdetails.BadRequest:
			if v := detail.GetFieldViolations(); len(v) > 0 {
				writePlainError(w, code, plainField(v[0].GetField()), v[0].GetDescription())
				return
			}
		}
	}
	writePlainError(w, code, "", st.Message())
}

func plainField(field string) string {
	switch {
	case field == "call.request.url":
		return "url"
	case field == "call.request.method":
		return "method"
	case field == "call.request.body":
		return "body"
	case field == "call.operation_id":
		return idempotencyKey
	case field == "max_retries":
		return "maxRetries"
	case field == "backoff":
		return "backoffMs"
	}
	return field
}

func writePlain(w http.ResponseWriter, code int, answer any) {
	body, err := json.Marshal(answer)
	if err != nil { // texts and numbers
		code, body = http.StatusInternalServerError, []byte(`{"error":"the answer could not be encoded","reason":"internal"}`)
	}
	writeJSON(w, code, body)
}
