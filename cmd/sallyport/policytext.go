package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sallyport/sallyport/broker"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
	"github.com/sallyport/sallyport/policy"
)

// policyPrefix begins the name of every policy.
const policyPrefix = "policies/"

// policyName lets people leave out what begins every name.
func policyName(s string) string {
	if strings.HasPrefix(s, policyPrefix) {
		return s
	}
	return policyPrefix + s
}

// ruleOf reads a policy as the broker does.
func ruleOf(p *pb.Policy) (*policy.Rule, error) {
	document, err := protojson.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.GetName(), err)
	}
	r, err := broker.ParsePolicyDocument(document)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.GetName(), err)
	}
	return &r, nil
}

// changesBetween lists what differs between two policies; nil stands for one that is not there.
func changesBetween(before, after *pb.Policy) ([]policy.Change, error) {
	var rules [2]*policy.Rule
	for i, p := range []*pb.Policy{before, after} {
		if p == nil {
			continue
		}
		r, err := ruleOf(p)
		if err != nil {
			return nil, err
		}
		rules[i] = r
	}
	return policy.Changes(rules[0], rules[1]), nil
}

// bare is a policy as its author writes it, without what the broker sets.
func bare(p *pb.Policy) *pb.Policy {
	p = proto.CloneOf(p)
	p.Etag, p.Revision, p.CreateTime, p.UpdateTime, p.ReadOnly = "", 0, nil, nil, false
	return p
}

// printChanges writes a line for each field: what comes with +, what goes with -, what becomes something else with ~.
func printChanges(w io.Writer, changes []policy.Change) {
	widest := 0
	for _, c := range changes {
		widest = max(widest, cells(plain(c.Path)))
	}
	for _, c := range changes {
		mark, value := "~", c.Before+" → "+c.After
		switch {
		case c.Before == "":
			mark, value = "+", c.After
		case c.After == "":
			mark, value = "-", c.Before
		case c.Before == c.After:
			value += " (another one; its value is not shown)"
		}
		path := plain(c.Path)
		line := "  " + mark + " " + path + strings.Repeat(" ", widest-cells(path)+2) + plain(value)
		sayf(w, "%s\n", fitted(line, columns(w)))
	}
}

// matchText says in one line which calls a policy is for.
func matchText(m *pb.Match) string {
	var parts []string
	if len(m.GetMethods()) > 0 {
		parts = append(parts, strings.Join(m.GetMethods(), ","))
	}
	if len(m.GetHosts()) > 0 {
		parts = append(parts, strings.Join(m.GetHosts(), ","))
	}
	if len(m.GetPorts()) > 0 {
		ports := make([]string, len(m.GetPorts()))
		for i, p := range m.GetPorts() {
			ports[i] = strconv.FormatUint(uint64(p), 10)
		}
		parts = append(parts, "port "+strings.Join(ports, ","))
	}
	if m.GetPathPrefix() != "" {
		parts = append(parts, m.GetPathPrefix())
	}
	if len(m.GetCallers()) > 0 {
		parts = append(parts, "from "+strings.Join(m.GetCallers(), ","))
	}
	if len(parts) == 0 {
		return "any call"
	}
	return strings.Join(parts, " ")
}

// sourceText says where a policy comes from, and so who can change it.
func sourceText(p *pb.Policy) string {
	switch {
	case !p.GetReadOnly():
		return "store"
	case p.GetRevision() == 0:
		return "built in"
	default:
		return "file"
	}
}

func modeText(m pb.PolicyMode) string {
	if m == pb.PolicyMode_POLICY_MODE_OFF {
		return "off"
	}
	return "enforce"
}

// instant writes a time in full; "" for none.
func instant(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().UTC().Format(time.RFC3339)
}

func revisionText(p *pb.Policy) string { return fmt.Sprintf("%s@%d", p.GetName(), p.GetRevision()) }

func printWarnings(w io.Writer, name string, warnings []string) {
	for _, text := range warnings {
		sayf(w, "warning: %s: %s\n", plain(name), plain(text))
	}
}
