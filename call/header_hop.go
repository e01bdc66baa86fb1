package call

import "strings"

// maxNominated bounds what an endless Connection field can cost: no honest one names as many.
const maxNominated = 256

// HopByHop knows the fields of one message that end at this hop (RFC 9110 §7.6.1), in either direction. The zero value knows the
// fixed ones; [HopByHop.Nominate] adds those the message itself names.
type HopByHop struct {
	nominated []string
}

// Nominate takes one value of a Connection field. Only what is not hop-by-hop anyway is remembered, so that the usual values cost
// nothing. It keeps parts of the string.
func (h *HopByHop) Nominate(connectionValue string) {
	for option := range strings.SplitSeq(connectionValue, ",") {
		option = trimBlanks(option)
		if SameField(option, "close") || !ValidToken(option) || h.Drops(option) {
			continue
		}
		if len(h.nominated) == maxNominated {
			return
		}
		h.nominated = append(h.nominated, option)
	}
}

// Drops reports whether a field ends at this hop. What framing needs of such fields has to be read before.
func (h *HopByHop) Drops(name string) bool {
	for _, nominated := range h.nominated {
		if SameField(nominated, name) {
			return true
		}
	}
	if len(name) > maxFieldNameBytes {
		return false
	}
	var buf [maxFieldNameBytes]byte
	return isHopByHop(foldName(&buf, name))
}

// isHopByHop takes a folded name.
func isHopByHop(folded []byte) bool {
	switch string(folded) {
	case "connection", "proxy-connection", "keep-alive", "te", "transfer-encoding", "trailer", "upgrade", "http2-settings":
		return true
	}
	return false
}

// isMethodOverride takes a folded name. Frameworks let such a field turn a GET into a DELETE, which would then be repeated as a GET.
func isMethodOverride(folded []byte) bool {
	switch string(folded) {
	case "x-http-method-override", "x-http-method", "x-method-override":
		return true
	}
	return false
}
