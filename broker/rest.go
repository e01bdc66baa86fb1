package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/sallyport/sallyport/gen"
	gateway "github.com/sallyport/sallyport/gen/gateway/sallyport/v1"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// The limits of REST. A body stands in JSON, where bytes are a third longer.
const (
	maxRESTBody = 8 << 20
	// smallRESTBody may be read by whoever asks. Larger ones are read of so many at once, and of those who are known.
	smallRESTBody  = 64 << 10
	largeRESTAtAll = 16
	// maxRESTWatches is far below the number of connections: who asks for the health is to be heard.
	maxRESTWatches = 64
	// restTimeout is for one question; restWatchWrite for one change of a watch to leave.
	restTimeout    = 9 * time.Second
	restWatchWrite = 10 * time.Second
)

// RESTConfig is what REST stands on.
type RESTConfig struct {
	// Client is a connection of [Inside]: what comes over REST is judged like any RPC. It bears the Authorization of whoever asks and no right
	// of the broker's own.
	Client *grpc.ClientConn
	// Known reports whether somebody with those values of Authorization may be anybody, before much is read of him.
	Known func(authorization []string) bool
	// Plain serves the paths of a plain retry service too: /request and /requests.
	Plain bool
	// OwnHosts has requests refused whose Host is no name of this machine: a page of another site could have its name lead here.
	OwnHosts bool
}

// rest serves DeferredService over HTTP.
type rest struct {
	cfg     RESTConfig
	gateway http.Handler
	plain   http.Handler
	cross   *http.CrossOriginProtection
	large   chan struct{} // holds a value for each large body in hand
	watches chan struct{} // holds a value for each watch
}

// NewREST serves DeferredService over HTTP, under the paths of which [IsREST] says so.
func NewREST(cfg RESTConfig) (http.Handler, error) {
	mux := runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, &runtime.JSONPb{MarshalOptions: protojson.MarshalOptions{EmitDefaultValues: true}}),
		runtime.WithIncomingHeaderMatcher(traceHeaders), // Authorization is passed on in any case
		runtime.WithOutgoingHeaderMatcher(func(string) (string, bool) { return "", false }),
		runtime.WithErrorHandler(func(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, _ *http.Request, err error) {
			writeError(w, fromGateway(err))
		}),
		runtime.WithRoutingErrorHandler(func(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, _ *http.Request, code int) {
			writeRefusal(w, code, noPath(code))
		}),
		runtime.WithDisablePathLengthFallback(),
	)
	// It makes a client and asks nothing yet.
	if err := gateway.RegisterDeferredServiceHandler(context.Background(), mux, cfg.Client); err != nil {
		return nil, fmt.Errorf("REST: %w", err)
	}
	return &rest{
		cfg: cfg, gateway: mux, plain: newPlain(pb.NewDeferredServiceClient(cfg.Client)), cross: http.NewCrossOriginProtection(),
		large: make(chan struct{}, largeRESTAtAll), watches: make(chan struct{}, maxRESTWatches),
	}, nil
}

// IsREST reports whether a path is one of REST.
func IsREST(path string) bool {
	return path == openAPIPath || strings.HasPrefix(path, "/v1/") || isPlain(path)
}

const (
	openAPIPath = "/openapi.json"
	watchPath   = "/v1/deferredCalls:watch"
)

// traceHeaders are what is passed on beside Authorization.
func traceHeaders(name string) (string, bool) {
	switch lower := strings.ToLower(name); lower {
	case "traceparent", "tracestate":
		return lower, true
	}
	return "", false
}

// ServeHTTP judges what is of HTTP, and hands on what is of the service.
func (s *rest) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	if s.cfg.OwnHosts && !ownHost(r.Host) {
		writeRefusal(w, http.StatusMisdirectedRequest, "the Host of the request is no name of this machine; use localhost or an address of loopback")
		return
	}
	if err := s.cross.Check(r); err != nil {
		writeRefusal(w, http.StatusForbidden, "a page of another site may not do this")
		return
	}
	switch {
	case r.URL.Path == openAPIPath:
		serveOpenAPI(w, r)
	case !isPlain(r.URL.Path):
		s.serve(w, r, s.gateway)
	case s.cfg.Plain:
		s.serve(w, r, s.plain)
	default:
		writeRefusal(w, http.StatusNotFound, "the plain paths are served on loopback only, or with --plain-rest; use /v1/deferredCalls")
	}
}

func serveOpenAPI(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		writeRefusal(w, http.StatusMethodNotAllowed, noPath(http.StatusMethodNotAllowed))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(gen.OpenAPI) // whoever asked has gone: nothing to do
}

// serve hands a request on with its body read.
func (s *rest) serve(w http.ResponseWriter, r *http.Request, to http.Handler) {
	writeProblem := writeError
	if isPlain(r.URL.Path) {
		writeProblem = writePlainStatus
	}
	if err := unknownQuery(r); err != nil {
		writeProblem(w, err)
		return
	}
	body, leave, ok := s.body(w, r)
	if !ok {
		return
	}
	defer leave()
	if moreThanOne(body) {
		d := decoder{}
		d.add("body", "has something after the JSON object")
		writeProblem(w, invalid(d.violations))
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if r.URL.Path == watchPath {
		s.watch(w, r, to)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), restTimeout)
	defer cancel()
	to.ServeHTTP(w, r.WithContext(ctx))
}

// body reads the body of a request. One that has any must be JSON: that no page of another site can send without being asked first.
func (s *rest) body(w http.ResponseWriter, r *http.Request) (body []byte, leave func(), ok bool) {
	leave = func() {}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return nil, leave, true
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		writeRefusal(w, http.StatusUnsupportedMediaType, "the body is to be JSON, and to say so: Content-Type: application/json")
		return nil, nil, false
	}
	if r.ContentLength < 0 || r.ContentLength > smallRESTBody {
		if !s.cfg.Known(r.Header.Values("Authorization")) {
			writeError(w, unauthenticated())
			return nil, nil, false
		}
		select {
		case s.large <- struct{}{}:
		default:
			w.Header().Set("Retry-After", "1")
			writeRefusal(w, http.StatusServiceUnavailable, "many large requests are in hand; ask again later")
			return nil, nil, false
		}
		leave = func() { <-s.large }
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRESTBody))
	if err == nil {
		return body, leave, true
	}
	leave()
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		writeRefusal(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is larger than %d MiB; use gRPC for larger ones", maxRESTBody>>20))
		return nil, nil, false
	}
	writeRefusal(w, http.StatusBadRequest, "the body ended too early")
	return nil, nil, false
}

// moreThanOne reports that something follows the JSON: the gateway would read the first value and leave the rest, which whoever asks takes for
// read. What is no JSON at all is found by those who read it.
func moreThanOne(body []byte) bool {
	return !json.Valid(body) && json.NewDecoder(bytes.NewReader(body)).Decode(new(json.RawMessage)) == nil
}

// watch serves a stream that lasts as long as whoever asked takes what it says.
func (s *rest) watch(w http.ResponseWriter, r *http.Request, to http.Handler) {
	select {
	case s.watches <- struct{}{}:
	default:
		w.Header().Set("Retry-After", "1")
		writeRefusal(w, http.StatusServiceUnavailable, "many watch already; ask again later, or over gRPC")
		return
	}
	defer func() { <-s.watches }()
	control := http.NewResponseController(w)
	if err := errors.Join(control.SetReadDeadline(time.Time{}), control.SetWriteDeadline(time.Time{})); err != nil {
		writeRefusal(w, http.StatusInternalServerError, "a watch cannot be served here")
		return
	}
	to.ServeHTTP(&watchWriter{w, control}, r)
}

// watchWriter gives every piece its own time to leave.
type watchWriter struct {
	http.ResponseWriter
	control *http.ResponseController
}

// Write writes a piece.
func (w *watchWriter) Write(p []byte) (int, error) {
	if err := w.control.SetWriteDeadline(time.Now().Add(restWatchWrite)); err != nil {
		return 0, err //nolint:wrapcheck // the gateway ends the stream with it
	}
	return w.ResponseWriter.Write(p) //nolint:wrapcheck // as above
}

// FlushError sends what was written, and takes the time off again until there is more.
func (w *watchWriter) FlushError() error {
	return errors.Join(w.control.Flush(), w.control.SetWriteDeadline(time.Time{}))
}

// noPath says what is wrong with a method or a path.
func noPath(code int) string {
	switch code {
	case http.StatusMethodNotAllowed:
		return "this path does not take that method"
	case http.StatusNotFound:
		return "there is nothing under this path; see " + openAPIPath
	}
	return strings.ToLower(http.StatusText(code))
}

// unknownQuery refuses parameters that nobody reads: a filter that is spelled wrong would pick everything.
func unknownQuery(r *http.Request) error {
	query := r.URL.Query()
	d := decoder{}
	for name := range query {
		if !takesQuery(r.URL.Path, name) {
			d.add(name, "no parameter of this path")
		}
	}
	return invalid(d.violations)
}

func takesQuery(path, name string) bool {
	switch path {
	case "/requests":
		return name == "status"
	case "/v1/deferredCalls":
		if strings.HasPrefix(name, "labels[") && strings.HasSuffix(name, "]") {
			return true
		}
		fields := (*pb.ListDeferredCallsRequest)(nil).ProtoReflect().Descriptor().Fields()
		return fields.ByTextName(name) != nil || fields.ByJSONName(name) != nil
	}
	return false
}

// fromGateway gives an error that the gateway made itself the form of ours.
func fromGateway(err error) error {
	if _, ours := ownReason(err); ours {
		return err
	}
	st := statusOf(err)
	if st.Code() != codes.InvalidArgument {
		return err
	}
	d := decoder{}
	field, problem := fieldIn(strings.ReplaceAll(st.Message(), "\u00a0", " ")) // protojson has both kinds of blanks, at random
	d.add(field, problem)
	return invalid(d.violations)
}
