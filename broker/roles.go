package broker

import (
	"slices"
	"strings"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// Role is what an identity may do.
type Role string

// The roles.
const (
	// RoleCaller makes calls.
	RoleCaller Role = "caller"
	// RoleViewer reads policies and the state of origins.
	RoleViewer Role = "viewer"
	// RoleOperator changes them, and may what a viewer may.
	RoleOperator Role = "operator"

	// roleAsks is either: a caller asks about his own operations, an operator about anybody's.
	roleAsks Role = "caller or operator"
)

func allRoles() []Role { return []Role{RoleCaller, RoleViewer, RoleOperator} }

// roleFor is the table of all that anybody may do: the role an RPC needs, by its service and the word its name begins with. One that
// stands nowhere here is refused, whoever asks.
func roleFor(method string) (Role, bool) {
	name, rooted := strings.CutPrefix(method, "/")
	service, rpc, ok := strings.Cut(name, "/")
	switch {
	case !rooted || !ok:
		return "", false
	case service == pb.CallService_ServiceDesc.ServiceName && begins(rpc, "GetOperation", "ListOperations", "ReconcileOperation"):
		return roleAsks, true
	case service == pb.CallService_ServiceDesc.ServiceName:
		return RoleCaller, true
	case service == pb.DeferredService_ServiceDesc.ServiceName &&
		begins(rpc, "Submit", "Get", "List", "Cancel", "Redrive", "Purge", "Watch"):
		return RoleCaller, true
	case service == pb.PolicyService_ServiceDesc.ServiceName && begins(rpc, "Get", "List", "Resolve", "Watch"):
		return RoleViewer, true
	case service == pb.PolicyService_ServiceDesc.ServiceName && begins(rpc, "Create", "Update", "Delete", "Rollback"):
		return RoleOperator, true
	case service == pb.OriginService_ServiceDesc.ServiceName && begins(rpc, "Get", "List", "Watch"):
		return RoleViewer, true
	case service == pb.OriginService_ServiceDesc.ServiceName && (rpc == "SetBreaker" || rpc == "ResetOrigin"):
		return RoleOperator, true
	}
	return "", false
}

// watches: the RPC is a stream that ends with the broker, since by itself it never would. A stream of a caller's own call ends with that call.
func watches(method string) bool {
	role, ok := roleFor(method)
	return ok && (role != RoleCaller || method == pb.DeferredService_WatchDeferredCalls_FullMethodName)
}

func begins(rpc string, words ...string) bool {
	for _, w := range words {
		if strings.HasPrefix(rpc, w) {
			return true
		}
	}
	return false
}

// may reports whether the identity has the role, or one that covers it.
func (i *identity) may(role Role) bool {
	switch {
	case i.all || slices.Contains(i.roles, role):
		return true
	case role == roleAsks:
		return i.may(RoleCaller) || i.may(RoleOperator)
	}
	return role == RoleViewer && slices.Contains(i.roles, RoleOperator)
}
