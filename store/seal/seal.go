// Package seal makes what is stored unreadable to whoever has the file without its keys, and finds what was changed in it.
//
// A file of keys has one key a line, 32 random bytes in base64; empty lines and those that begin with # count for nothing. The first
// key seals, all of them open. To rotate, put a new key before the others; drop an old one when nothing sealed with it is left, which
// for a ledger is when its records have outlived their time. Without its key what was sealed is lost: keep a copy of the file, and
// keep it apart from what it opens.
//
// Sealed are, in this order:
//
//	1 byte      version, 1
//	4 bytes     which key: HKDF-SHA256(key, no salt, "sallyport seal 1 id")
//	32 bytes    salt, random
//	n bytes     AES-256-GCM of the plain bytes, with key (32) and nonce (12) = HKDF-SHA256(key, salt, "sallyport seal 1")
//	16 bytes    its tag
//
// So each has a key of its own, and no count of messages under one key is to be kept. Bound to it as additional data are what stands
// before the salt, and the names of where it belongs, each behind its length in eight bytes: moved elsewhere, it does not open.
package seal

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// The errors of what does not open.
var (
	// ErrUnknownKey: it was sealed with a key that is not among these.
	ErrUnknownKey = errors.New("sealed with an unknown key")
	// ErrChanged: it is not what was sealed, or not where it was put.
	ErrChanged = errors.New("not what was sealed")
)

const (
	version    = 1
	keyBytes   = 32
	idBytes    = 4
	saltBytes  = 32
	nonceBytes = 12
	head       = 1 + idBytes
	front      = head + saltBytes
	// TagBytes is the length of the tag, which ends what is sealed: it differs whenever anything else in it does.
	TagBytes = 16
	// Overhead is how much longer sealed bytes are than plain ones.
	Overhead = front + TagBytes
)

// Keys seal with the first and open with all. They may be used by several goroutines.
type Keys struct {
	keys []key
}

type key struct {
	id     [idBytes]byte
	secret []byte
}

// Parse reads the content of a file of keys. Its errors cite no key.
func Parse(content string) (*Keys, error) {
	k := &Keys{}
	number := 0
	for line := range strings.Lines(content) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		secret, err := base64.StdEncoding.Strict().DecodeString(line)
		if err != nil || len(secret) != keyBytes {
			return nil, fmt.Errorf("line %d: want %d bytes in base64", number, keyBytes)
		}
		next, err := keyOf(secret)
		if err != nil {
			return nil, err
		}
		if _, known := k.find(next.id[:]); known {
			return nil, fmt.Errorf("line %d: the key stands there twice", number)
		}
		k.keys = append(k.keys, next)
	}
	if len(k.keys) == 0 {
		return nil, errors.New("it has no key")
	}
	return k, nil
}

// Seal seals plain for the place that names tell. The result is nobody else's.
func (k *Keys) Seal(plain []byte, names ...string) []byte {
	first := k.keys[0]
	sealed := make([]byte, front, len(plain)+Overhead)
	sealed[0] = version
	copy(sealed[1:], first.id[:])
	_, _ = rand.Read(sealed[head:]) // never fails (crypto/rand)
	aead, nonce := first.derive(sealed[head:front])
	return aead.Seal(sealed, nonce, plain, additional(sealed[:head], names))
}

// Open gives back what Seal was given, under the same names: [ErrUnknownKey], [ErrChanged], or exactly that.
func (k *Keys) Open(sealed []byte, names ...string) ([]byte, error) {
	if len(sealed) < Overhead || sealed[0] != version {
		return nil, ErrChanged
	}
	one, known := k.find(sealed[1:head])
	if !known {
		return nil, ErrUnknownKey
	}
	aead, nonce := one.derive(sealed[head:front])
	plain, err := aead.Open(nil, nonce, sealed[front:], additional(sealed[:head], names))
	if err != nil {
		return nil, ErrChanged
	}
	return plain, nil
}

// Current tells whether it was sealed with the key that seals now.
func (k *Keys) Current(sealed []byte) bool {
	return len(sealed) >= Overhead && sealed[0] == version && bytes.Equal(sealed[1:head], k.keys[0].id[:])
}

func (k *Keys) find(id []byte) (key, bool) {
	for _, one := range k.keys {
		if bytes.Equal(one.id[:], id) {
			return one, true
		}
	}
	return key{}, false
}

func keyOf(secret []byte) (key, error) {
	one := key{secret: secret}
	id, err := hkdf.Key(sha256.New, secret, nil, "sallyport seal 1 id", idBytes)
	copy(one.id[:], id)
	return one, err //nolint:wrapcheck // it says all there is
}

// derive makes the key and the nonce of one salt.
func (k key) derive(salt []byte) (cipher.AEAD, []byte) {
	material, err := hkdf.Key(sha256.New, k.secret, salt, "sallyport seal 1", keyBytes+nonceBytes)
	if err != nil {
		panic(err) // a key of a fixed, allowed length: see keyOf, which has derived from it before
	}
	block, err := aes.NewCipher(material[:keyBytes])
	if err != nil {
		panic(err) // 32 bytes are a key
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // AES has the right block size
	}
	return aead, material[keyBytes:]
}

// additional is what is bound to the sealed bytes without being in them.
func additional(front []byte, names []string) []byte {
	all := append([]byte(nil), front...)
	for _, n := range names {
		all = binary.BigEndian.AppendUint64(all, uint64(len(n)))
		all = append(all, n...)
	}
	return all
}
