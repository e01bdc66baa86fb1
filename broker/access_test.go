package broker

import (
	"context"
	"crypto/sha256"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/sallyport/sallyport/call"
	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// known makes identities whose tokens are their names.
func known(roles map[string][]Role) *Identities {
	ids := &Identities{tokens: map[[sha256.Size]byte]identity{}}
	for name, r := range roles {
		ids.tokens[sha256.Sum256([]byte(name))] = identity{name: name, roles: r}
	}
	return ids
}

// everyRPC gives the full methods of CallService, from what is registered.
func everyRPC() (unary, streams []string) {
	d := pb.CallService_ServiceDesc
	for _, m := range d.Methods {
		unary = append(unary, "/"+d.ServiceName+"/"+m.MethodName)
	}
	for _, s := range d.Streams {
		streams = append(streams, "/"+d.ServiceName+"/"+s.StreamName)
	}
	return unary, streams
}

// ask calls a unary RPC with an empty message.
func ask(ctx context.Context, conn *grpc.ClientConn, method string) error {
	return conn.Invoke(ctx, method, &emptypb.Empty{}, &emptypb.Empty{})
}

// askStream opens a stream and waits for its first word.
func askStream(ctx context.Context, conn *grpc.ClientConn, method string) error {
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		return err
	}
	if err := s.CloseSend(); err != nil {
		return err
	}
	return s.RecvMsg(&emptypb.Empty{})
}

// refusals asks every RPC and expects one code and reason of all of them; of those that are built, what an empty message gets.
func refusals(ctx context.Context, t *testing.T, conn *grpc.ClientConn, code codes.Code, reason string, operator bool) {
	t.Helper()
	unary, streams := everyRPC()
	for _, m := range append(unary, streams...) {
		if role, _ := roleFor(m); role == roleAsks && code == codes.PermissionDenied && operator {
			continue // see roles_test.go
		}
		do := ask
		if strings.HasSuffix(m, "/StreamCall") {
			do = askStream
		}
		wantCode, wantReason := code, reason
		switch {
		case code != codes.Unimplemented:
		case strings.HasSuffix(m, "/ListOperations"):
			wantCode, wantReason = codes.OK, ""
		case m == pb.CallService_Call_FullMethodName, m == pb.CallService_FanOut_FullMethodName, m == pb.CallService_StreamCall_FullMethodName, strings.HasSuffix(m, "Operation"):
			wantCode, wantReason = codes.InvalidArgument, "INVALID_REQUEST"
		}
		if err := do(ctx, conn, m); status.Code(err) != wantCode || unsent(err) != wantReason {
			t.Errorf("%s: %v, unsent reason %q; want %v, %q", m, err, unsent(err), wantCode, wantReason)
		}
	}
	if len(unary) < 5 || len(streams) != 1 {
		t.Errorf("%d unary RPCs and %d streams", len(unary), len(streams))
	}
}

func TestOnlyTheRightRoleMayAsk(t *testing.T) {
	r := start(t, setup{identities: known(map[string][]Role{
		"caller": {RoleCaller}, "viewer": {RoleViewer}, "operator": {RoleOperator}, "all": {RoleViewer, RoleOperator, RoleCaller},
	})})
	for _, tt := range []struct {
		token  string
		code   codes.Code
		reason string
	}{
		{"caller", codes.Unimplemented, "NOT_BUILT"},
		{"all", codes.Unimplemented, "NOT_BUILT"},
		{"viewer", codes.PermissionDenied, "ROLE_REQUIRED"},
		{"operator", codes.PermissionDenied, "ROLE_REQUIRED"},
		{"nobody", codes.Unauthenticated, "UNAUTHENTICATED"},
	} {
		t.Run(tt.token, func(t *testing.T) {
			ctx := metadata.AppendToOutgoingContext(within(t), "authorization", "Bearer "+tt.token)
			refusals(ctx, t, r.conn, tt.code, tt.reason, tt.token == "operator")
		})
	}
	t.Run("no token", func(t *testing.T) { refusals(within(t), t, r.conn, codes.Unauthenticated, "UNAUTHENTICATED", false) })
}

func TestWithoutTokensEverybodyIsLocal(t *testing.T) {
	r := start(t, setup{})
	refusals(within(t), t, r.conn, codes.Unimplemented, "NOT_BUILT", false)
	if got := callerSeen(within(t), t, nil); got != "local" {
		t.Errorf("the caller is %q", got)
	}
}

func TestCallerIsTheOneOfTheToken(t *testing.T) {
	ctx := metadata.AppendToOutgoingContext(within(t), "authorization", "Bearer checkout", "caller", "ops")
	if got := callerSeen(ctx, t, known(map[string][]Role{"checkout": {RoleCaller}, "ops": {RoleOperator}})); got != "checkout" {
		t.Errorf("the caller is %q", got)
	}
}

// callerSeen makes a call and gives the caller that the engine was told.
func callerSeen(ctx context.Context, t *testing.T, ids *Identities) string {
	t.Helper()
	seen := make(chan string, 1) // receives one value, never closed
	r := start(t, setup{identities: ids, sender: senderFunc(func(_ context.Context, c *call.Call) call.Result {
		seen <- c.Caller
		return answered(200)
	})})
	if _, err := r.calls.Call(ctx, get("http://127.0.0.1/")); err != nil {
		t.Fatal(err)
	}
	return <-seen
}

// An RPC that stands in no table is closed to every role, and says for sure that nothing was sent.
func TestUnknownMethodIsRefused(t *testing.T) {
	r := start(t, setup{})
	for _, m := range []string{
		"/sallyport.v1.CallService/Nothing", "/sallyport.v1.NothingService/Call", "/sallyport.v1.CallService2/Call",
		"/grpc.health.v1.Health/Nothing", "/grpc.healthy/Check",
	} {
		if err := ask(within(t), r.conn, m); status.Code(err) != codes.Unimplemented || unsent(err) != "NOT_BUILT" {
			t.Errorf("%s: %v, unsent reason %q", m, err, unsent(err))
		}
	}
}

func TestRegisteredServiceWithoutARowIsClosed(t *testing.T) {
	a := &access{gate: newGate()}
	for _, m := range []string{"/sallyport.v1.AdminService/Delete", "sallyport.v1.CallService/Call", "", "//grpc.health.v1.Health/Check"} {
		_, err := a.unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: m}, func(context.Context, any) (any, error) {
			t.Errorf("%q was let in", m)
			return struct{}{}, nil
		})
		if unsent(err) == "" {
			t.Errorf("%q: %v", m, err)
		}
	}
}

// openToAll asks health and reflection, which need neither token nor role.
func openToAll(t *testing.T, conn *grpc.ClientConn, want healthpb.HealthCheckResponse_ServingStatus) {
	t.Helper()
	for _, service := range []string{"", "sallyport.v1.CallService"} {
		resp, err := healthpb.NewHealthClient(conn).Check(within(t), &healthpb.HealthCheckRequest{Service: service})
		if err != nil || resp.GetStatus() != want {
			t.Errorf("health of %q: %v, %v, want %v", service, resp.GetStatus(), err, want)
		}
	}
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	s, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	resp, err := s.Recv()
	if err != nil || !strings.Contains(resp.String(), "sallyport.v1.CallService") {
		t.Errorf("reflection: %v, %v", resp, err)
	}
}

func TestHealthAndReflectionNeedNoToken(t *testing.T) {
	r := start(t, setup{identities: known(map[string][]Role{"caller": {RoleCaller}})})
	openToAll(t, r.conn, healthpb.HealthCheckResponse_SERVING)
}
