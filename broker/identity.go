package broker

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
)

// Role is what an identity may do.
type Role string

// The roles.
const (
	// RoleCaller makes calls.
	RoleCaller Role = "caller"
	// RoleViewer reads policies and the state of origins.
	RoleViewer Role = "viewer"
	// RoleOperator changes them.
	RoleOperator Role = "operator"
)

// localIdentity is the caller where no tokens are configured, which the broker allows on loopback only.
const localIdentity = "local"

// Identities knows who may call. The zero value knows one caller, local, who may do everything.
type Identities struct {
	tokens map[[sha256.Size]byte]identity
}

type identity struct {
	name  string
	roles []Role
	all   bool // every role there is
}

func (i *identity) may(r Role) bool { return i.all || slices.Contains(i.roles, r) }

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

// LoadTokens reads a file of bearer tokens. It holds their SHA-256 only, so that the file gives nobody access.
func LoadTokens(path string) (*Identities, error) {
	content, err := readBounded(path)
	if err != nil {
		return nil, fmt.Errorf("tokens: %w", err)
	}
	return parseTokens(path, content)
}

// parseTokens reads the text of a token file; path stands in its errors.
func parseTokens(path string, content []byte) (*Identities, error) {
	var file tokenFile
	dec := yaml.NewDecoder(bytes.NewReader(content))
	dec.KnownFields(true)
	if err := dec.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("tokens: %s: %w", path, err)
	}
	if err := dec.Decode(&tokenFile{}); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("tokens: %s: more than one document; put all tokens into one", path) // the rest would be ignored
	}
	ids := &Identities{tokens: make(map[[sha256.Size]byte]identity, len(file.Tokens))}
	for i, t := range file.Tokens {
		at := fmt.Sprintf("tokens: %s: tokens[%d]", path, i)
		if !validOperationID(t.Identity) {
			return nil, fmt.Errorf("%s.identity: give 1 to 255 visible ASCII characters", at)
		}
		sum, err := hex.DecodeString(t.SHA256)
		if err != nil || len(sum) != sha256.Size {
			return nil, fmt.Errorf("%s.sha256: not a SHA-256 in hex; make one with: printf %%s TOKEN | sha256sum", at)
		}
		if len(t.Roles) == 0 {
			return nil, fmt.Errorf("%s.roles: empty; give caller, viewer or operator", at)
		}
		for j, r := range t.Roles {
			if !slices.Contains([]Role{RoleCaller, RoleViewer, RoleOperator}, r) {
				return nil, fmt.Errorf("%s.roles[%d]: no such role; give caller, viewer or operator", at, j)
			}
		}
		key := [sha256.Size]byte(sum)
		if _, twice := ids.tokens[key]; twice {
			return nil, fmt.Errorf("%s.sha256: the same token stands there twice", at)
		}
		ids.tokens[key] = identity{name: t.Identity, roles: t.Roles}
	}
	if len(ids.tokens) == 0 {
		return nil, fmt.Errorf("tokens: %s: no token; nobody could call", path)
	}
	return ids, nil
}

// who finds the caller of an RPC by its bearer token.
func (i *Identities) who(ctx context.Context) (identity, error) {
	if i == nil || i.tokens == nil {
		return identity{name: localIdentity, all: true}, nil
	}
	values := metadata.ValueFromIncomingContext(ctx, "authorization")
	if len(values) != 1 {
		return identity{}, unauthenticated()
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return identity{}, unauthenticated()
	}
	// Looked up by its hash: how long that takes tells nothing about the tokens there are.
	id, ok := i.tokens[sha256.Sum256([]byte(token))]
	if !ok {
		return identity{}, unauthenticated()
	}
	return id, nil
}

func unauthenticated() error {
	return refusal(codes.Unauthenticated, reasonUnauthenticated, "no valid token; send one in the metadata, authorization: Bearer TOKEN")
}

type callerKey struct{}

func withCaller(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, callerKey{}, name)
}

// callerOf is the authenticated caller of an RPC.
func callerOf(ctx context.Context) string {
	name, _ := ctx.Value(callerKey{}).(string)
	return name
}
