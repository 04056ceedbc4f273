package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"muster/internal/await"
	"muster/internal/door"
	"muster/internal/need"
	"muster/wire"
	"muster/wire/client"
)

var quiet = slog.New(slog.DiscardHandler)

// world is a node with its gateway, and a relay on another machine.
type world struct {
	daemon  *testDaemon
	gateway *Gateway
	address string // of the gateway
	dir     string // certificates
	socket  string // of the relay
	user    *tls.Config
}

// certificates makes an authority with a node and a user.
func certificates(t testing.TB) (dir string) {
	t.Helper()
	dir = t.TempDir()
	authority, _, err := OpenAuthority(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := authority.Node([]string{"localhost", "127.0.0.1"}, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := authority.User("ada", 1); err != nil {
		t.Fatal(err)
	}
	return dir
}

func newWorld(t testing.TB, g wire.Geometry, change func(c *Config)) *world {
	t.Helper()
	dir := certificates(t)
	w := &world{daemon: startDaemon(t, g), dir: dir, socket: newSocket()}
	w.connect(t, w.daemon.socket, change)
	return w
}

// connect makes a gateway to a daemon, and a relay to that.
func (w *world) connect(t testing.TB, daemon string, change func(c *Config)) {
	t.Helper()
	nodeTLS, err := LoadDir(w.dir + "/node-localhost")
	if err != nil {
		t.Fatal(err)
	}
	w.user = w.userTLS(t)
	config := Config{Socket: daemon, TLS: nodeTLS, Log: quiet}
	if change != nil {
		change(&config)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.address = listener.Addr().String()
	w.gateway, err = New(listener.(*net.TCPListener), config)
	if err != nil {
		t.Fatal(err)
	}
	background(t, func(ctx context.Context) error {
		w.gateway.Serve(ctx)
		return nil
	})
	w.relay(t, w.socket, client.Remote{Dial: client.Dialler(w.address, w.user), Lane: client.LaneDialler(w.address, w.user), Token: config.Token})
}

func (w *world) userTLS(t testing.TB) *tls.Config {
	t.Helper()
	config, err := client.LoadTLS(w.dir + "/user-ada")
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// relay starts another relay.
func (w *world) relay(t testing.TB, socket string, remote client.Remote) {
	t.Helper()
	near := listen(t, socket)
	background(t, func(ctx context.Context) error { return client.Relay(ctx, near, remote, quiet) })
}

// background runs something until the test is over.
func background(t testing.TB, do func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- do(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(4 * time.Minute):
			buffer := make([]byte, 1<<20)
			t.Fatalf("it does not end:\n%s", buffer[:runtime.Stack(buffer, true)])
		}
	})
}

// program makes random calls and returns what it saw. Each of its streams has a
// part of the device and a part of the pinned memory, so that what it sees does
// not depend on who is faster.
type program struct {
	s      *client.Session
	random *rand.Rand
	saw    []string
}

const (
	streams  = 3
	partSize = 256 << 10
)

func (p *program) device(stream uint32, n int) uint64 {
	return p.s.Attached.ArenaBase + uint64(stream)*partSize + uint64(p.random.IntN(partSize-n))
}

func (p *program) pinned(stream uint32, n int) uint64 {
	g := p.s.Shared.Geometry()
	return g.Staging + g.Bounce + uint64(stream)*partSize + uint64(p.random.IntN(partSize-n))
}

func (p *program) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(p.random.Uint32())
	}
	return b
}

func (p *program) run(steps int) error {
	base := p.s.Attached.ArenaBase
	if result, err := p.s.Producer.Call(&wire.MemAlloc{Addr: base, Size: streams * partSize}, nil); err != nil || result != 0 {
		return fmt.Errorf("mem_alloc: %d, %w", result, err)
	}
	for stream := range uint32(streams) {
		if stream > 0 {
			const nonBlocking = 1
			if err := p.s.Producer.Post(&wire.StreamCreate{Stream: stream, Flags: nonBlocking}); err != nil {
				return err
			}
		}
		if err := p.s.Producer.Post(&wire.Fill{Dst: base + uint64(stream)*partSize, Width: 4, Count: partSize / 4, Height: 1, Stream: stream}); err != nil {
			return err
		}
	}
	for range steps {
		if err := p.step(); err != nil {
			return err
		}
	}
	for stream := range uint32(streams) {
		if err := p.look(stream); err != nil {
			return err
		}
	}
	result, err := p.s.Producer.Call(&wire.Synchronise{}, nil)
	p.note("end %d %d", result, p.s.Shared.Status())
	return err
}

func (p *program) step() error {
	producer, stream := p.s.Producer, p.random.Uint32N(streams)
	n := 1 + p.random.IntN(64<<10)
	none := wire.Header{Slot: -1}
	switch what := p.random.IntN(10); what {
	case 0, 1:
		m := &wire.CopyIn{Dst: p.device(stream, n), Stream: stream}
		none.Op = m.Op()
		return producer.SendData(none, m.Append(nil), p.bytes(n))
	case 2:
		return producer.Post(&wire.CopyInline{Dst: p.device(stream, n), Stream: stream, Data: p.bytes(n % 4096)})
	case 3:
		return producer.Post(&wire.Fill{Dst: p.device(stream, n) &^ 3, Value: p.random.Uint32(), Width: 4, Count: uint64(n / 4), Height: 1, Stream: stream})
	case 4:
		half := p.s.Attached.ArenaBase + uint64(stream)*partSize // from one to the other
		return producer.Post(&wire.CopyWithin{Dst: half + uint64(p.random.IntN(1000)), Src: half + partSize/2 + uint64(p.random.IntN(1000)), Size: uint64(n), Stream: stream})
	case 5, 6: // out to pinned memory, and perhaps in again from about there
		m := &wire.CopyOut{Src: p.device(stream, n), Stream: stream}
		h := wire.Header{Op: m.Op(), Slot: -1, Data: p.pinned(stream, n), Length: uint64(n)}
		if err := producer.Send(h, m.Append(nil)); err != nil || what == 6 {
			return err
		}
		return p.inFrom(stream, h.Data-h.Data%2000, n)
	case 7: // new contents of pinned memory: nothing may be on its way there
		if err := p.look(stream); err != nil {
			return err
		}
		at := p.pinned(stream, n)
		to, err := p.s.Shared.Data(at, uint64(n))
		if err != nil {
			return err
		}
		copy(to, p.bytes(n))
		return p.inFrom(stream, at, n)
	case 8: // out through a buffer for data on their way back
		m := &wire.CopyOut{Src: p.device(stream, n), Stream: stream}
		h := wire.Header{Op: m.Op(), Data: p.s.Shared.Geometry().Staging, Length: uint64(n)}
		pending, err := producer.Start(h, m.Append(nil))
		if err != nil {
			return err
		}
		result, _, err := pending.Wait()
		if err != nil {
			return err
		}
		data, err := p.s.Shared.Data(h.Data, h.Length)
		p.note("out %d %x", result, sha256.Sum256(data))
		return err
	default:
		return p.look(stream)
	}
}

func (p *program) inFrom(stream uint32, at uint64, n int) error {
	g := p.s.Shared.Geometry()
	first := g.Staging + g.Bounce + uint64(stream)*partSize
	at = min(max(at, first), first+partSize-uint64(n))
	m := &wire.CopyIn{Dst: p.device(stream, n), Stream: stream}
	return p.s.Producer.Send(wire.Header{Op: m.Op(), Slot: -1, Data: at, Length: uint64(n)}, m.Append(nil))
}

// look waits for a stream and looks at its pinned memory.
func (p *program) look(stream uint32) error {
	result, err := p.s.Producer.Call(&wire.StreamSynchronise{Stream: stream}, nil)
	if err != nil {
		return err
	}
	g := p.s.Shared.Geometry()
	data, err := p.s.Shared.Data(g.Staging+g.Bounce+uint64(stream)*partSize, partSize)
	p.note("stream %d %d %x", stream, result, sha256.Sum256(data))
	return err
}

func (p *program) note(format string, args ...any) {
	p.saw = append(p.saw, fmt.Sprintf(format, args...))
}

// runProgram runs one in a session of its own.
func runProgram(socket string, seed uint64, steps int) ([]string, error) {
	s, err := client.Attach(socket, client.Hello("test", 0), 0)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	p := &program{s: s, random: rand.New(rand.NewPCG(seed, 7))}
	err = p.run(steps)
	return p.saw, err
}

func TestRemoteIsLikeTheRing(t *testing.T) {
	w := newWorld(t, testGeometry, nil)
	sameResults(t, w.daemon.socket, w.socket, 8)
}

// sameResults runs programs at two sockets.
func sameResults(t *testing.T, direct, relayed string, seeds uint64) {
	t.Helper()
	for seed := range seeds {
		want, err := runProgram(direct, seed, 200)
		if err != nil {
			t.Fatal(err)
		}
		got, err := runProgram(relayed, seed, 200)
		if err != nil {
			t.Fatal(err)
		}
		if a, b := strings.Join(got, "\n"), strings.Join(want, "\n"); a != b || len(want) < 10 {
			t.Errorf("seed %d: remotely it saw\n%s\nand on the ring\n%s", seed, a, b)
		}
	}
}

func TestManyAtOnce(t *testing.T) {
	w := newWorld(t, testGeometry, nil)
	var all sync.WaitGroup
	for i := range uint64(20) {
		all.Go(func() {
			seed := i % 4
			got, err := runProgram(w.socket, seed, 40)
			if err != nil {
				t.Error(err)
				return
			}
			want, err := runProgram(w.daemon.socket, seed, 40)
			if err != nil {
				t.Error(err)
			}
			if strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("seed %d: other results", seed)
			}
		})
	}
	all.Wait()
}

func TestTheRecordsPassThrough(t *testing.T) {
	w := newWorld(t, testGeometry, nil)
	s := attachTo(t, w.socket)
	defer s.Close()
	want := attachTo(t, w.daemon.socket)
	defer want.Close()
	if s.Welcome != want.Welcome || s.Attached != want.Attached || fmt.Sprint(s.Devices) != fmt.Sprint(want.Devices) || s.Shared.Geometry() != want.Shared.Geometry() {
		t.Errorf("got %+v\nwant %+v", s, want)
	}
	if w.daemon.tokens[0] != "gateway:ada" {
		t.Errorf("the daemon heard the token %q", w.daemon.tokens[0])
	}
	for device, reason := range map[uint32]string{2: "there is no such device"} {
		_, err := client.Attach(w.socket, client.Hello("test", 0), device)
		var refused *wire.Refused
		if !errors.As(err, &refused) || refused.Result != 101 || refused.Reason != reason {
			t.Errorf("got %v", err)
		}
	}
	w.daemon.mu.Lock()
	w.daemon.refuse = &wire.Refused{Result: 2, Reason: "it is full"}
	w.daemon.mu.Unlock()
	if _, err := client.Attach(w.socket, client.Hello("test", 0), 0); err == nil || err.Error() != "it is full" {
		t.Errorf("got %v", err)
	}
}

func TestStatusPrintAndNames(t *testing.T) {
	w := newWorld(t, testGeometry, nil)
	s := attachTo(t, w.socket)
	defer s.Close()
	p, bounce := s.Producer, s.Shared.Geometry().Staging
	outCall := func(op wire.Op, length uint64, body []byte) ([]byte, []byte) {
		t.Helper()
		pending, err := p.Start(wire.Header{Op: op, Data: bounce, Length: length}, body)
		if err != nil {
			t.Fatal(err)
		}
		result, payload, err := pending.Wait()
		if err != nil || result != 0 {
			t.Fatal(result, err)
		}
		data, err := s.Shared.Data(bounce, length)
		if err != nil {
			t.Fatal(err)
		}
		return data, payload
	}
	if err := p.SendData(wire.Header{Op: wire.OpModuleData, Slot: -1}, (&wire.ModuleData{}).Append(nil), []byte("kernel\x00")); err != nil {
		t.Fatal(err)
	}
	names, payload := outCall(wire.OpModuleNames, 1<<20, (&wire.ModuleNames{}).Append(nil))
	var reply wire.ModuleNamesReply
	if err := reply.Decode(payload); err != nil || reply.Total != 7 || !bytes.HasPrefix(names, []byte("kernel\x00")) {
		t.Errorf("names: %+v, %v, %q", reply, err, names[:7])
	}
	// Nobody asks, and still it is known after a while.
	if err := p.Post(&wire.Launch{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "print is seen", s.Shared.Print)
	text, _ := outCall(wire.OpPrintFetch, 4096, nil)
	if !bytes.HasPrefix(text, []byte("printed")) || s.Shared.Print() {
		t.Errorf("printed: %q, %v", text[:10], s.Shared.Print())
	}
	if err := p.Post(&wire.Fill{Dst: 16, Count: 1}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the fault is seen", func() bool { return s.Shared.Status() == illegal })
	if got := s.Shared.Notices(); !slices.Equal(got, []string{"nothing is at 0x10"}) { // it came before the fault
		t.Errorf("of the fault it is said: %q", got)
	}
	if result, err := p.Call(&wire.Synchronise{}, nil); result != illegal || err != nil {
		t.Error(result, err)
	}
	for round := range 100 { // a reason comes before the answer that it explains
		if result, err := p.Call(&wire.Reset{}, nil); result != 0 || err != nil || s.Shared.Status() != 0 {
			t.Fatal(result, err, s.Shared.Status())
		}
		if err := p.Post(&wire.Fill{Dst: uint64(round), Count: 1}); err != nil {
			t.Fatal(err)
		}
		result, err := p.Call(&wire.StreamSynchronise{}, nil)
		if got := s.Shared.Notices(); result != illegal || err != nil || !slices.Equal(got, []string{fmt.Sprintf("nothing is at %#x", round)}) {
			t.Fatalf("round %d: %d, %v, and it is said: %q", round, result, err, got)
		}
	}
}

// A stream that waits for a function of the host does not hold up others, nor
// the message that lets it go on.
func TestHostFunctions(t *testing.T) {
	w := newWorld(t, testGeometry, nil)
	s := attachTo(t, w.socket)
	defer s.Close()
	p := s.Producer
	next, err := p.Start(wire.Header{Op: wire.OpHostNext}, nil)
	if err != nil {
		t.Fatal(err)
	}
	pinned := s.Shared.Geometry().Staging + s.Shared.Geometry().Bounce
	data, err := s.Shared.Data(pinned, 4)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []wire.Message{&wire.HostFunction{Stream: 1, Cookie: 77}, &wire.Fill{Dst: deviceBase, Value: 0x01020304, Count: 1, Stream: 1}} {
		if err := p.Post(m); err != nil {
			t.Fatal(err)
		}
	}
	out := &wire.CopyOut{Src: deviceBase, Stream: 1}
	if err := p.Send(wire.Header{Op: out.Op(), Slot: -1, Data: pinned, Length: 4}, out.Append(nil)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Call(&wire.StreamSynchronise{Stream: 2}, nil); err != nil {
		t.Fatal(err)
	}
	_, payload, err := next.Wait()
	var cookie wire.HostNextReply
	if err != nil || cookie.Decode(payload) != nil || cookie.Cookie != 77 {
		t.Fatal(cookie, err)
	}
	if data[0] != 0 {
		t.Error("the stream did not wait")
	}
	if err := p.Post(&wire.HostDone{Cookie: 77}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Call(&wire.StreamSynchronise{Stream: 1}, nil); err != nil || !bytes.Equal(data, []byte{4, 3, 2, 1}) {
		t.Errorf("got %x, %v", data, err)
	}
}

func TestTheReasonComesThrough(t *testing.T) {
	t.Run("from the worker", func(t *testing.T) {
		w := newWorld(t, testGeometry, nil)
		s := attachTo(t, w.socket)
		defer s.Close()
		if _, err := s.Producer.Call(&wire.MemAlloc{}, nil); err != nil {
			t.Fatal(err)
		}
		w.daemon.end(0, "the device is gone")
		if got := s.Wait(); got != "the device is gone" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("of a message that is wrong", func(t *testing.T) {
		w := newWorld(t, testGeometry, nil)
		s := attachTo(t, w.socket)
		defer s.Close()
		_, err := s.Producer.Call(&wire.EventSynchronise{}, nil)
		var closed *wire.ClosedError
		if want := "the program sent what it must not: event_synchronise: the test's worker does not know it"; !errors.As(err, &closed) || closed.Reason != want {
			t.Errorf("got %v", err)
		}
	})
	t.Run("of a message that is none", func(t *testing.T) {
		w := newWorld(t, testGeometry, nil)
		s := attachTo(t, w.socket)
		defer s.Close()
		if err := s.Producer.Send(wire.Header{Op: wire.OpReset, Slot: -1}, nil); err != nil {
			t.Fatal(err)
		}
		if got, want := s.Wait(), "the program sent what it must not: reset without a place for the answer"; got != want {
			t.Errorf("got %q", got)
		}
	})
	t.Run("of data out of bounds", func(t *testing.T) {
		for _, c := range []struct {
			op     wire.Op
			offset uint64
			want   string
		}{
			{wire.OpCopyOut, 1 << 40, "the program sent what it must not: copy_out with 4 bytes at 1099511627776 are not in the data arena of 73400320 bytes"},
			{wire.OpCopyIn, 1 << 40, "the program sent what it must not: copy_in with 4 bytes at 1099511627776 are not in the data arena of 73400320 bytes"},
			{wire.OpCopyOut, 100, "the program's side sent what it must not: copy_out: data at 100, in staging memory"},
		} {
			w := newWorld(t, testGeometry, nil)
			s := attachTo(t, w.socket)
			if err := s.Producer.Send(wire.Header{Op: c.op, Slot: -1, Data: c.offset, Length: 4}, (&wire.CopyOut{}).Append(nil)); err != nil {
				t.Fatal(err)
			}
			if got := s.Wait(); got != c.want {
				t.Errorf("got %q\nwant %q", got, c.want)
			}
			s.Close()
		}
	})
}

// When a program ends, its client at the node does.
func TestProgramsEnd(t *testing.T) {
	w := newWorld(t, testGeometry, nil)
	s := attachTo(t, w.socket)
	// It waits for an answer that never comes, and has messages under way.
	if _, err := s.Producer.Start(wire.Header{Op: wire.OpHostNext}, nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is served", func() bool { return w.daemon.clientsServed() == 1 })
	s.Close()
	eventually(t, "it is not served any more", func() bool { return w.daemon.clientsServed() == 0 })
}

var eventually = await.Until

// cutConn breaks after so many bytes in one direction.
type cutConn struct {
	net.Conn
	reads, writes *atomic.Int64
}

var errCut = errors.New("cut")

func (c cutConn) Write(b []byte) (int, error) {
	left := c.writes.Add(-int64(len(b)))
	if left >= 0 {
		return c.Conn.Write(b)
	}
	n, err := c.Conn.Write(b[:max(0, int64(len(b))+left)])
	if err == nil {
		err = errCut
	}
	c.Conn.Close()
	return n, err
}

func (c cutConn) Read(b []byte) (int, error) {
	left := c.reads.Load()
	if left <= 0 {
		c.Conn.Close()
		return 0, errCut
	}
	n, err := c.Conn.Read(b[:min(int64(len(b)), left)])
	c.reads.Add(-int64(n))
	return n, err
}

// smallProgram uses all kinds of frames.
func smallProgram(socket string) error {
	s, err := client.Attach(socket, client.Hello("test", 0), 0)
	if err != nil {
		return err
	}
	defer s.Close()
	p, g := s.Producer, s.Shared.Geometry()
	pinned := g.Staging + g.Bounce
	in, out := (&wire.CopyIn{Dst: deviceBase}).Append(nil), (&wire.CopyOut{Src: deviceBase}).Append(nil)
	for _, send := range []func() error{
		func() error { return p.SendData(wire.Header{Op: wire.OpCopyIn, Slot: -1}, in, make([]byte, 40)) },
		func() error {
			return p.Send(wire.Header{Op: wire.OpCopyIn, Slot: -1, Data: pinned, Length: 30}, in)
		},
		func() error {
			return p.Send(wire.Header{Op: wire.OpCopyOut, Slot: -1, Data: pinned, Length: 20}, out)
		},
		func() error {
			_, err := p.Call(&wire.Synchronise{}, nil)
			return err
		},
		func() error {
			pending, err := p.Start(wire.Header{Op: wire.OpCopyOut, Data: g.Staging, Length: 25}, out)
			if err != nil {
				return err
			}
			_, _, err = pending.Wait()
			return err
		},
	} {
		if err := send(); err != nil {
			return err
		}
	}
	return nil
}

// Wherever the connection is cut, that client ends with a reason if the node keeps no sessions, and
// nothing else does.
func TestCutAnywhere(t *testing.T) {
	w := newWorld(t, testGeometry, func(c *Config) { c.Limits.Keep = -1 })
	bystander := attachTo(t, w.socket)
	defer bystander.Close()
	if _, err := bystander.Producer.Call(&wire.Synchronise{}, nil); err != nil { // all that serve it are there
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	const plenty = 1 << 40
	var reads, writes atomic.Int64
	socket := newSocket()
	w.relay(t, socket, client.Remote{Dial: func(ctx context.Context) (net.Conn, error) {
		conn, err := client.Dialler(w.address, w.user)(ctx)
		return cutConn{conn, &reads, &writes}, err
	}})
	run := func(r, n int64) error {
		reads.Store(r)
		writes.Store(n)
		return smallProgram(socket)
	}
	if err := run(plenty, plenty); err != nil {
		t.Fatal(err)
	}
	sent, received := plenty-writes.Load(), plenty-reads.Load()
	check := func(which string, at int64, err error) {
		t.Helper()
		var closed *wire.ClosedError
		var refused *wire.Refused
		switch {
		case errors.As(err, &closed) && strings.HasPrefix(closed.Reason, "the connection to the node broke: "):
		case errors.As(err, &refused) && strings.HasPrefix(refused.Reason, "the node does not answer as a node does: "):
		case err == nil && (which == "reads" && at > received-100 || which == "writes" && at > sent-100): // what was cut were acknowledgements
		default:
			t.Errorf("%s cut after %d: %v", which, at, err)
		}
	}
	step := int64(need.Rounds(3, 1))
	if testing.Short() {
		step = 7
	}
	for at := int64(0); at < sent; at += step {
		// The last message may be lost without anybody noticing, but not its answer.
		check("writes", at, run(plenty, at))
	}
	for at := int64(0); at < received; at += step {
		check("reads", at, run(at, plenty))
	}
	if _, err := bystander.Producer.Call(&wire.Synchronise{}, nil); err != nil {
		t.Error("another client was hurt:", err)
	}
	eventually(t, "all clients are gone but one", func() bool { return w.daemon.clientsServed() == 1 })
	// The relay's own, and those of the bystander's calls.
	eventually(t, "no goroutines are left", func() bool { return runtime.NumGoroutine() <= before+4 })
}

func TestWhoMayCome(t *testing.T) {
	other := certificates(t)
	load := func(dir string) *tls.Config {
		c, err := client.LoadTLS(dir)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	with := func(c *tls.Config, change func(*tls.Config)) *tls.Config {
		c = c.Clone()
		change(c)
		return c
	}
	for _, c := range []struct {
		name   string
		node   func(c *Config)
		user   func(w *world) *tls.Config
		token  string
		want   string // "" for may
		daemon string // the token that the daemon hears, each time
	}{
		{"a certificate", nil, func(w *world) *tls.Config { return w.user }, "", "", "gateway:ada"},
		{"no certificate", nil, func(w *world) *tls.Config { return with(w.user, func(c *tls.Config) { c.Certificates = nil }) }, "", "show a certificate of its authority", ""},
		{"another authority's certificate", nil, func(w *world) *tls.Config {
			return with(load(other+"/user-ada"), func(c *tls.Config) { c.RootCAs = w.user.RootCAs })
		}, "", "tls: ", ""},
		{"another authority's node", nil, func(w *world) *tls.Config { return load(other + "/user-ada") }, "", "was made by another authority than the one that is believed here", ""},
		{"a node's certificate", nil, func(w *world) *tls.Config {
			return with(w.user, func(c *tls.Config) {
				pair, err := tls.LoadX509KeyPair(w.dir+"/node-localhost/node.pem", w.dir+"/node-localhost/node-key.pem")
				if err != nil {
					t.Fatal(err)
				}
				c.Certificates = []tls.Certificate{pair}
			})
		}, "", "is that of a muster node, not of a user", ""},
		{"TLS 1.2", nil, func(w *world) *tls.Config {
			return with(w.user, func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS12, tls.VersionTLS12 })
		}, "", "protocol version not supported", ""},
		{"another protocol", nil, func(w *world) *tls.Config {
			return with(w.user, func(c *tls.Config) { c.NextProtos = []string{"h2"} })
		}, "", "no application protocol", ""},
		{"certificate and token", func(c *Config) { c.Token = "secret" }, func(w *world) *tls.Config { return w.user }, "secret", "", "gateway:ada"},
		{"certificate and wrong token", func(c *Config) { c.Token = "secret" }, func(w *world) *tls.Config { return w.user }, "secres", "the node wants a token, and was given none or another: put the one that its administrator has into $MUSTER_TOKEN", ""},
		{"only the token", func(c *Config) { c.Token, c.TLS.ClientCAs = "secret", nil }, func(w *world) *tls.Config {
			return with(w.user, func(c *tls.Config) { c.Certificates = nil })
		}, "secret", "", "gateway:remote"},
		{"no token", func(c *Config) { c.Token, c.TLS.ClientCAs = "secret", nil }, func(w *world) *tls.Config {
			return with(w.user, func(c *tls.Config) { c.Certificates = nil })
		}, "", "the node wants a token, and was given none or another: put the one that its administrator has into $MUSTER_TOKEN", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, testGeometry, c.node)
			socket := newSocket()
			w.relay(t, socket, client.Remote{Dial: client.Dialler(w.address, c.user(w)), Token: c.token})
			s, err := client.Attach(socket, client.Hello("test", 0), 0)
			if err == nil {
				s.Close()
			}
			if got := fmt.Sprint(err); c.want == "" && err != nil || !strings.Contains(got, c.want) {
				t.Errorf("got %s, want %q", got, c.want)
			}
			w.daemon.mu.Lock()
			defer w.daemon.mu.Unlock()
			if got := strings.Join(slices.Compact(w.daemon.tokens), " "); got != c.daemon {
				t.Errorf("the daemon heard %q, want %q", got, c.daemon)
			}
		})
	}
}

func TestServeRefusesToBeOpenToAll(t *testing.T) {
	dir := certificates(t)
	good, err := LoadDir(dir + "/node-localhost")
	if err != nil {
		t.Fatal(err)
	}
	open := good.Clone()
	open.ClientCAs = nil
	for _, c := range []Config{{}, {TLS: &tls.Config{}}, {TLS: open}} {
		if _, err := New(nil, c); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
}

func TestMostConnections(t *testing.T) {
	w := newWorld(t, testGeometry, func(c *Config) { c.Limits.User = 2 })
	first, second := attachTo(t, w.socket), attachTo(t, w.socket)
	defer second.Close()
	_, err := client.Attach(w.socket, client.Hello("test", 0), 0)
	if want := "user ada has 2 programs' connections to this node, as many as allowed: wait until some have ended"; err == nil || err.Error() != want {
		t.Errorf("a third connection: %v", err)
	}
	first.Close()
	eventually(t, "there is room again", func() bool {
		s, err := client.Attach(w.socket, client.Hello("test", 0), 0)
		if err == nil {
			s.Close()
		}
		return err == nil
	})
}

// talker is a connection to a gateway that has a device.
type talker struct {
	*door.Resumable
	conn *tls.Conn
}

func (c talker) Write(b []byte) (int, error) {
	n, err := c.Resumable.Write(b)
	if err == nil {
		err = c.Flush()
	}
	return n, err
}

// conversation speaks to a gateway as the test wants.
func conversation(t *testing.T, w *world) (talker, *wire.FrameReader) {
	t.Helper()
	return conversationAs(t, w, client.Hello("test", 0))
}

// attached connects to a gateway up to its first frame, which says how long a side may be silent.
func attached(t *testing.T, w *world, hello wire.Hello) (*tls.Conn, time.Duration) {
	t.Helper()
	conn, err := tls.Dial("tcp", w.address, w.user)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(4 * time.Minute))
	if err := wire.WriteRecord(conn, &hello); err != nil {
		t.Fatal(err)
	}
	for _, m := range []wire.Message{&wire.Welcome{}, &wire.Device{}, &wire.Device{}} {
		if err := wire.ReadAs(conn, m); err != nil {
			t.Fatal(err)
		}
	}
	if err := wire.WriteRecord(conn, &wire.Attach{}); err != nil {
		t.Fatal(err)
	}
	if err := wire.ReadAs(conn, &wire.Attached{}); err != nil {
		t.Fatal(err)
	}
	f, err := wire.NewFrameReader(conn).Next()
	if err != nil || f.Kind != wire.FrameGeometry {
		t.Fatal(f, err)
	}
	return conn, time.Duration(f.Silence) * time.Millisecond
}

func conversationAs(t *testing.T, w *world, hello wire.Hello) (talker, *wire.FrameReader) {
	t.Helper()
	conn, silence := attached(t, w, hello)
	r := door.NewResumable(conn, nil, nil, door.Resuming{Silence: silence})
	t.Cleanup(func() { r.Close(); r.Wait() })
	return talker{r, conn}, wire.NewFrameReader(r)
}

// rawConversation is one whose segments the test makes itself.
func rawConversation(t *testing.T, w *world) *tls.Conn {
	t.Helper()
	conn, _ := attached(t, w, client.Hello("test", 0))
	return conn
}

func TestFramesThatAreWrong(t *testing.T) {
	w := newWorld(t, testGeometry, nil)
	message := func(change func(f *wire.Frame)) []byte {
		f := wire.Frame{Kind: wire.FrameMessage, Header: wire.Header{Op: wire.OpCopyIn, Slot: -1, Data: testGeometry.Staging, Length: 4}, Body: (&wire.CopyIn{}).Append(nil)}
		change(&f)
		return append(f.Append(nil), make([]byte, f.Bytes)...)
	}
	const wrong = "the program's side sent what it must not: "
	for _, c := range []struct {
		name string
		send []byte
		want string
	}{
		{"garbage", bytes.Repeat([]byte{0xa5}, 100), wrong + "a damaged frame: frame 165 of 2779096485 bytes"},
		{"a frame of the node's", (&wire.Frame{Kind: wire.FrameState}).Append(nil), wrong + "state where none is due"},
		{"out of order", message(func(f *wire.Frame) { f.Header.Seq = 3 }), wrong + "copy_in is message 3 where 0 was due"},
		{"data in staging memory", (&wire.Frame{Kind: wire.FrameData, Offset: 5, Bytes: 1}).Append(nil), wrong + "data at 5, in staging memory"},
		{"data out of bounds", (&wire.Frame{Kind: wire.FrameData, Offset: testGeometry.Arena(), Bytes: 1}).Append(nil), wrong + "1 bytes at 73400320 are not in the data arena of 73400320 bytes"},
		{"staged without its data", message(func(f *wire.Frame) { f.Header.Data = 0 }), wrong + "copy_in without its data"},
		{"pinned with data", message(func(f *wire.Frame) { f.Bytes = 4 }), wrong + "copy_in with data that are not staged"},
		{"pinned out of bounds", message(func(f *wire.Frame) { f.Header.Data = 1 << 50 }), wrong + "copy_in: 4 bytes at 1125899906842624 are not in the data arena of 73400320 bytes"},
		{"too much for staging", message(func(f *wire.Frame) { f.Header.Data, f.Header.Length, f.Bytes = 0, 3<<20, 3<<20 }), wrong + "copy_in with 3145728 bytes of data: send pieces of at most 2097152"},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, frames := conversation(t, w)
			if _, err := conn.Write(c.send); err != nil && !errors.Is(err, io.EOF) { // it may be ended already
				t.Fatal(err)
			}
			f, err := frames.Next()
			if err != nil || f.Kind != wire.FrameClosed || f.Reason != c.want {
				t.Errorf("got %v %q, %v\nwant %q", f.Kind, f.Reason, err, c.want)
			}
			if _, err := frames.Next(); !errors.Is(err, io.EOF) {
				t.Errorf("after the end came %v", err)
			}
			conn.Close()
		})
	}
	eventually(t, "all are gone", func() bool { return w.daemon.clientsServed() == 0 })
}

// Random bytes after a good beginning end that client, whatever they are.
func TestRandomFrames(t *testing.T) {
	w := newWorld(t, testGeometry, nil)
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 1))
		conn, frames := conversation(t, w)
		seq := uint32(0)
		for range 20 {
			ops := wire.Ops()
			f := wire.Frame{Kind: wire.FrameKind(1 + random.IntN(6)), Slot: -1, Header: wire.Header{
				Op: ops[random.IntN(len(ops))], Slot: random.IntN(257) - 1, Seq: seq, Data: random.Uint64N(1 << 27), Length: random.Uint64N(5000)},
				Offset: random.Uint64N(1 << 27), Body: make([]byte, random.IntN(60))}
			if random.IntN(2) == 0 {
				f.Bytes = f.Header.Length
			}
			if f.Kind == wire.FrameMessage {
				seq++
			}
			if _, err := conn.Write(append(f.Append(nil), make([]byte, f.Bytes)...)); err != nil {
				break
			}
		}
		_ = conn.conn.CloseWrite()
		for {
			f, err := frames.Next()
			if err == nil {
				err = frames.ReadBytes(make([]byte, f.Bytes))
			}
			var late net.Error
			if errors.As(err, &late) && late.Timeout() {
				t.Fatalf("seed %d: it hangs", seed)
			}
			if err != nil {
				break
			}
		}
	}
	eventually(t, "all are gone", func() bool { return w.daemon.clientsServed() == 0 })
}

func TestShutdownIsTold(t *testing.T) {
	dir := certificates(t)
	daemon := startDaemon(t, testGeometry)
	nodeTLS, err := LoadDir(dir + "/node-localhost")
	if err != nil {
		t.Fatal(err)
	}
	userTLS, err := client.LoadTLS(dir + "/user-ada")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	g, err := New(listener.(*net.TCPListener), Config{Socket: daemon.socket, TLS: nodeTLS, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		g.Serve(ctx)
	}()
	socket := newSocket()
	w := &world{}
	w.relay(t, socket, client.Remote{Dial: client.Dialler(listener.Addr().String(), userTLS)})
	s := attachTo(t, socket)
	defer s.Close()
	if err := g.Trouble(); err != nil {
		t.Error(err)
	}
	cancel()
	<-served
	if err := g.Trouble(); err == nil {
		t.Error("a gateway that has ended says that it is well")
	}
	if got := s.Wait(); got != "the node is shutting down" {
		t.Errorf("got %q", got)
	}
}

// The gateway has no way for a call with data that it takes.
func TestNoCallTakesData(t *testing.T) {
	for _, op := range wire.Ops() {
		if op.IsCall() && op.TakesData() {
			t.Errorf("%v is a call and takes data", op)
		}
	}
}
