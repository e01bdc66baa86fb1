package broker

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// rows says for every RPC whom it is for; "" is everybody.
func rows() map[string]Role {
	all := map[string]Role{
		"/grpc.health.v1.Health/Check": "", "/grpc.health.v1.Health/List": "", "/grpc.health.v1.Health/Watch": "",
		"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo": "", "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": "",
	}
	for role, methods := range map[Role]string{
		RoleCaller: "CallService: Call StreamCall FanOut\n" +
			"DeferredService: SubmitDeferredCall GetDeferredCall ListDeferredCalls CancelDeferredCall RedriveDeferredCalls PurgeDeferredCalls WatchDeferredCalls",
		roleAsks:     "CallService: GetOperation ListOperations ReconcileOperation",
		RoleViewer:   "PolicyService: GetPolicy ListPolicies ResolvePolicy ListPolicyRevisions WatchPolicies ListAuditRecords\nOriginService: ListOrigins GetOrigin WatchOrigins",
		RoleOperator: "PolicyService: CreatePolicy UpdatePolicy DeletePolicy RollbackPolicy\nOriginService: SetBreaker ResetOrigin",
	} {
		for line := range strings.Lines(methods) {
			service, rpcs, _ := strings.Cut(line, ":")
			for rpc := range strings.FieldsSeq(rpcs) {
				all["/sallyport.v1."+service+"/"+rpc] = role
			}
		}
	}
	return all
}

// administering makes the services that administer, of the RPCs in rows: each answers an empty message, and those that watch wait.
func administering() []Service {
	services := map[string]*Service{}
	for _, method := range slices.Sorted(maps.Keys(rows())) {
		name, rpc, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
		if name != pb.PolicyService_ServiceDesc.ServiceName && name != pb.OriginService_ServiceDesc.ServiceName {
			continue
		}
		s, ok := services[name]
		if !ok {
			s = &Service{Desc: grpc.ServiceDesc{ServiceName: name, HandlerType: (*any)(nil)}, Impl: struct{}{}}
			services[name] = s
		}
		if strings.HasPrefix(rpc, "Watch") {
			s.Desc.Streams = append(s.Desc.Streams, grpc.StreamDesc{StreamName: rpc, ServerStreams: true, Handler: watch})
			continue
		}
		s.Desc.Methods = append(s.Desc.Methods, grpc.MethodDesc{MethodName: rpc, Handler: func(_ any, ctx context.Context, dec func(any) error, in grpc.UnaryServerInterceptor) (any, error) {
			if err := dec(&emptypb.Empty{}); err != nil {
				return nil, err
			}
			return in(ctx, nil, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) { return &emptypb.Empty{}, nil })
		}})
	}
	return []Service{*services[pb.OriginService_ServiceDesc.ServiceName], *services[pb.PolicyService_ServiceDesc.ServiceName]}
}

// watch says a word at once, and no more.
func watch(_ any, ss grpc.ServerStream) error {
	if err := ss.RecvMsg(&emptypb.Empty{}); err != nil {
		return err
	}
	if err := ss.SendMsg(&emptypb.Empty{}); err != nil {
		return err
	}
	<-ss.Context().Done()
	return ss.Context().Err()
}

// askAny asks an RPC of any shape for its first word.
func askAny(ctx context.Context, conn *grpc.ClientConn, method string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if method == pb.DeferredService_WatchDeferredCalls_FullMethodName { // says nothing until something changes
		ctx, cancel = context.WithTimeout(ctx, time.Second)
		defer cancel()
	}
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		return err
	}
	if err := s.SendMsg(&emptypb.Empty{}); err != nil && !errors.Is(err, io.EOF) { // ended already: what is received says why
		return err
	}
	if err := s.CloseSend(); err != nil {
		return err
	}
	return s.RecvMsg(&emptypb.Empty{})
}

// Every RPC of every service that is registered, with every role and with none.
func TestEveryRPCIsForTheRolesOfItsRowAlone(t *testing.T) {
	who := map[string][]Role{"nobody": nil, "no-role": {}, "caller": {RoleCaller}, "viewer": {RoleViewer}, "operator": {RoleOperator}}
	held := known(who)
	delete(held.tokens, sha256.Sum256([]byte("nobody")))
	r := start(t, setup{identities: held, deferral: true, with: func(c *ServerConfig) { c.Services = administering() }})
	asked := 0
	table := rows()
	for service, info := range r.server.main.grpc.GetServiceInfo() {
		for _, m := range info.Methods {
			method := "/" + service + "/" + m.Name
			needs, ok := table[method]
			if !ok {
				t.Errorf("%s stands in no row", method)
				continue
			}
			for token, roles := range who {
				asked++
				err := askAny(metadata.AppendToOutgoingContext(within(t), "authorization", "Bearer "+token), r.conn, method)
				allowed := needs == "" || slices.Contains(roles, needs) || needs == RoleViewer && slices.Contains(roles, RoleOperator) ||
					needs == roleAsks && (slices.Contains(roles, RoleCaller) || slices.Contains(roles, RoleOperator))
				switch code, reason := status.Code(err), unsent(err); {
				case allowed && (reason == "UNAUTHENTICATED" || reason == "ROLE_REQUIRED"):
					t.Errorf("%s is closed to %s: %v", method, token, err)
				case allowed && (needs == RoleViewer || needs == RoleOperator) && err != nil:
					t.Errorf("%s for %s: %v", method, token, err)
				case allowed:
				case token == "nobody" && (code != codes.Unauthenticated || reason != "UNAUTHENTICATED"):
					t.Errorf("%s for nobody: %v", method, err)
				case token != "nobody" && (code != codes.PermissionDenied || reason != "ROLE_REQUIRED" || status.Convert(err).Message() != "needs the role "+string(needs)):
					t.Errorf("%s for %s: %v", method, token, err)
				}
			}
		}
	}
	if asked != len(table)*len(who) {
		t.Errorf("%d questions were asked; %d rows and %d callers", asked, len(table), len(who))
	}
}

func TestWhatStandsInNoRowIsForNobody(t *testing.T) {
	for _, m := range []string{
		"/sallyport.v1.PolicyService/", "/sallyport.v1.PolicyService/Purge", "/sallyport.v1.PolicyService/getPolicy", "/sallyport.v1.PolicyService/SetBreaker",
		"/sallyport.v1.OriginService/DeleteOrigin", "/sallyport.v1.OriginService/SetBreakers", "/sallyport.v1.OriginService/ResolveOrigin", "/sallyport.v1.OriginService/x/GetOrigin",
		"/sallyport.v1.OriginService2/GetOrigin", "/sallyport.v2.PolicyService/GetPolicy", "sallyport.v1.PolicyService/GetPolicy", "/PolicyService/GetPolicy", "/", "",
	} {
		if role, ok := roleFor(m); ok {
			t.Errorf("%q is for %s", m, role)
		}
	}
	// A service that is registered and stands in no row is closed to those who may do everything.
	r := start(t, setup{with: func(c *ServerConfig) {
		s := administering()[0]
		s.Desc.ServiceName = "sallyport.v1.OtherService"
		c.Services = []Service{s}
	}})
	for _, rpc := range []string{"GetOrigin", "SetBreaker", "WatchOrigins"} {
		if err := askAny(within(t), r.conn, "/sallyport.v1.OtherService/"+rpc); status.Code(err) != codes.Unimplemented || unsent(err) != "NOT_BUILT" {
			t.Errorf("%s: %v", rpc, err)
		}
	}
}

// startApart is a broker whose services that administer have a listener of their own.
func startApart(t *testing.T) (r *running, admin *grpc.ClientConn) {
	t.Helper()
	r = start(t, setup{sender: senderFunc(nil), deferral: true, with: func(c *ServerConfig) { c.Services, c.Apart = administering(), true }})
	l, dialer := listen(t, false)
	served := make(chan error, 1) // receives one value, never closed
	go func() { served <- r.server.ServeAdmin(l) }()
	t.Cleanup(func() {
		r.server.Drain(t.Context()) // which has ended by now
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return r, dial(t, dialer)
}

func TestServicesThatStandApartAreServedThereAlone(t *testing.T) {
	r, admin := startApart(t)
	for method, role := range rows() {
		if role == "" {
			continue
		}
		here, there := r.conn, admin
		if role != RoleCaller && role != roleAsks {
			here, there = admin, r.conn
		}
		if err := askAny(within(t), there, method); status.Code(err) != codes.Unimplemented || unsent(err) != "NOT_BUILT" || !strings.Contains(err.Error(), "another listener") {
			t.Errorf("%s on the other listener: %v", method, err)
		}
		if err := askAny(within(t), here, method); unsent(err) == "NOT_BUILT" && strings.Contains(err.Error(), "listener") || role != RoleCaller && role != roleAsks && err != nil {
			t.Errorf("%s on its own listener: %v", method, err)
		}
	}
	if err := askAny(within(t), admin, "/sallyport.v1.NothingService/Get"); status.Code(err) != codes.Unimplemented || strings.Contains(err.Error(), "listener") {
		t.Errorf("a service that is nowhere: %v", err)
	}
	for _, tt := range []struct {
		name         string
		conn         *grpc.ClientConn
		serves, lack string
	}{{"calls", r.conn, "sallyport.v1.CallService", pb.PolicyService_ServiceDesc.ServiceName}, {"admin", admin, pb.PolicyService_ServiceDesc.ServiceName, "sallyport.v1.CallService"}} {
		client := healthpb.NewHealthClient(tt.conn)
		for _, service := range []string{"", tt.serves} {
			if resp, err := client.Check(within(t), &healthpb.HealthCheckRequest{Service: service}); err != nil || resp.GetStatus() != healthpb.HealthCheckResponse_SERVING {
				t.Errorf("%s: health of %q: %v, %v", tt.name, service, resp, err)
			}
		}
		if _, err := client.Check(within(t), &healthpb.HealthCheckRequest{Service: tt.lack}); status.Code(err) != codes.NotFound {
			t.Errorf("%s: health of %q: %v", tt.name, tt.lack, err)
		}
		if got := reflected(t, tt.conn); !strings.Contains(got, tt.serves) || strings.Contains(got, tt.lack) {
			t.Errorf("%s: reflection lists %s", tt.name, got)
		}
	}
}

// reflected lists the services that an endpoint tells of.
func reflected(t *testing.T, conn *grpc.ClientConn) string {
	t.Helper()
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
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(resp.GetListServicesResponse())
}

// A watch never ends by itself: a drain sends it home with the word that others get, on both listeners, and waits for nobody.
func TestDrainSendsWatchersHome(t *testing.T) {
	for _, apart := range []bool{false, true} {
		t.Run(fmt.Sprint(apart), func(t *testing.T) {
			var r *running
			var conn *grpc.ClientConn
			if apart {
				r, conn = startApart(t)
			} else {
				r = start(t, setup{with: func(c *ServerConfig) { c.Services = administering() }})
				conn = r.conn
			}
			s, err := conn.NewStream(within(t), &grpc.StreamDesc{ServerStreams: true}, "/sallyport.v1.PolicyService/WatchPolicies")
			if err != nil {
				t.Fatal(err)
			}
			if err := s.SendMsg(&emptypb.Empty{}); err != nil {
				t.Fatal(err)
			}
			if err := s.CloseSend(); err != nil {
				t.Fatal(err)
			}
			if err := s.RecvMsg(&emptypb.Empty{}); err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			r.server.Drain(within(t))
			if took := time.Since(begin); took > lastReplies/2 {
				t.Errorf("the drain took %v: it waited for the watch", took)
			}
			if err := s.RecvMsg(&emptypb.Empty{}); status.Code(err) != codes.Unavailable || unsent(err) != "DRAINING" {
				t.Errorf("the watch ended with %v", err)
			}
		})
	}
}

// The one message of a watch is received within the limits of all messages.
func TestWatchThatSaysNothingIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, setup{memory: true, with: func(c *ServerConfig) { c.Services = administering() }})
		refusedAsLate(t, unsentMessage(t.Context(), t, r.conn, "/sallyport.v1.PolicyService/WatchPolicies"), "30s")
	})
}
