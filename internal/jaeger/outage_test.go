package jaeger

import (
	"net/http"
	"slices"
	"testing"

	"golang.org/x/sync/errgroup"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

// Without Jaeger calls go on and the log counts what is lost; with it back, later calls are shown again.
func TestCallsGoOnWithoutJaeger(t *testing.T) {
	j := startJaeger(t)
	up := startUpstream(t, map[string][]habit{"/": {answer(200)}})
	b := startBroker(t, j.otlp["grpc"], "OTEL_EXPORTER_OTLP_TIMEOUT=1000", "OTEL_BSP_MAX_QUEUE_SIZE=8", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=4")
	made := 0
	call := func() (place, *pb.CallResponse) {
		from := caller(made)
		made++
		resp := b.call(t, from.sampled(), request("GET", up.URL+"/"))
		if resp.GetOutcome() != pb.Outcome_OUTCOME_SUCCESS {
			t.Fatalf("%v", resp)
		}
		return from, resp
	}
	from, resp := call()
	j.tree(t, from, resp)

	j.Kill()
	for range 50 {
		call()
	}
	b.Await(t, `level=WARN msg="spans are lost: the export failed" spans=\d+ error=`)
	b.Await(t, `level=WARN msg="spans are lost: the queue was full" spans=\d+ total=\d+`)

	if !j.run(t) {
		t.Fatalf("Jaeger does not come back:\n%s", j.Log())
	}
	back := j.until(func() bool { // the connection is tried again after a second or so
		call()
		return slices.Contains(j.names(t, "/services"), "sallyport")
	})
	if !back {
		t.Errorf("%d calls on, nothing is shown", made)
	}
}

// The last spans, of a call in flight included, are exported when the broker ends.
func TestLastSpansAreExportedAtTheEnd(t *testing.T) {
	j := startJaeger(t)
	arrived, release := make(chan struct{}), make(chan struct{})
	up := startUpstream(t, map[string][]habit{"/": {answer(200)}, "/slow": {func(http.ResponseWriter, *http.Request) {
		close(arrived)
		<-release
	}}})
	b := startBroker(t, j.otlp["grpc"], "OTEL_BSP_SCHEDULE_DELAY=600000")
	done := b.call(t, caller(0).sampled(), request("GET", up.URL+"/"))
	var last *pb.CallResponse
	var inFlight errgroup.Group
	inFlight.Go(func() (err error) {
		last, err = b.try(t, caller(1).sampled(), request("GET", up.URL+"/slow"))
		return err
	})
	<-arrived
	if names := j.names(t, "/services"); len(names) != 0 {
		t.Errorf("%q are shown before", names)
	}
	b.Ask()
	b.Await(t, `msg="draining;`)
	close(release)
	if err := inFlight.Wait(); err != nil {
		t.Fatal(err)
	}
	b.End(t)
	j.tree(t, caller(0), done)
	j.tree(t, caller(1), last)
}
