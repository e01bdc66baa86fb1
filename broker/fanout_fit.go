package broker

import (
	"google.golang.org/protobuf/proto"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// mostReply is what a stock gRPC client takes of one message (4 MiB).
const mostReply = 4 << 20

// shrink leaves parts of the answers out of a reply that a stock client would refuse, so that it hears at least what became of every branch:
// bodies first, since a fan-out bounds those that it reads, but not one that the ledger kept; then fields, then the attempts; the largest first.
func shrink(resp *pb.FanOutResponse) {
	for _, p := range []part{
		{func(r *pb.CallResponse) int { return len(r.GetResponse().GetBody()) }, func(r *pb.CallResponse) {
			r.Response.Body, r.Response.BodyOmitted = nil, true
		}},
		{func(r *pb.CallResponse) int {
			return proto.Size(&pb.HttpResponse{Headers: r.GetResponse().GetHeaders(), Trailers: r.GetResponse().GetTrailers()})
		}, func(r *pb.CallResponse) {
			r.Response.Headers, r.Response.Trailers = nil, nil
			r.Detail += " (the fields of the answer are left out: the reply of the fan-out would be larger than 4 MiB)"
		}},
		{func(r *pb.CallResponse) int { return proto.Size(&pb.CallResponse{Attempts: r.GetAttempts()}) }, func(r *pb.CallResponse) {
			r.Attempts = nil
			r.Detail += " (its attempts are left out)"
		}},
	} {
		for some := true; some && proto.Size(resp) > mostReply; {
			some = p.cutLargest(resp)
		}
	}
}

// part is something of a branch's reply that can be left out.
type part struct {
	size func(*pb.CallResponse) int
	cut  func(*pb.CallResponse)
}

// cutLargest reports whether there was one.
func (p *part) cutLargest(resp *pb.FanOutResponse) bool {
	var largest *pb.CallResponse
	most := 0
	for _, b := range resp.GetResults() {
		if n := p.size(b.GetResponse()); n > most {
			largest, most = b.GetResponse(), n
		}
	}
	if largest != nil {
		p.cut(largest)
	}
	return largest != nil
}
