package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAbandonedSocketIsTakenOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	gone, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	gone.SetUnlinkOnClose(false) // as a killed broker leaves it
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := listen(t.Context(), "grpc", "unix:"+path, false)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, error %v: want the owner alone", info.Mode(), err)
	}
	if _, err := listen(t.Context(), "grpc", "unix:"+path, false); err == nil || !strings.Contains(err.Error(), "is in use") {
		t.Errorf("a second broker on a live socket: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func TestFileInPlaceOfTheSocketStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listen(t.Context(), "grpc", "unix:"+path, false); err == nil {
		t.Error("listened in place of a file")
	}
	if content, err := os.ReadFile(path); err != nil || string(content) != "precious" {
		t.Errorf("%q, %v", content, err)
	}
}

func TestUntrustedListenerStaysOnLoopback(t *testing.T) {
	for _, tt := range []struct {
		addr    string
		trusted bool
		ok      bool
	}{
		{"127.0.0.1:0", false, true},
		{"127.0.0.2:0", false, true},
		{"localhost:0", false, true},
		{"0.0.0.0:0", false, false},
		{"[::]:0", false, false},
		{":0", false, false},
		{"0.0.0.0:0", true, true},
	} {
		l, err := listen(t.Context(), "http", tt.addr, tt.trusted)
		if (err == nil) != tt.ok {
			t.Errorf("%s, trusted %v: %v", tt.addr, tt.trusted, err)
		}
		if err == nil {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
