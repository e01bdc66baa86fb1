package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/broker"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// maxPolicyText bounds what is read of standard input, as the broker bounds its policy file.
const maxPolicyText = 16 << 20

// stdinName stands for standard input in errors.
const stdinName = "standard input"

// readPolicies reads the policies of a file, of all policy files in a directory, or of standard input, by name.
func readPolicies(path string, in io.Reader) ([]*pb.Policy, error) {
	files, err := policyFiles(path)
	if err != nil {
		return nil, err
	}
	var all []*pb.Policy
	var wrong []error
	from := map[string]string{}
	for _, file := range files {
		policies, err := readPolicyFile(file, in)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		for _, p := range policies {
			if other, twice := from[p.GetName()]; twice {
				wrong = append(wrong, fmt.Errorf("%s: %s is in %s too: remove one", file, p.GetName(), other))
				continue
			}
			from[p.GetName()] = file
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b *pb.Policy) int { return strings.Compare(a.GetName(), b.GetName()) })
	return all, errors.Join(wrong...)
}

func readPolicyFile(path string, in io.Reader) ([]*pb.Policy, error) {
	if path != "-" {
		return broker.ReadPolicyFile(path)
	}
	text, err := io.ReadAll(io.LimitReader(in, maxPolicyText+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", stdinName, err)
	}
	if len(text) > maxPolicyText {
		return nil, fmt.Errorf("%s: more than %d bytes", stdinName, maxPolicyText)
	}
	return broker.ParsePolicyFile(stdinName, text)
}

// policyFiles lists what path names. A directory without any policy file is refused: with --prune it would delete all policies.
func policyFiles(path string) ([]string, error) {
	if path == "-" {
		return []string{path}, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, cause(err))
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, cause(err))
	}
	var files []string
	for _, e := range entries {
		switch filepath.Ext(e.Name()) {
		case ".yaml", ".yml", ".json":
			if file := filepath.Join(path, e.Name()); !strings.HasPrefix(e.Name(), ".") && !isDirectory(file) {
				files = append(files, file)
			}
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: holds no policy file (*.yaml, *.yml, *.json)", path)
	}
	return files, nil
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
