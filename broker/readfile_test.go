package broker

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestConfigurationFileIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policies.yaml")
	for size, ok := range map[int64]bool{maxFileBytes: true, maxFileBytes + 1: false} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
		if _, err := readBounded(path); (err == nil) != ok {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	if _, err := readBounded("/dev/zero"); err == nil {
		t.Error("an endless file was read")
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readBounded(pipe); err == nil { // and did not hang
		t.Error("a pipe was read")
	}
}
