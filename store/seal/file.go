package seal

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// mostFileBytes bounds a file of keys: some thousand of them.
const mostFileBytes = 1 << 20

// Load reads the file of keys at path, and makes it with one new key if there is none; its directory must exist. A new file is for its
// owner alone and appears whole and on the disk: of several processes one makes it and all read the same. A file that others than its
// owner and group may read is refused. Errors are one line that names the path.
func Load(path string) (*Keys, error) {
	k, err := load(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = create(path); err == nil {
			k, err = load(path)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("file of keys %s: %w", path, err)
	}
	return k, nil
}

func load(path string) (*Keys, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err //nolint:wrapcheck // Load names the file
	case !info.Mode().IsRegular() || info.Size() > mostFileBytes:
		return nil, errors.New("not a file of keys")
	case info.Mode().Perm()&0o007 != 0:
		return nil, fmt.Errorf("everybody may use it (mode %#o); make it its owner's alone (mode 0600)", info.Mode().Perm())
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err //nolint:wrapcheck // Load names the file
	}
	return Parse(string(content))
}

// create makes the file under another name and links it to path when it is on the disk. Whoever comes second keeps the first one's.
func create(path string) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, filepath.Base(path)+".new-*") // mode 0600
	if err != nil {
		return err //nolint:wrapcheck // Load names the file
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	secret := make([]byte, keyBytes)
	_, _ = rand.Read(secret) // never fails (crypto/rand)
	_, err = f.WriteString(base64.StdEncoding.EncodeToString(secret) + "\n")
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err //nolint:wrapcheck // Load names the file
	}
	d, err := os.Open(dir)
	if err != nil {
		return err //nolint:wrapcheck // Load names the file
	}
	return errors.Join(d.Sync(), d.Close())
}
