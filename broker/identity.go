package broker

import (
	"context"
	"crypto/sha256"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
)

// localIdentity is the caller where nobody is asked who he is, which the broker allows on loopback only.
const localIdentity = "local"

// userPrefix begins the identity of a user at the other end of a unix socket.
const userPrefix = "uid:"

// Identities knows who may call, by what they prove. The zero value knows one caller, local, who may do everything.
type Identities struct {
	tokens map[[sha256.Size]byte]identity
	// names are proved by the connection: by a client certificate, or by the user at the other end of a unix socket.
	names map[string]identity
}

type identity struct {
	name  string
	roles []Role
	all   bool // every role there is
}

// who finds the caller of an RPC. The first that is there decides alone, right or wrong: a token, the client certificate of the
// connection, the user at the other end of the unix socket where the file names that user.
func (a *access) who(ctx context.Context) (identity, error) {
	ids := a.identities.Load()
	if ids.open() && a.authorities == nil {
		return identity{name: localIdentity, all: true}, nil
	}
	if authorization := metadata.ValueFromIncomingContext(ctx, "authorization"); len(authorization) > 0 {
		return ids.byToken(authorization)
	}
	p, from := connectionOf(ctx)
	switch {
	case p == nil:
		return identity{}, unauthenticated()
	case p.chain != nil && a.authorities != nil:
		if name := p.holder(a.authorities.pool.Load(), from, a.log); name != "" {
			return ids.byCertificate(name), nil
		}
		return identity{}, unauthenticated()
	}
	// A user who is named nowhere is nobody: every process is some user's, so that being one proves nothing by itself.
	if id, ok := ids.byName(p.user); ok {
		return id, nil
	}
	return identity{}, unauthenticated()
}

// open: there is no file that says who may call.
func (i *Identities) open() bool { return i == nil || i.tokens == nil }

// byToken finds an identity by the values of the field authorization.
func (i *Identities) byToken(authorization []string) (identity, error) {
	if i == nil || len(authorization) != 1 {
		return identity{}, unauthenticated()
	}
	scheme, token, ok := strings.Cut(authorization[0], " ")
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

// byCertificate gives the roles to the name in a certificate. Who is known and named nowhere may do nothing; without a file all who are
// known may make calls, and nobody may administer.
func (i *Identities) byCertificate(name string) identity {
	if i.open() {
		return identity{name: name, roles: []Role{RoleCaller}}
	}
	id, ok := i.byName(name)
	if !ok {
		id.name = name
	}
	return id
}

func (i *Identities) byName(name string) (identity, bool) {
	if i == nil || name == "" {
		return identity{}, false
	}
	id, ok := i.names[name]
	return id, ok
}

// unauthenticated says the same whatever was wrong: the log knows more.
func unauthenticated() error {
	return refusal(codes.Unauthenticated, reasonUnauthenticated,
		"the caller is not known: send a valid token in the metadata (authorization: Bearer TOKEN), or use a client certificate that this broker accepts")
}

type callerKey struct{}

func withCaller(ctx context.Context, id identity) context.Context {
	return context.WithValue(ctx, callerKey{}, id)
}

// callerOf is the authenticated caller of an RPC.
func callerOf(ctx context.Context) string {
	id, _ := ctx.Value(callerKey{}).(identity)
	return id.name
}

// mayOperate reports whether that caller is an operator.
func mayOperate(ctx context.Context) bool {
	id, _ := ctx.Value(callerKey{}).(identity)
	return id.may(RoleOperator)
}
