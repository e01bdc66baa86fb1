package main

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// width is that of a terminal nobody has to widen.
const width = 100

// timeline shows what became of a call: one row for each attempt, why the call ended, and what to do next. All of it is plain
// text: whatever an upstream wrote has lost its control characters.
func timeline(req *pb.CallRequest, resp *pb.CallResponse) string {
	var b strings.Builder
	b.WriteString(title(plain(req.GetRequest().GetMethod()+" "+req.GetRequest().GetUrl()), plain(resp.GetPolicy())))
	if resp.GetReplayed() {
		b.WriteString(wrap("  ", replayedWords(resp)))
	}
	b.WriteString(attemptLines(resp.GetAttempts()))
	if len(resp.GetAttempts()) == 0 && resp.GetOutcome() != pb.Outcome_OUTCOME_SUCCESS {
		b.WriteString("  no attempt was made\n")
	}
	fmt.Fprintf(&b, "%s  effect %s  %s  %s", outcomeName(resp.GetOutcome()), effectName(resp.GetEffect()),
		plural(resp.GetSends(), "send"), brief(resp.GetElapsed().AsDuration()))
	if resp.GetReplayed() {
		b.WriteString("  replayed")
	}
	b.WriteString("\n")
	if resp.GetDetail() != "" {
		b.WriteString(wrap("", plain(resp.GetDetail())))
	}
	b.WriteString(wrap("next: ", plain(nextWords(resp))))
	return b.String()
}

// replayedWords stands above the attempts of another call, which would else be read as sends of this one.
func replayedWords(resp *pb.CallResponse) string {
	text := "replayed: this call sent nothing; what follows is what another call "
	if id := plain(resp.GetOperationId()); id != "" {
		return text + "under " + id + " got"
	}
	return text + "of the same operation got"
}

// attemptLines is a line for each attempt, and a second one where no answer came.
func attemptLines(attempts []*pb.Attempt) string {
	rows := make([][]string, len(attempts))
	for i, a := range attempts {
		rows[i] = row(a)
	}
	var b strings.Builder
	for i, line := range align(rows) {
		b.WriteString(cut("  "+line) + "\n")
		if note := note(attempts[i]); note != "" {
			b.WriteString(wrap("          ", note))
		}
	}
	return b.String()
}

// row is one attempt: offset, number, kind, status, what it gave, how long it took, what was decided, and by which rule.
func row(a *pb.Attempt) []string {
	status := "---"
	if a.GetStatus() != 0 {
		status = strconv.FormatUint(uint64(a.GetStatus()), 10)
	}
	return []string{
		"+" + brief(a.GetOffset().AsDuration()),
		strconv.FormatUint(uint64(a.GetNumber()), 10) + " " + kindWord(a.GetKind()),
		status,
		whatWord(a),
		brief(a.GetDuration().AsDuration()),
		decisionWord(a.GetDecision()),
		"(" + reasonWord(a.GetDecision().GetReason()) + ")",
	}
}

// note is the second line of an attempt without an answer: what is proved, and in a sentence what happened.
func note(a *pb.Attempt) string {
	if a.GetFailure() == pb.Failure_FAILURE_UNSPECIFIED {
		return ""
	}
	if a.GetDetail() == "" {
		return evidenceWord(a.GetEvidence())
	}
	return evidenceWord(a.GetEvidence()) + ": " + plain(a.GetDetail())
}

// title sets the policy at the right edge of a short line, and a long name of one below. A long target is cut in its middle:
// method, host and end tell most.
func title(target, policy string) string {
	const column, most = 72, 48
	if utf8.RuneCountInString(policy) > most {
		return title(target, "") + cut("  "+policy) + "\n"
	}
	room := width - 2 - utf8.RuneCountInString(policy)
	if r := []rune(target); len(r) > room {
		half := (room - 3) / 2
		target = string(r[:room-3-half]) + "..." + string(r[len(r)-half:])
	}
	pad := max(2, min(column, room)-utf8.RuneCountInString(target))
	return strings.TrimRight(target+strings.Repeat(" ", pad)+policy, " ") + "\n"
}

// align makes columns as wide as their widest cell. The column of durations is set to the right.
func align(rows [][]string) []string {
	const durations = 4
	var widths []int
	for _, cells := range rows {
		for i, c := range cells {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	lines := make([]string, len(rows))
	for r, cells := range rows {
		var b strings.Builder
		for i, c := range cells {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c))
			if i == durations {
				b.WriteString(pad + c + "  ")
			} else {
				b.WriteString(c + pad + "  ")
			}
		}
		lines[r] = strings.TrimRight(b.String(), " ")
	}
	return lines
}

// wrap breaks text at blanks; following lines are set under the first. A word that no line can hold is broken where the line ends,
// for it may be an operation id, of which every letter counts.
func wrap(lead, text string) string {
	var b strings.Builder
	indent := []rune(strings.Repeat(" ", utf8.RuneCountInString(lead)))
	line, empty := []rune(lead), true
	flush := func() {
		b.WriteString(string(line) + "\n")
		line, empty = append(line[:0], indent...), true
	}
	for w := range strings.FieldsSeq(text) {
		word := []rune(w)
		if !empty && len(line)+1+len(word) > width {
			flush()
		}
		if !empty {
			line = append(line, ' ')
		}
		for room := width - len(line); len(word) > room; room = width - len(line) {
			line = append(line, word[:room]...)
			word = word[room:]
			flush()
		}
		line, empty = append(line, word...), false
	}
	b.WriteString(string(line) + "\n")
	return b.String()
}

func cut(line string) string {
	if r := []rune(line); len(r) > width {
		return string(r[:width-3]) + "..."
	}
	return line
}

func plural(n uint32, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// answer shows the last complete answer: its status and, when it is text, its body.
func answer(r *pb.HttpResponse) string {
	if r == nil {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n" + strings.TrimSpace(fmt.Sprintf("%s %d", plain(r.GetProtocol()), r.GetStatus())))
	for _, h := range r.GetHeaders() {
		if strings.EqualFold(h.GetName(), "Content-Type") && h.GetValue() != "" {
			b.WriteString("  " + plain(h.GetValue()))
			break
		}
	}
	b.WriteString("\n")
	body := r.GetBody()
	switch {
	case r.GetBodyOmitted():
		b.WriteString("(there was a body; it is not kept)\n")
	case len(body) == 0:
	case !isText(body):
		fmt.Fprintf(&b, "(%d bytes, not text)\n", len(body))
	default:
		b.Write(body)
		if body[len(body)-1] != '\n' {
			b.WriteString("\n")
		}
	}
	return b.String()
}
