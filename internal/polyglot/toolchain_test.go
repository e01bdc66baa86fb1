package polyglot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// lackingf ends a test whose toolchain is not there: a user's machine need not have it, continuous integration must.
func lackingf(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("SALLYPORT_REQUIRE_LANGUAGES") == "1" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// command is a command that does not outlive its time.
func command(t *testing.T, limit time.Duration, name string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return exec.CommandContext(ctx, name, args...)
}

// must runs what has to succeed when the toolchain is there.
func must(t *testing.T, c *exec.Cmd) {
	t.Helper()
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(c.Args, " "), err, out)
	}
}

// output is what a program printed.
func output(t *testing.T, c *exec.Cmd) []byte {
	t.Helper()
	var errors bytes.Buffer
	c.Stderr = &errors
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, errors.String())
	}
	return out
}

// tool finds a program and its version, or skips.
func tool(t *testing.T, name, version string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		lackingf(t, "%s is not installed", name)
	}
	out, err := command(t, time.Minute, path, version).CombinedOutput()
	if err != nil {
		lackingf(t, "%s %s: %v\n%s", name, version, err, out)
	}
	return path + " " + string(out)
}

// installed gives the directory below bin/ where the pinned packages of a language are. It is named after what is pinned and the
// tools used, so that a warm one costs nothing and a changed pin never meets old packages. install fills a new one; it is moved
// to its name when it is whole, so that neither a failure nor a second run at the same time leaves half of one.
func installed(t *testing.T, language, tools string, pins []string, install func(dir string) ([]byte, error)) string {
	t.Helper()
	h := sha256.New()
	h.Write([]byte(tools))
	for _, pin := range pins {
		text, err := os.ReadFile(filepath.Join(root, "clients", language, pin))
		if err != nil {
			t.Fatal(err)
		}
		h.Write(text)
	}
	top, err := filepath.Abs(filepath.Join(root, "bin", "clients"))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(top, language+"-"+hex.EncodeToString(h.Sum(nil))[:16])
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	if err := os.MkdirAll(top, 0o755); err != nil {
		t.Fatal(err)
	}
	fresh, err := os.MkdirTemp(top, language+"-new-") //nolint:usetesting // it is renamed, so it must be on that file system
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(fresh) }) // gone when it was moved
	if out, err := install(fresh); err != nil {
		lackingf(t, "the packages of %s cannot be installed (no network?): %v\n%s", language, err, out)
	}
	if err := os.Rename(fresh, dir); err != nil && !errors.Is(err, fs.ErrExist) {
		if _, there := os.Stat(dir); there != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// staged copies what the build of a language reads, so that two runs at once do not meet and a build of the developer's own is
// neither used nor touched. It gives the directory of the language.
func staged(t *testing.T, language string) string {
	t.Helper()
	top := t.TempDir()
	built := map[string]bool{"node_modules": true, "build": true, "target": true, "gen": true, "__pycache__": true}
	for _, part := range []string{"clients/service_config.json", "clients/" + language, "proto/sallyport", "third_party/proto"} {
		err := filepath.WalkDir(filepath.Join(root, part), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			switch to := filepath.Join(top, rel); {
			case d.IsDir() && (built[d.Name()] || strings.HasSuffix(d.Name(), ".egg-info")):
				return filepath.SkipDir
			case d.IsDir():
				return os.MkdirAll(to, 0o755)
			default:
				if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
					return err
				}
				return copyFile(path, to)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(top, "clients", language)
}

func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o600)
}
