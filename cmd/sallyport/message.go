package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"buf.build/go/protoyaml"
	"google.golang.org/protobuf/proto"
)

// maxRequestText bounds what is read of a request: bodies are in base64 there, and a message is 20 MiB at most.
const maxRequestText = 32 << 20

// readMessage reads a message in YAML or in the JSON form of protobuf from a file, or from standard input ("-").
func readMessage(path string, in io.Reader, m proto.Message) error {
	name := path
	if path == "-" {
		name = stdinName
	} else {
		file, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, cause(err))
		}
		defer func() { _ = file.Close() }() // read only
		in = file
	}
	text, err := io.ReadAll(io.LimitReader(in, maxRequestText+1))
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", name, cause(err))
	case len(text) > maxRequestText:
		return fmt.Errorf("%s: more than %d bytes", name, maxRequestText)
	case len(bytes.TrimSpace(text)) == 0:
		return fmt.Errorf("%s: %w", name, errNothingInIt)
	}
	if json.Valid(text) {
		text = bytes.ReplaceAll(text, []byte{'\t'}, []byte{' '}) // YAML knows no tab between tokens; in JSON one is never part of a value
	}
	if err := protoyaml.Unmarshal(text, m); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

var errNothingInIt = errors.New("nothing in it")
