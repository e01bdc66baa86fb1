package broker

import (
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	pb "github.com/sallyport/sallyport/gen/go/sallyport/v1"
)

const absent = "/sallyport.v1.NothingService/Call"

// rawBroker starts a broker whose connections are in memory, in the bubble of the test.
func rawBroker(t *testing.T) *pipes {
	t.Helper()
	p := newPipes()
	start(t, setup{listener: p, sender: senderFunc(nil)})
	return p
}

func TestLimitsAreToldToTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := rawBroker(t)
		c := rawDial(t, p.dial(), false)
		synctest.Wait()
		settings := c.all(http2.FrameSettings)[0].settings
		for id, want := range map[http2.SettingID]uint32{
			http2.SettingMaxConcurrentStreams: 1000, http2.SettingMaxHeaderListSize: 16 << 10, http2.SettingInitialWindowSize: 64 << 10,
		} {
			if settings[id] != want {
				t.Errorf("%s is %d, want %d", id, settings[id], want)
			}
		}
		// The connection's window begins at 65535 and is raised by a WINDOW_UPDATE (RFC 9113 §6.9.2).
		if updates := c.all(http2.FrameWindowUpdate); len(updates) != 1 || updates[0].stream != 0 || updates[0].window != 1<<20-65535 {
			t.Errorf("window updates %+v", updates)
		}
	})
}

func TestStreamBeyondTheLimitIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := rawBroker(t)
		c := rawDial(t, p.dial(), false)
		stream := func(n int) uint32 { return uint32(2*n + 1) }
		for n := range 1000 {
			c.open(stream(n), pb.CallService_Call_FullMethodName, 0, false)
		}
		synctest.Wait()
		if resets := c.all(http2.FrameRSTStream); len(resets) != 0 {
			t.Fatalf("refused within the limit: %+v", resets[0])
		}
		c.open(stream(1000), pb.CallService_Call_FullMethodName, 0, false)
		synctest.Wait()
		// REFUSED_STREAM is proof that nothing was processed (RFC 9113 §8.7).
		resets := c.all(http2.FrameRSTStream)
		if len(resets) != 1 || resets[0].stream != stream(1000) || resets[0].code != http2.ErrCodeRefusedStream {
			t.Fatalf("resets %+v", resets)
		}
		c.write(func() error { return c.framer.WriteRSTStream(stream(0), http2.ErrCodeCancel) })
		synctest.Wait()
		c.open(stream(1001), absent, 0, true)
		synctest.Wait()
		if headers := c.all(http2.FrameHeaders); len(headers) != 1 || headers[0].stream != stream(1001) || !headers[0].end {
			t.Errorf("after one has left, answers %+v", headers)
		}
	})
}

func TestHeaderListBeyondTheLimitIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := rawBroker(t)
		c := rawDial(t, p.dial(), false)
		// The client knows the limit of 16 KiB and sends more all the same.
		c.open(1, absent, 14<<10, true)
		c.open(3, absent, 17<<10, true)
		c.open(5, absent, 0, true)
		synctest.Wait()
		var answered []uint32
		for _, h := range c.all(http2.FrameHeaders) {
			answered = append(answered, h.stream)
		}
		resets := c.all(http2.FrameRSTStream)
		if len(resets) != 1 || resets[0].stream != 3 {
			t.Errorf("resets %+v", resets)
		}
		if len(answered) != 2 {
			t.Errorf("answered streams %v, want 1 and 5", answered)
		}
	})
}

// Endless CONTINUATION frames are the flood that a limit of decoded fields alone does not stop.
func TestFloodOfHeaderFramesEndsTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := rawBroker(t)
		c := rawDial(t, p.dial(), false)
		start := time.Now()
		c.open(1, absent, 8<<20, true)
		<-c.gone
		if took := time.Since(start); took > time.Second {
			t.Errorf("ended after %s only", took)
		}
	})
}

func TestPingsTooOftenEndTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := rawBroker(t)
		c := rawDial(t, p.dial(), false)
		c.watch(1)
		for range 6 { // as often as is allowed while a call is in flight
			time.Sleep(minClientPing)
			c.ping()
		}
		synctest.Wait()
		if away := c.all(http2.FrameGoAway); len(away) != 0 {
			t.Fatalf("pings every %s: %+v", minClientPing, away)
		}
		for range 4 {
			time.Sleep(time.Second)
			c.ping()
		}
		<-c.gone
		away := c.all(http2.FrameGoAway)
		if len(away) != 1 || away[0].code != http2.ErrCodeEnhanceYourCalm || away[0].text != "too_many_pings" {
			t.Errorf("GOAWAY %+v", away)
		}
	})
}

func TestPingsWithoutCallsEndTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := rawBroker(t)
		c := rawDial(t, p.dial(), false)
		for range 4 { // PermitWithoutStream is false: no interval is long enough
			time.Sleep(time.Minute)
			c.ping()
		}
		<-c.gone
		if away := c.all(http2.FrameGoAway); len(away) != 1 || away[0].code != http2.ErrCodeEnhanceYourCalm {
			t.Errorf("GOAWAY %+v", away)
		}
	})
}

func TestSilentConnectionEndsAtTheHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := rawBroker(t)
		start := time.Now()
		conn := p.dial()
		for err := error(nil); err == nil; { // the server's own SETTINGS come first
			_, err = conn.Read(make([]byte, 64))
		}
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("ended after %s", took)
		}
		_ = conn.Close()
	})
}

func TestDeadPeerIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := rawBroker(t)
		start := time.Now()
		c := rawDial(t, p.dial(), true)
		c.open(1, pb.CallService_Call_FullMethodName, 0, false)
		<-c.gone
		if end, _ := c.ended(); end.Sub(start) != 40*time.Second {
			t.Errorf("ended after %s: a ping after 30s of silence, 10s for its answer", end.Sub(start))
		}
	})
}

func TestIdleConnectionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := rawBroker(t)
		start := time.Now()
		c := rawDial(t, p.dial(), false)
		<-c.gone
		away := c.all(http2.FrameGoAway)
		if len(away) == 0 || away[0].code != http2.ErrCodeNo || away[0].at.Sub(start) != 15*time.Minute {
			t.Errorf("GOAWAY %+v", away)
		}
	})
}

// An old connection is left at its age, and a call on it goes on: only one longer than any call may be is cut.
func TestOldConnectionIsLeftButNotCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := rawBroker(t)
		start := time.Now()
		c := rawDial(t, p.dial(), false)
		c.watch(1)
		<-c.gone
		away := c.all(http2.FrameGoAway)
		end, _ := c.ended()
		if len(away) == 0 || away[0].code != http2.ErrCodeNo {
			t.Fatalf("GOAWAY %+v", away)
		}
		if age := away[0].at.Sub(start); age < 27*time.Minute || age > 33*time.Minute {
			t.Errorf("left at the age of %s, want 30m ±10 %%", age)
		}
		// gRPC waits a second for the peer to read the last words.
		if grace := end.Sub(away[0].at); grace != time.Hour+time.Second {
			t.Errorf("cut %s after that", grace)
		}
	})
}
