package broker

import (
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/sallyport/sallyport/call"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/policy"
)

// fit checks a call against the policy that rules it, and gives an operation under an idempotency contract its id.
func fit(c *call.Call, given []*pb.HttpHeader, p *policy.Effective, t *policy.Table) (hasID bool, _ []*call.InvalidError) {
	d := decoder{}
	if size := uint64(len(c.Body)); size > p.Body.MaxRequestBytes {
		d.add("request.body", fmt.Sprintf("%d bytes, more than the %d that body.max_request_bytes allows; send less or raise it", size, p.Body.MaxRequestBytes))
	}
	// Such a path could mean one that a policy covers, in a spelling that it does not (contract.md §1, security.md §1.6).
	if c.Target.Ambiguous() && t.PathScoped(c.Target.Host) {
		d.add("request.url", "an encoded separator, an empty segment or a ; in the path, where a policy with a path_prefix covers the host; write the path without it")
	}
	hasID = d.operation(c, given, p)
	return hasID, d.violations
}

// operation finds the id under an idempotency contract: operation_id, else the caller's own header of the contract's name, else
// a new one. The header is looked for in what the caller gave, so that a Connection field cannot strip it.
func (d *decoder) operation(c *call.Call, given []*pb.HttpHeader, p *policy.Effective) (hasID bool) {
	if !p.Contract(c.Method) {
		return c.OperationID != ""
	}
	for i, h := range given {
		if !call.SameField(h.GetName(), p.Idempotency.Header) {
			continue
		}
		field := fmt.Sprintf("request.headers[%d].value", i)
		switch id := strings.Trim(headerValue(h), " \t"); {
		case !validOperationID(id):
			d.add(field, "under the idempotency contract this field is the operation id: give 1 to 255 visible ASCII characters")
		case c.OperationID == "":
			c.OperationID = id
		case c.OperationID != id:
			d.add(field, "differs from the operation id; give one of them, or both alike")
		}
	}
	if c.OperationID != "" {
		return true
	}
	c.OperationID = uuid.NewString()
	return false
}
