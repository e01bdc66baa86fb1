package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

func newLogForNobody() *slog.Logger { return slog.New(slog.DiscardHandler) }

// rolesOf says for every RPC of a running broker which role it needs; "" is everybody. A new RPC gets its row here and in
// broker/roles.go, or stays closed.
func rolesOf() map[string]string {
	all := map[string]string{"grpc.health.v1.Health/Check": "", "grpc.health.v1.Health/List": "", "grpc.health.v1.Health/Watch": ""}
	for _, version := range []string{"v1", "v1alpha"} {
		all["grpc.reflection."+version+".ServerReflection/ServerReflectionInfo"] = ""
	}
	for role, rpcs := range map[string][]string{
		"caller": {
			"CallService/Call", "CallService/StreamCall", "CallService/FanOut", "DeferredService/SubmitDeferredCall", "DeferredService/GetDeferredCall",
			"DeferredService/ListDeferredCalls", "DeferredService/CancelDeferredCall", "DeferredService/RedriveDeferredCalls",
			"DeferredService/PurgeDeferredCalls", "DeferredService/WatchDeferredCalls",
		},
		"caller or operator": {"CallService/GetOperation", "CallService/ListOperations", "CallService/ReconcileOperation"},
		"viewer": {
			"PolicyService/GetPolicy", "PolicyService/ListPolicies", "PolicyService/ResolvePolicy", "PolicyService/ListPolicyRevisions", "PolicyService/WatchPolicies",
			"PolicyService/ListAuditRecords", "OriginService/ListOrigins", "OriginService/GetOrigin", "OriginService/WatchOrigins",
		},
		"operator": {
			"PolicyService/CreatePolicy", "PolicyService/UpdatePolicy", "PolicyService/DeletePolicy", "PolicyService/RollbackPolicy",
			"OriginService/SetBreaker", "OriginService/ResetOrigin",
		},
	} {
		for _, rpc := range rpcs {
			all["sallyport.v1."+rpc] = role
		}
	}
	return all
}

func dialAddr(t *testing.T, a net.Addr) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address(a), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// registered asks an endpoint itself for the RPCs of all its services, through reflection.
func registered(t *testing.T, conn *grpc.ClientConn) (rpcs []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(req *reflectionpb.ServerReflectionRequest) *reflectionpb.ServerReflectionResponse {
		t.Helper()
		if err := s.Send(req); err != nil {
			t.Fatal(err)
		}
		resp, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	list := ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
	for _, service := range list.GetListServicesResponse().GetService() {
		resp := ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: service.GetName()}})
		for _, raw := range resp.GetFileDescriptorResponse().GetFileDescriptorProto() {
			var file descriptorpb.FileDescriptorProto
			if err := proto.Unmarshal(raw, &file); err != nil {
				t.Fatal(err)
			}
			for _, found := range file.GetService() {
				if file.GetPackage()+"."+found.GetName() != service.GetName() {
					continue
				}
				for _, m := range found.GetMethod() {
					rpcs = append(rpcs, service.GetName()+"/"+m.GetName())
				}
			}
		}
	}
	return rpcs
}

// firstWord asks an RPC of any shape with an empty message and gives how it begins.
func firstWord(t *testing.T, conn *grpc.ClientConn, token, rpc string) (code codes.Code, reason string) {
	t.Helper()
	patience := 10 * time.Second
	if strings.HasSuffix(rpc, "/WatchDeferredCalls") { // says nothing until something changes
		patience = time.Second
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/"+rpc)
	if err != nil {
		t.Fatal(err)
	}
	_ = s.SendMsg(&emptypb.Empty{}) // how it ended is said below
	_ = s.CloseSend()
	err = s.RecvMsg(&emptypb.Empty{})
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			reason = info.GetReason()
		}
	}
	return status.Code(err), reason
}

// What a running broker has registered, on one listener and on two, is open to the role of its row and closed to all others.
func TestEveryRPCOfARunningBrokerIsForItsRoleAlone(t *testing.T) {
	table := rolesOf()
	for _, admin := range []string{"", "127.0.0.1:0"} {
		s := testSettings(t)
		s.Admin, s.Tokens = admin, filepath.Join(t.TempDir(), "tokens.yaml")
		text := "tokens:\n"
		roles := []string{"caller", "viewer", "operator"}
		for _, role := range roles {
			text += fmt.Sprintf("- {identity: %s, sha256: %x, roles: [%s]}\n", role, sha256.Sum256([]byte(role)), role)
		}
		replaceFile(t, s.Tokens, text)
		n := startTestNode(t, s)
		conns := []*grpc.ClientConn{dialAddr(t, n.grpc)}
		if n.admin != nil {
			conns = append(conns, dialAddr(t, n.admin))
		}
		seen := map[string]bool{}
		for _, conn := range conns {
			for _, rpc := range registered(t, conn) {
				seen[rpc] = true
				needs, ok := table[rpc]
				if !ok {
					t.Errorf("%s stands in no row", rpc)
					continue
				}
				for _, role := range append(slices.Clone(roles), "wrong", "") {
					want := codes.PermissionDenied
					switch {
					case needs == "" || needs == role || needs == "viewer" && role == "operator",
						needs == "caller or operator" && (role == "caller" || role == "operator"):
						want = codes.OK
					case role == "wrong" || role == "":
						want = codes.Unauthenticated
					}
					code, reason := firstWord(t, conn, role, rpc)
					closed := reason == "ROLE_REQUIRED" || reason == "UNAUTHENTICATED"
					if want == codes.OK && closed || want != codes.OK && (code != want || !closed) {
						t.Errorf("%s for %q: %v %s", rpc, role, code, reason)
					}
				}
			}
		}
		if !seen["sallyport.v1.CallService/Call"] || !seen["grpc.health.v1.Health/Check"] || len(seen) < 11 {
			t.Errorf("walked %v", seen)
		}
		if err := n.stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestAdminListenerServesNoCalls(t *testing.T) {
	s := testSettings(t)
	s.Admin = "127.0.0.1:0"
	n, log := logOf(t, s)
	admin := dialAddr(t, n.admin)
	if code, reason := firstWord(t, admin, "", "sallyport.v1.CallService/Call"); code != codes.Unimplemented || reason != "NOT_BUILT" {
		t.Errorf("a call on the admin listener: %v %s", code, reason)
	}
	if resp, err := healthpb.NewHealthClient(admin).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil || resp.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health: %v, %v", resp, err)
	}
	// The broker calls itself there as little as anywhere.
	resp, err := callFor(t, dialNode(t, n), "http://"+address(n.admin)+"/")
	if err != nil || resp.GetOutcome() != pb.Outcome_OUTCOME_DENIED {
		t.Errorf("%v, %v", resp.GetOutcome(), err)
	}
	if err := n.stop(t.Context()); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log(), " admin="+address(n.admin)) {
		t.Errorf("the log: %s", log())
	}
	if conn, err := net.Dial("tcp", address(n.admin)); err == nil {
		_ = conn.Close()
		t.Error("the admin listener outlives the drain")
	}
}

func TestStartThatFailsGivesTheAdminListenerBack(t *testing.T) {
	s := testSettings(t)
	s.Admin = "unix:" + filepath.Join(t.TempDir(), "admin.sock")
	s.Data = filepath.Join(t.TempDir(), "file")
	replaceFile(t, s.Data, "no directory")
	if _, err := startNode(t.Context(), s, newLogForNobody()); err == nil {
		t.Fatal("started")
	}
	if _, err := os.Stat(strings.TrimPrefix(s.Admin, "unix:")); !os.IsNotExist(err) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

func TestSocketIsOpenToOthersOnlyWhereTheyMustProveWhoTheyAre(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		args []string
		want string // "" is none
	}{
		{nil, ""},
		{[]string{"--socket-mode", "0600"}, ""},
		{[]string{"--socket-mode", "0660"}, "socket-mode: 0660 lets other users open the socket"},
		{[]string{"--socket-mode", "666", "--tokens", "t.yaml"}, ""},
		{[]string{"--socket-mode", "0660", "--client-ca", "ca.pem", "--tls-cert", "c", "--tls-key", "k"}, ""},
		{[]string{"--socket-mode", "rw", "--tokens", "t.yaml"}, `socket-mode: "rw": give an octal mode`},
		{[]string{"--socket-mode", "4777", "--tokens", "t.yaml"}, "give an octal mode"},
		{[]string{"--socket-mode", "0060", "--tokens", "t.yaml"}, "give an octal mode"},
		{[]string{"--client-ca", "ca.pem"}, "client-ca: a client certificate is shown over TLS only"},
	} {
		_, err := load(t, "", nil, tt.args...)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v, want %q", tt.args, err, tt.want)
		}
	}
	s := testSettings(t)
	s.GRPC, s.Admin, s.SocketMode = "unix:"+filepath.Join(dir, "g"), "unix:"+filepath.Join(dir, "a"), 0o660
	s.Tokens = filepath.Join(dir, "tokens.yaml")
	replaceFile(t, s.Tokens, fmt.Sprintf("tokens: [{identity: 'uid:%d', roles: [caller, operator]}]", os.Getuid()))
	n := startTestNode(t, s)
	for _, name := range []string{"g", "a"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o660 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	upstream := startUpstream(t, map[string][]reply{"/": {{status: 200, body: "hello"}}})
	if _, err := callFor(t, dialNode(t, n), upstream.url+"/"); err != nil {
		t.Errorf("the user who is named: %v", err)
	}
	if err := n.stop(t.Context()); err != nil {
		t.Error(err)
	}
}
