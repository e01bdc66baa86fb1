package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/sallyport/sallyport/call"
	"github.com/sallyport/sallyport/egress/guard"
	"github.com/sallyport/sallyport/egress/h1"
	"github.com/sallyport/sallyport/policy"
)

// answered is the result of a complete answer.
func answered(cn *conn, answer *h1.Response) call.Result {
	return call.Result{
		Evidence:      call.EvidenceAnswered,
		Status:        answer.Status,
		Response:      response(answer),
		RemoteAddress: cn.raw.remote,
		Protocol:      protocolName,
		Reused:        cn.served,
	}
}

// response copies what the caller sees: fields that speak of the connection are the broker's own (RFC 9110 §7.6.1).
func response(answer *h1.Response) *call.Response {
	var hop call.HopByHop
	for i := range answer.Fields {
		if f := &answer.Fields[i]; call.SameField(f.Name, "Connection") {
			hop.Nominate(f.Value)
		}
	}
	return &call.Response{
		Status: answer.Status, Body: answer.Body, Protocol: protocolName,
		Headers:  endToEnd(&hop, answer.Fields),
		Trailers: endToEnd(&hop, answer.Trailers),
	}
}

func endToEnd(hop *call.HopByHop, fields []h1.Field) []call.Header {
	if len(fields) == 0 {
		return nil
	}
	kept := make([]call.Header, 0, len(fields))
	for i := range fields {
		if f := &fields[i]; !hop.Drops(f.Name) {
			kept = append(kept, call.Header{Name: f.Name, Value: f.Value})
		}
	}
	return kept
}

// failed is the result of an attempt that had a connection. What is proved comes from the bytes counted on it.
func (t *Transport) failed(ctx context.Context, cn *conn, a *call.Attempt, err error) call.Result {
	r := call.Result{
		Evidence:      call.EvidenceSentNoResponse,
		RemoteAddress: cn.raw.remote,
		Protocol:      protocolName,
		Reused:        cn.served,
	}
	switch {
	case cn.http.Written() == 0:
		r.Evidence = call.EvidenceNotSent
	case cn.answer.Begun:
		r.Evidence = call.EvidencePartialResponse
		r.Status = cn.answer.Status
	}
	r.Failure, r.Detail = exchangeFailure(err)
	if word, ok := alert(err); ok && !cn.served && !cn.answer.Begun {
		// In TLS 1.3 this may be a handshake that the server broke off. Nothing proves that, and the request was written.
		r.Failure, r.Detail = call.FailureTLS, "the server ended the TLS session before it answered: "+word
	}
	return timed(ctx, a, r)
}

func exchangeFailure(err error) (call.Failure, string) {
	if e, ok := errors.AsType[*h1.Error](err); ok {
		switch e.Kind {
		case h1.Malformed:
			return call.FailureProtocol, "the answer is malformed: " + e.Problem
		case h1.TooLarge:
			return call.FailureResponseTooLarge, "the answer is too large: " + e.Problem
		case h1.NotTaken:
			return call.FailureCancelled, "the caller did not take the answer"
		case h1.Refused:
			return call.FailureProtocol, "the request cannot be written: " + e.Problem
		}
	}
	if isTimeout(err) {
		return call.FailureAttemptTimeout, "no complete answer within the attempt's time"
	}
	return call.FailureConnectionLost, "the connection was lost before the answer was complete"
}

// notSent is the result of an attempt that found no connection.
func notSent(ctx context.Context, a *call.Attempt, r call.Result) call.Result {
	r.Evidence = call.EvidenceNotSent
	return timed(ctx, a, r)
}

// timed tells apart why an attempt was cut short: its own time was up, or the caller went away before that.
func timed(ctx context.Context, a *call.Attempt, r call.Result) call.Result {
	switch late := !time.Now().Before(a.Deadline) || errors.Is(context.Cause(ctx), call.ErrTimeUp); {
	case late && r.Failure == call.FailureConnectionLost && ctx.Err() != nil:
		r.Failure, r.TimedOut = call.FailureAttemptTimeout, true
	case late:
		r.TimedOut = r.Failure != call.FailureProtocol && r.Failure != call.FailureResponseTooLarge && r.Failure != call.FailureDenied && !r.Terminal
	case ctx.Err() != nil:
		r.Failure, r.Detail, r.Terminal = call.FailureCancelled, "the call was cancelled during the attempt", false
	}
	return r
}

// denied tells the caller nothing that would make an oracle of addresses; the operator reads the rule in the log.
func denied(err error) call.Result {
	r := call.Result{Failure: call.FailureDenied, Detail: "egress rules forbid this destination", Note: guard.Explain(err)}
	if e, ok := errors.AsType[*guard.DeniedError](err); ok {
		r.Detail = e.Error()
	}
	return r
}

// nameFailure tells a name that does not exist, which no retry mends, from a resolver that did not answer.
func nameFailure(err error) call.Result {
	r := call.Result{Failure: call.FailureNameResolution, Detail: "the name was not resolved"}
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		r.Terminal, r.Detail = true, "no such name"
	case isTimeout(err):
		r.Detail = "the name was not resolved in time"
	}
	return r
}

func connectFailure(err error) call.Result {
	if e, ok := errors.AsType[*proxyError](err); ok {
		return e.result
	}
	if errors.As(err, new(*deniedError)) {
		return denied(err)
	}
	r := call.Result{Failure: call.FailureConnect, Detail: "no connection"}
	var errno syscall.Errno
	switch {
	case isTimeout(err):
		r.Detail = "no connection in time"
	case errors.As(err, &errno):
		r.Detail = "no connection: " + errno.Error()
	}
	return r
}

// tlsFailure: a certificate that was refused will be refused again, and so will a protocol that the server does not have; any other
// handshake failure is one of the connection.
func tlsFailure(err error, p *policy.Effective) call.Result {
	if word, ok := alert(err); ok && word == "no application protocol" && !allowsHTTP1(p) {
		return noHTTP2()
	}
	r := call.Result{Failure: call.FailureTLS, Detail: "the TLS handshake failed"}
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &certificate):
		r.Terminal, r.Detail = true, "the server's certificate was refused: "+certificate.Err.Error()
	case isTimeout(err):
		r.Detail = "the TLS handshake did not end in time"
	default:
		r.Detail += handshakeCause(err)
	}
	return r
}

// handshakeCause tells why, as far as crypto/tls knows; an error of the socket would tell addresses and no cause.
func handshakeCause(err error) string {
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return ": the server does not speak TLS"
	}
	if word, ok := alert(err); ok {
		return ": the server refused it: " + word
	}
	if text := err.Error(); strings.HasPrefix(text, "tls: ") {
		return ": " + strings.TrimPrefix(text, "tls: ")
	}
	return ""
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) ||
		errors.As(err, &timeout) && timeout.Timeout()
}
