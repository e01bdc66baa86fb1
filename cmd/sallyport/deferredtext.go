package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// deferredCells is one line for a deferred call.
func deferredCells(d *pb.DeferredCall, at time.Time) []string {
	status := none
	if d.GetResponse() != nil {
		status = strconv.FormatUint(uint64(d.GetResponse().GetStatus()), 10)
	}
	return []string{
		strings.TrimPrefix(d.GetName(), deferredPrefix), deferredStateText(d), status,
		fmt.Sprintf("%d of %d", len(d.GetAttempts()), uint64(d.GetMaxRetries())+1), dueText(d, at), age(d.GetCreateTime(), at) + " ago", deferredCallText(d),
	}
}

// deferredStateText is the state, of a dead letter why, and whether it may have been sent twice.
func deferredStateText(d *pb.DeferredCall) string {
	text := deferredStateWord(d.GetState())
	if d.GetFailure() != pb.DeferredFailure_DEFERRED_FAILURE_UNSPECIFIED {
		text += ": " + word(d.GetFailure().String(), "DEFERRED_FAILURE_")
	}
	if d.GetPossibleDuplicate() {
		text += ", perhaps twice"
	}
	return text
}

func deferredCallText(d *pb.DeferredCall) string {
	return d.GetCall().GetRequest().GetMethod() + " " + d.GetCall().GetRequest().GetUrl()
}

// dueText is when the next attempt is due.
func dueText(d *pb.DeferredCall, at time.Time) string {
	switch t := d.GetNextAttemptTime(); {
	case t == nil:
		return none
	case t.AsTime().After(at):
		return "in " + span(t.AsTime().Sub(at))
	default:
		return "now"
	}
}

// countsText is how many there are in each state, in the order of the wire.
func countsText(counts map[string]uint64) string {
	var parts []string
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		if n := int(pb.DeferredState_value[a]) - int(pb.DeferredState_value[b]); n != 0 {
			return n
		}
		return strings.Compare(a, b)
	})
	for _, name := range names {
		if counts[name] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[name], plain(word(name, "DEFERRED_STATE_"))))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// printDeferred shows a deferred call as a call is shown: its attempts, how it stands, what to do, and the answer.
func printDeferred(w io.Writer, d *pb.DeferredCall, at time.Time) {
	sayf(w, "%s", wrap("", plain(d.GetName()+": "+deferredStateText(d))))
	sayf(w, "%s", wrap("  ", plain(deferredCallText(d))))
	for _, line := range [][2]string{
		{"operation", d.GetOperationId()},
		{"delivery", deliveryText(d)},
		{"labels", labelsText(d.GetCall().GetLabels())},
		{"created", momentText(d.GetCreateTime().AsTime(), at)},
	} {
		if line[1] != "" {
			sayf(w, "%s", wrap(fmt.Sprintf("  %-9s ", line[0]), plain(line[1])))
		}
	}
	switch {
	case d.GetFinishTime() != nil:
		sayf(w, "  finished  %s\n", momentText(d.GetFinishTime().AsTime(), at))
	default:
		if d.GetNextAttemptTime() != nil {
			sayf(w, "  next      %s\n", momentText(d.GetNextAttemptTime().AsTime(), at))
		}
		if d.GetExpireTime() != nil {
			sayf(w, "  expires   %s\n", momentText(d.GetExpireTime().AsTime(), at))
		}
	}
	sayf(w, "%s", attemptLines(d.GetAttempts()))
	if end := deferredEnd(d); end != "" {
		sayf(w, "%s\n", end)
	}
	if d.GetDetail() != "" {
		sayf(w, "%s", wrap("", plain(d.GetDetail())))
	}
	sayf(w, "%s%s", wrap("next: ", plain(deferredNext(d))), answer(d.GetResponse()))
}

// keyForgotten says why a redrive is of no use.
const keyForgotten = "under its old key, which the upstream may have forgotten, nothing is sent any more"

// momentText is an instant, and how far away it is.
func momentText(t, at time.Time) string {
	text := t.UTC().Format(time.RFC3339)
	if t.After(at) {
		return text + ", in " + span(t.Sub(at))
	}
	return text + ", " + span(at.Sub(t)) + " ago"
}

// deliveryText is what the submitter accepts, and how often it may be tried.
func deliveryText(d *pb.DeferredCall) string {
	text := "as the policy's safety rules say"
	if d.GetDelivery() != pb.DeliveryMode_DELIVERY_MODE_UNSPECIFIED {
		text = word(d.GetDelivery().String(), "DELIVERY_MODE_")
	}
	text += fmt.Sprintf(", %s at most", plural(d.GetMaxRetries()+1, "attempt"))
	if d.GetBackoff() != nil {
		text += ", the first wait " + brief(d.GetBackoff().AsDuration())
	}
	return text
}

func labelsText(labels map[string]string) string {
	parts := make([]string, 0, len(labels))
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		parts = append(parts, key+"="+labels[key])
	}
	return strings.Join(parts, " ")
}

// deferredEnd says what is known of the effect, and by which rule it stands where it stands.
func deferredEnd(d *pb.DeferredCall) string {
	if d.GetEffect() == pb.Effect_EFFECT_UNSPECIFIED {
		return ""
	}
	text := "effect " + effectName(d.GetEffect())
	if d.GetReason() != pb.Reason_REASON_UNSPECIFIED {
		text += "  (" + reasonWord(d.GetReason()) + ")"
	}
	return text
}

// deferredNext says in plain words what whoever submitted it should do.
func deferredNext(d *pb.DeferredCall) string {
	id := strings.TrimPrefix(d.GetName(), deferredPrefix)
	switch d.GetState() {
	case pb.DeferredState_DEFERRED_STATE_COMPLETED:
		return "nothing, it is done"
	case pb.DeferredState_DEFERRED_STATE_CANCELLED:
		if d.GetEffect() == pb.Effect_EFFECT_UNKNOWN {
			return "find out what the upstream did: an attempt had been sent when it was cancelled"
		}
		return "nothing, it was cancelled"
	case pb.DeferredState_DEFERRED_STATE_UNKNOWN:
		if d.GetReason() == pb.Reason_REASON_KEY_EXPIRED {
			return "find out what the upstream did; it may have happened. If it did not, submit it again under a new operation id: " + keyForgotten
		}
		return "find out what the upstream did; it may have happened, and is not sent again by itself. If it did not: sallyport deferred redrive " + id
	case pb.DeferredState_DEFERRED_STATE_FAILED:
		if d.GetReason() == pb.Reason_REASON_KEY_EXPIRED {
			return "submit it again under a new operation id, or purge it: " + keyForgotten
		}
		if d.GetEffect() == pb.Effect_EFFECT_UNKNOWN {
			return "find out what the upstream did, it may have happened; then: sallyport deferred redrive " + id + ", or purge it"
		}
		return "mend what stopped it, then: sallyport deferred redrive " + id + "; or purge it"
	case pb.DeferredState_DEFERRED_STATE_SENDING:
		return "an attempt is under way; look again"
	}
	return "nothing, it goes on by itself"
}
