package jaeger

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// normalised is the trace with everything replaced that differs from run to run: ids, times, ports, versions. Spans stand below their
// parents, those of one parent in order of time; tags Jaeger sorts itself.
func normalised(t *testing.T, found *trace) []byte {
	t.Helper()
	var tree map[string]any
	if err := json.Unmarshal(found.raw, &tree); err != nil {
		t.Fatal(err)
	}
	tree["spans"] = inOrder(found, tree["spans"].([]any))
	processes := map[string]any{}
	for id, process := range tree["processes"].(map[string]any) {
		processes[found.Processes[id].Name] = process
	}
	tree["processes"] = processes
	tidy(tree)

	var text bytes.Buffer
	render(&text, tree, "")
	text.WriteByte('\n')
	shown := text.String()
	for number, raw := range tree["spans"].([]any) {
		shown = strings.ReplaceAll(shown, raw.(map[string]any)["spanID"].(string), fmt.Sprint("span ", number+1))
	}
	for id := range found.Processes {
		shown = strings.ReplaceAll(shown, `"processID": "`+id+`"`, `"processID": "`+found.Processes[id].Name+`"`)
	}
	shown = strings.ReplaceAll(shown, found.TraceID, "trace")
	return []byte(regexp.MustCompile(`127\.0\.0\.1:\d+`).ReplaceAllString(shown, "127.0.0.1:PORT"))
}

// inOrder gives the raw spans in the order of a walk through their tree.
func inOrder(found *trace, raw []any) []any {
	byID := map[string]any{}
	for _, s := range raw {
		byID[s.(map[string]any)["spanID"].(string)] = s
	}
	var out []any
	var walk func(parent string)
	walk = func(parent string) {
		for _, s := range found.Spans { // in order of time
			if len(s.References) == 0 && parent == "" || len(s.References) == 1 && s.References[0].SpanID == parent {
				out = append(out, byID[s.ID])
				walk(s.ID)
			}
		}
	}
	walk("")
	return out
}

// tidy replaces times, ports and versions.
func tidy(v any) {
	switch v := v.(type) {
	case []any:
		for _, each := range v {
			tidy(each)
		}
	case map[string]any:
		for name, value := range v {
			switch name {
			case "startTime", "timestamp", "duration":
				v[name] = "TIME"
			default:
				tidy(value)
			}
		}
		switch v["key"] {
		case "server.port", "network.peer.port":
			v["value"] = "PORT"
		case "service.version", "telemetry.sdk.version":
			v["value"] = "VERSION"
		}
	}
}

// render writes JSON with one line for each tag, which json.Indent would make five of.
func render(out *bytes.Buffer, v any, indent string) {
	flat := func(v any) bool {
		switch v := v.(type) {
		case []any:
			return len(v) == 0
		case map[string]any:
			return !slices.ContainsFunc(slices.Collect(maps.Values(v)), nested)
		}
		return true
	}
	switch v := v.(type) {
	case []any:
		if flat(v) {
			break
		}
		out.WriteString("[")
		for i, each := range v {
			out.WriteString(strings.Repeat(",", min(i, 1)) + "\n" + indent + "  ")
			render(out, each, indent+"  ")
		}
		out.WriteString("\n" + indent + "]")
		return
	case map[string]any:
		if flat(v) {
			break
		}
		out.WriteString("{")
		for i, name := range slices.Sorted(maps.Keys(v)) {
			fmt.Fprintf(out, "%s\n%s  %q: ", strings.Repeat(",", min(i, 1)), indent, name)
			render(out, v[name], indent+"  ")
		}
		out.WriteString("\n" + indent + "}")
		return
	}
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // it was JSON before
	}
	out.Write(text)
}

func nested(v any) bool {
	switch v.(type) {
	case []any, map[string]any:
		return true
	}
	return false
}
