package broker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func hashOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

func loadTokens(t *testing.T, text string) (*Identities, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return LoadTokens(path, Proofs{Certificates: true, Users: true})
}

// whoIs judges an RPC as a broker with these identities does.
func whoIs(ids *Identities, ctx context.Context) (identity, error) { //nolint:revive // reads better this way round
	a := &access{}
	a.identities.Store(ids)
	return a.who(ctx)
}

// asking is the context of an RPC with these authorization values.
func asking(t *testing.T, authorization ...string) context.Context {
	t.Helper()
	return metadata.NewIncomingContext(t.Context(), metadata.MD{"authorization": authorization})
}

func TestTokenTellsWhoAsks(t *testing.T) {
	ids, err := loadTokens(t, `
# one identity may have several tokens, so that they can be exchanged
tokens:
- {identity: checkout, sha256: `+hashOf("one")+`, roles: [caller]}
- {identity: checkout, sha256: `+strings.ToUpper(hashOf("two"))+`, roles: [caller, viewer]}
- identity: ops
  sha256: "`+hashOf("three")+`"
  roles: [operator]
`)
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]string{"one": "checkout", "two": "checkout", "three": "ops"} {
		if id, err := whoIs(ids, asking(t, "Bearer "+token)); err != nil || id.name != want {
			t.Errorf("%s: %q, %v", token, id.name, err)
		}
	}
	if id, err := whoIs(ids, asking(t, "bEARER one")); err != nil || id.name != "checkout" {
		t.Errorf("the scheme's case matters: %v (RFC 9110 §11.1)", err)
	}
}

func TestOnlyOneValidTokenIsAnIdentity(t *testing.T) {
	ids := known(map[string][]Role{"alpha": {RoleCaller}, "two": {RoleCaller}})
	for _, tt := range []struct {
		name          string
		authorization []string
	}{
		{"no metadata", nil},
		{"empty", []string{""}},
		{"no scheme", []string{"alpha"}},
		{"scheme alone", []string{"Bearer"}},
		{"empty token", []string{"Bearer "}},
		{"another scheme", []string{"Basic alpha"}},
		{"unknown token", []string{"Bearer three"}},
		{"token in another case", []string{"Bearer ALPHA"}},
		{"token with a blank", []string{"Bearer alpha "}},
		{"hash instead of the token", []string{"Bearer " + hashOf("alpha")}},
		{"two values", []string{"Bearer alpha", "Bearer two"}},
		{"the same twice", []string{"Bearer alpha", "Bearer alpha"}},
	} {
		id, err := whoIs(ids, asking(t, tt.authorization...))
		if status.Code(err) != codes.Unauthenticated || unsent(err) != "UNAUTHENTICATED" || id.name != "" || len(id.roles) != 0 {
			t.Errorf("%s: %+v, %v", tt.name, id, err)
		}
		if strings.Contains(status.Convert(err).Message(), "alpha") {
			t.Errorf("%s: the message repeats the token: %v", tt.name, err)
		}
	}
	// All of them say the same, so that the answer is no oracle for tokens.
	_, a := whoIs(ids, asking(t, "Bearer three"))
	_, b := whoIs(ids, asking(t))
	if a.Error() != b.Error() {
		t.Errorf("an unknown token is told apart from none: %v, %v", a, b)
	}
}

func TestBadTokenFileNamesWhatIsWrong(t *testing.T) {
	good := hashOf("one")
	for _, tt := range []struct{ name, text, want string }{
		{"empty file", "", "no token; nobody could call"},
		{"empty list", "tokens: []", "no token; nobody could call"},
		{"not YAML", "tokens: [", "yaml: line 1"},
		{"another form", "- identity: a", "line 1"},
		{"unknown block", "users: []", "line 1: field users not found"},
		{"unknown field", "tokens:\n- {identity: a, sha256: " + good + ", role: [caller]}", "line 2: field role not found in type broker.tokenEntry"},
		{"the token itself", "tokens:\n- {identity: a, token: one, roles: [caller]}", "line 2: field token not found"},
		{"no identity", "tokens: [{sha256: " + good + ", roles: [caller]}]", "tokens[0].identity: give 1 to 255"},
		{"identity with a blank", "tokens: [{identity: a b, sha256: " + good + ", roles: [caller]}]", "tokens[0].identity"},
		{"no hash", "tokens: [{identity: a, roles: [caller]}]", "tokens[0].sha256: not a SHA-256 in hex; make one with"},
		{"short hash", "tokens: [{identity: a, sha256: abcd, roles: [caller]}]", "tokens[0].sha256"},
		{"hash that is no hex", "tokens: [{identity: a, sha256: " + strings.Repeat("z", 64) + ", roles: [caller]}]", "tokens[0].sha256"},
		{"no roles", "tokens: [{identity: a, sha256: " + good + "}]", "tokens[0].roles: empty; give caller, viewer or operator"},
		{"unknown role", "tokens: [{identity: a, sha256: " + good + ", roles: [caller, admin]}]", "tokens[0].roles[1]: no such role"},
		{
			"one token for two", "tokens: [{identity: a, sha256: " + good + ", roles: [caller]}, {identity: b, sha256: " + strings.ToUpper(good) + ", roles: [caller]}]",
			"tokens[1].sha256: the same token stands there twice",
		},
		{"a second document", "tokens: [{identity: a, sha256: " + good + ", roles: [caller]}]\n---\ntokens: []", "more than one document"},
	} {
		ids, err := loadTokens(t, tt.text)
		if err == nil || ids != nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "tokens.yaml") {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
	if _, err := LoadTokens(filepath.Join(t.TempDir(), "missing"), Proofs{}); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("a file that is not there: %v", err)
	}
}
