package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// printMessage writes a message as JSON or YAML.
func printMessage(w io.Writer, form string, m proto.Message) error {
	if form == formYAML {
		text, err := yamlOf(m)
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err //nolint:wrapcheck // a broken pipe needs no more words
	}
	return printJSON(w, m)
}

// printStreamed writes one message of many: a line of JSON, or a YAML document.
func printStreamed(w io.Writer, form string, m proto.Message) error {
	if form == formYAML {
		if _, err := io.WriteString(w, "---\n"); err != nil {
			return err //nolint:wrapcheck // a broken pipe needs no more words
		}
		return printMessage(w, form, m)
	}
	raw, err := protojson.Marshal(m)
	if err != nil {
		return fmt.Errorf("json: %w", err)
	}
	var line bytes.Buffer
	if err := json.Compact(&line, raw); err != nil { // protojson varies its blanks on purpose
		return fmt.Errorf("json: %w", err)
	}
	_, err = io.WriteString(w, escaped(line.String())+"\n")
	return err //nolint:wrapcheck // a broken pipe needs no more words
}

// yamlOf writes a message as people write YAML, with the field names of policy files.
func yamlOf(m proto.Message) ([]byte, error) {
	raw, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("yaml: %w", err)
	}
	return yamlOfJSON(raw)
}

func yamlOfJSON(raw []byte) ([]byte, error) {
	var tree yaml.Node
	if err := yaml.Unmarshal(raw, &tree); err != nil { // JSON is YAML
		return nil, fmt.Errorf("yaml: %w", err)
	}
	unstyled(&tree)
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(&tree); err != nil {
		return nil, fmt.Errorf("yaml: %w", err)
	}
	return []byte(escaped(b.String())), nil
}

// unstyled drops the braces and quotes of JSON wherever YAML needs none. A text that a terminal would obey keeps its quotes, since
// only there it can be escaped.
func unstyled(n *yaml.Node) {
	n.Style = 0
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" && strings.ContainsFunc(n.Value, func(r rune) bool { return r != '\n' && !showable(r) }) {
		n.Style = yaml.DoubleQuotedStyle
	}
	if len(n.Content) == 0 && n.Kind != yaml.ScalarNode {
		n.Style = yaml.FlowStyle // {} and []
	}
	for _, child := range n.Content {
		unstyled(child)
	}
}

// printValue writes what no message of the wire says.
func printValue(w io.Writer, form string, v any) error {
	if form == formJSON {
		return printIndented(w, v)
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("yaml: %w", err)
	}
	text, err := yamlOfJSON(raw)
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err //nolint:wrapcheck // a broken pipe needs no more words
}
