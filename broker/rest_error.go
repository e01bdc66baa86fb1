package broker

import (
	"encoding/json"
	"math"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
)

func statusOf(err error) *status.Status { return status.Convert(err) }

// inField finds the field that protojson and the gateway speak of.
var inField = regexp.MustCompile(`(?:field|parameter:) "?([A-Za-z_][A-Za-z0-9_.]*)"?`)

// fieldIn gives it, and what is wrong; the body as a whole where no field is named.
func fieldIn(message string) (field, problem string) {
	problem = strings.TrimPrefix(message, "proto: ")
	if m := inField.FindStringSubmatch(message); m != nil {
		return m[1], problem
	}
	return "body", problem
}

// writeError writes an error of the broker: google.rpc.Status in JSON, with its details.
func writeError(w http.ResponseWriter, err error) {
	st := statusOf(err)
	for _, detail := range st.Details() {
		if again, ok := detail.(*errdetails.RetryInfo); ok {
			w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(again.GetRetryDelay().AsDuration().Seconds()))))
		}
	}
	if st.Code() == codes.Unauthenticated {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	body, err := protojson.Marshal(st.Proto())
	if err != nil {
		body, _ = json.Marshal(map[string]any{"code": st.Code(), "message": st.Message()}) //nolint:errchkjson // a number and a text
	}
	writeJSON(w, runtime.HTTPStatusFromCode(st.Code()), body)
}

// writeRefusal writes an error that is of HTTP and of no RPC, in the same form.
func writeRefusal(w http.ResponseWriter, code int, message string) {
	rpc := codes.InvalidArgument
	switch code {
	case http.StatusNotFound:
		rpc = codes.NotFound
	case http.StatusForbidden:
		rpc = codes.PermissionDenied
	case http.StatusServiceUnavailable:
		rpc = codes.Unavailable
	case http.StatusInternalServerError:
		rpc = codes.Internal
	case http.StatusMethodNotAllowed:
		rpc = codes.Unimplemented
	}
	body, _ := json.Marshal(map[string]any{"code": rpc, "message": message, "details": []any{}}) //nolint:errchkjson // a number and a text
	writeJSON(w, code, body)
}

func writeJSON(w http.ResponseWriter, code int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n')) // whoever asked has gone: nothing to do
}

// ownHost: localhost, or an address of loopback.
func ownHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}
