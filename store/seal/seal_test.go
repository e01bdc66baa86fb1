package seal_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/sallyport/sallyport/store/seal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// line is a key that is made of one byte.
func line(b byte) string {
	return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, 32)) + "\n"
}

func keys(t *testing.T, content string) *seal.Keys {
	t.Helper()
	k, err := seal.Parse(content)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestOpensWhatItSealed(t *testing.T) {
	k := keys(t, line(1))
	for _, plain := range [][]byte{{}, {0}, []byte("secret"), bytes.Repeat([]byte("long"), 1<<18)} {
		sealed := k.Seal(plain, "caller", "id", "body")
		if len(sealed) != len(plain)+seal.Overhead || len(plain) > 3 && bytes.Contains(sealed, plain[:4]) {
			t.Errorf("%d bytes became %d, or can be read", len(plain), len(sealed))
		}
		got, err := k.Open(sealed, "caller", "id", "body")
		if err != nil || !bytes.Equal(got, plain) {
			t.Errorf("%d bytes: %v", len(plain), err)
		}
		if again := k.Seal(plain, "caller", "id", "body"); bytes.Equal(again, sealed) || bytes.Equal(again[5:37], sealed[5:37]) {
			t.Error("sealed twice alike: the salt is not random")
		}
	}
}

func TestWhatWasChangedDoesNotOpen(t *testing.T) {
	k := keys(t, line(1)+line(2))
	sealed := k.Seal([]byte("secret"), "a")
	for i := range sealed {
		changed := bytes.Clone(sealed)
		changed[i] ^= 1
		if _, err := k.Open(changed, "a"); !errors.Is(err, seal.ErrChanged) && !(i >= 1 && i < 5 && errors.Is(err, seal.ErrUnknownKey)) {
			t.Errorf("byte %d: %v", i, err)
		}
		if _, err := k.Open(sealed[:i], "a"); !errors.Is(err, seal.ErrChanged) {
			t.Errorf("cut at %d: %v", i, err)
		}
	}
	if _, err := k.Open(append(sealed, 0), "a"); !errors.Is(err, seal.ErrChanged) {
		t.Errorf("a byte more: %v", err)
	}
}

func TestBoundToItsPlace(t *testing.T) {
	k := keys(t, line(1))
	sealed := k.Seal([]byte("secret"), "ab", "c")
	for _, names := range [][]string{{"a", "bc"}, {"abc"}, {"ab"}, {"ab", "c", ""}, {"c", "ab"}, nil} {
		if _, err := k.Open(sealed, names...); !errors.Is(err, seal.ErrChanged) {
			t.Errorf("%q: %v", names, err)
		}
	}
}

func TestRotation(t *testing.T) {
	old, rotated, late := keys(t, line(1)), keys(t, "# new\n"+line(2)+"\n"+line(1)), keys(t, line(2))
	before, after := old.Seal([]byte("x")), rotated.Seal([]byte("y"))
	if got, err := rotated.Open(before); err != nil || string(got) != "x" {
		t.Errorf("a key that is no longer the first: %q, %v", got, err)
	}
	if got, err := late.Open(after); err != nil || string(got) != "y" {
		t.Errorf("the first key: %q, %v", got, err)
	}
	if _, err := late.Open(before); !errors.Is(err, seal.ErrUnknownKey) {
		t.Errorf("a key that was dropped: %v", err)
	}
	if rotated.Current(before) || !rotated.Current(after) || rotated.Current(nil) {
		t.Error("which key seals now?")
	}
}

// What is stored must open with later versions of the program.
func TestFormatStays(t *testing.T) {
	const sealed = "Af9IuoksAxnWMVi/AG9Q0S4OVYSwUYv71e32JLxKAXDnEu6B3kNBIf393YZIQ+txeJ7fvN1H2eiDjowK"
	raw, err := base64.StdEncoding.DecodeString(sealed)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := keys(t, line(1)).Open(raw, "caller", "id", "body"); err != nil || string(got) != "as ever" {
		t.Errorf("%q, %v; today it is %s", got, err,
			base64.StdEncoding.EncodeToString(keys(t, line(1)).Seal([]byte("as ever"), "caller", "id", "body")))
	}
}

func TestWhatIsNoFileOfKeys(t *testing.T) {
	for content, want := range map[string]string{
		"":                       "it has no key",
		"# none\n\n":             "it has no key",
		"hello":                  "line 1: want 32 bytes",
		line(1) + "c2hvcnQ=\n":   "line 2: want 32 bytes",
		line(1) + line(2)[:40]:   "line 2: want 32 bytes",
		line(1) + line(1):        "line 2: the key stands there twice",
		line(1)[:43] + "\n":      "line 1",
		line(1) + "\n\x00\x01\n": "line 3",
	} {
		_, err := seal.Parse(content)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), line(1)[:10]) {
			t.Errorf("%q: %v, want %q and no key", content, err, want)
		}
	}
}

func TestLoadMakesTheFileOnce(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "ledger.keys")
	const together = 8
	made := make([]*seal.Keys, together)
	var wg sync.WaitGroup
	for i := range made {
		wg.Go(func() {
			var err error
			if made[i], err = seal.Load(path); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	sealed := made[0].Seal([]byte("x"))
	for i, k := range made {
		if _, err := k.Open(sealed); err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	all, err := os.ReadDir(dir)
	if err != nil || len(all) != 1 {
		t.Errorf("left behind: %v (%v)", all, err)
	}
	again, err := seal.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.Open(sealed); err != nil {
		t.Error(err)
	}
	other, err := seal.Load(filepath.Join(t.TempDir(), "k"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Open(sealed); !errors.Is(err, seal.ErrUnknownKey) {
		t.Errorf("two files, one key: %v", err)
	}
}

func TestLoadRefuses(t *testing.T) {
	dir := t.TempDir()
	open := filepath.Join(dir, "open")
	if err := os.WriteFile(open, []byte(line(1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o604); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		open:                           "make it its owner's alone",
		dir:                            "not a file of keys",
		filepath.Join(dir, "no", "no"): "no such file or directory",
	} {
		if _, err := seal.Load(path); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}
