package broker

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Proofs are what a broker can see of a connection, besides the tokens sent on it.
type Proofs struct {
	// Certificates: clients may show one.
	Certificates bool
	// Users: there is a unix socket, on a system that [KnowsUsers].
	Users bool
}

// tokenFile is the file given with --tokens.
type tokenFile struct {
	Tokens []tokenEntry `yaml:"tokens"`
}

// tokenEntry has a name because the decoder's errors tell it.
type tokenEntry struct {
	Identity string `yaml:"identity"`
	SHA256   string `yaml:"sha256"`
	Roles    []Role `yaml:"roles"`
}

// LoadTokens reads the file that says who may call. Of bearer tokens it holds the SHA-256 only, so that the file gives nobody access. An
// entry that none of these proofs can prove is an error.
func LoadTokens(path string, can Proofs) (*Identities, error) {
	content, err := readBounded(path)
	if err != nil {
		return nil, fmt.Errorf("tokens: %w", err)
	}
	return parseTokens(path, content, can)
}

// parseTokens reads the text of a token file; path stands in its errors.
func parseTokens(path string, content []byte, can Proofs) (*Identities, error) {
	var file tokenFile
	dec := yaml.NewDecoder(bytes.NewReader(content))
	dec.KnownFields(true)
	if err := dec.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("tokens: %s: %w", path, err)
	}
	if err := dec.Decode(&tokenFile{}); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("tokens: %s: more than one document; put all tokens into one", path) // the rest would be ignored
	}
	ids := &Identities{tokens: make(map[[sha256.Size]byte]identity), names: make(map[string]identity)}
	for i, t := range file.Tokens {
		if err := ids.add(t, can); err != nil {
			return nil, fmt.Errorf("tokens: %s: tokens[%d].%w", path, i, err)
		}
	}
	if len(ids.tokens)+len(ids.names) == 0 {
		return nil, fmt.Errorf("tokens: %s: no token; nobody could call", path)
	}
	return ids, nil
}

// add takes an entry; its errors begin with the field.
func (i *Identities) add(t tokenEntry, can Proofs) error {
	if !validOperationID(t.Identity) {
		return errors.New("identity: give 1 to 255 visible ASCII characters")
	}
	if err := checkRoles(t.Roles); err != nil {
		return err
	}
	id := identity{name: t.Identity, roles: t.Roles}
	if t.SHA256 == "" && provedByConnection(t.Identity) {
		if err := checkName(t.Identity, can); err != nil {
			return fmt.Errorf("identity: %w", err)
		}
		if _, twice := i.names[t.Identity]; twice {
			return errors.New("identity: it stands there twice without a sha256")
		}
		i.names[t.Identity] = id
		return nil
	}
	sum, err := hex.DecodeString(t.SHA256)
	if err != nil || len(sum) != sha256.Size {
		return errors.New("sha256: not a SHA-256 in hex; make one with: printf %s TOKEN | sha256sum " +
			"(only a SPIFFE id, a DNS name with a dot and uid:N go without)")
	}
	key := [sha256.Size]byte(sum)
	if _, twice := i.tokens[key]; twice {
		return errors.New("sha256: the same token stands there twice")
	}
	i.tokens[key] = id
	return nil
}

func checkRoles(roles []Role) error {
	if len(roles) == 0 {
		return errors.New("roles: empty; give caller, viewer or operator")
	}
	for j, r := range roles {
		if !slices.Contains(allRoles(), r) {
			return fmt.Errorf("roles[%d]: no such role; give caller, viewer or operator", j)
		}
	}
	return nil
}

// provedByConnection: the name has one of the forms that a connection can prove.
func provedByConnection(name string) bool { return strings.ContainsAny(name, ":.") }

// checkName says what keeps an entry without a token from ever being proved.
func checkName(name string, can Proofs) error {
	if user, ok := strings.CutPrefix(name, userPrefix); ok {
		return checkUser(user, can)
	}
	if !can.Certificates {
		return errors.New("without a sha256 it is proved by a client certificate: give --client-ca, or the sha256 of a token")
	}
	if strings.Contains(name, ":") {
		return checkSPIFFE(name)
	}
	return checkDNS(name)
}

// nobodyUser stands for all users whom the kernel cannot name in the broker's namespace (overflowuid, user_namespaces(7)).
const nobodyUser = 65534

func checkUser(user string, can Proofs) error {
	n, err := strconv.ParseUint(user, 10, 32)
	switch {
	case err != nil || n == 1<<32-1 || strconv.FormatUint(n, 10) != user:
		return errors.New("after uid: give the number of a user")
	case n == nobodyUser:
		return errors.New("uid:65534 stands for every user that the kernel cannot name here, so it is nobody's")
	case !can.Users && !KnowsUsers:
		return errors.New("a user at the other end of a unix socket is not known on this system; give the sha256 of a token")
	case !can.Users:
		return errors.New("without a sha256 it is proved on a unix socket: listen on one (--grpc unix:/path or --admin unix:/path), or give the sha256 of a token")
	}
	return nil
}
