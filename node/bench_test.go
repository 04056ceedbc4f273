package node

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"muster/device"
	"muster/device/soft"
	"muster/node/gateway"
	"muster/node/settings"
	"muster/wire"
	clientside "muster/wire/client"
	"muster/wire/control"
)

// The same calls three ways: on a device of this process, through the ring to a
// worker process, and over TCP and TLS to such a ring.
var ways = []struct {
	name string
	open func(b *testing.B) way
}{
	{"direct", func(b *testing.B) way { return openDirect(b) }},
	{"ring", func(b *testing.B) way { return openRing(b, startBench(b, 2).socket) }},
	{"tcp", func(b *testing.B) way { return openRing(b, startRelay(b)) }},
}

// way is what a program does, however it gets there. Memory for copies begins at
// the arena's base.
type way interface {
	launch() error
	synchronise() error
	in(data []byte) error
	out(data []byte) error
	query() error
	record() error
	memory() error // allocates a mebibyte and frees it
}

const benchCopy = 64 << 20

// BenchmarkCall is what calls cost. Those that wait for nothing are waited for at
// the end.
func BenchmarkCall(b *testing.B) {
	word := make([]byte, 4)
	calls := []struct {
		name string
		do   func(w way) error
	}{
		{"launch", way.launch},
		{"launch and synchronise", func(w way) error {
			if err := w.launch(); err != nil {
				return err
			}
			return w.synchronise()
		}},
		{"synchronise", way.synchronise},
		{"copy 4 bytes in", func(w way) error { return w.in(word) }},
		{"copy 4 bytes out", func(w way) error { return w.out(word) }},
		{"query a stream", way.query},
		{"record an event", way.record},
		{"allocate and free 1 MiB", way.memory},
	}
	for _, by := range ways {
		b.Run(by.name, func(b *testing.B) {
			w := by.open(b)
			for _, c := range calls {
				b.Run(c.name, func(b *testing.B) {
					for b.Loop() {
						must(b, c.do(w))
					}
					must(b, w.synchronise())
				})
			}
		})
	}
}

// BenchmarkCopy is how fast data get in and out, beside what memory and TLS do by
// themselves.
func BenchmarkCopy(b *testing.B) {
	data := make([]byte, benchCopy)
	for i := range data {
		data[i] = byte(i)
	}
	b.Run("memory", func(b *testing.B) {
		to := make([]byte, benchCopy)
		copy(to, data)
		b.SetBytes(benchCopy)
		for b.Loop() {
			copy(to, data)
		}
	})
	b.Run("tls", func(b *testing.B) {
		send := openTLS(b, benchCopy)
		b.SetBytes(benchCopy)
		for b.Loop() {
			must(b, send(data))
		}
	})
	b.Run("tcp of tls", func(b *testing.B) { benchRatio(b, data) })
	for _, by := range ways {
		b.Run(by.name, func(b *testing.B) {
			w := by.open(b)
			b.Run("in", func(b *testing.B) {
				b.SetBytes(benchCopy)
				for b.Loop() {
					must(b, w.in(data))
					must(b, w.synchronise())
				}
			})
			b.Run("out", func(b *testing.B) {
				b.SetBytes(benchCopy)
				for b.Loop() {
					must(b, w.out(data))
				}
			})
		})
	}
}

// BenchmarkAttach is from connecting to the first answer of a worker, which was
// there before or is started.
func BenchmarkAttach(b *testing.B) {
	for _, c := range []struct {
		name   string
		warm   int
		orphan time.Duration // the client is written down, to outlive the daemon
	}{{"warm", 1, 0}, {"cold", 0, 0}, {"warm and kept", 1, time.Minute}} {
		b.Run(c.name, func(b *testing.B) {
			f := startBenchWith(b, c.warm, c.orphan)
			b.StopTimer()
			for range b.N {
				time.Sleep(100 * time.Millisecond) // the node starts the next worker
				b.StartTimer()
				p, err := connect(f.socket, hello(), 0)
				must(b, err)
				result, err := p.Call(&wire.Synchronise{}, nil)
				b.StopTimer()
				must(b, refused(result, err))
				p.leave()
				p.shared.Unmap()
			}
		})
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func refused(result int32, err error) error {
	if err == nil && result != 0 {
		err = fmt.Errorf("result %d", result)
	}
	return err
}

// startBench starts a daemon with one device and real workers.
func startBench(b *testing.B, warm int) *fixture { return startBenchWith(b, warm, 0) }

func startBenchWith(b *testing.B, warm int, orphan time.Duration) *fixture {
	cfg := testConfig()
	cfg.Warm = warm
	cfg.OrphanGrace, cfg.State = orphan, filepath.Join(b.TempDir(), "state")
	cfg.Devices = []settings.Device{{DeviceConfig: control.DeviceConfig{Kind: "soft", Name: "Bench", Memory: 512 << 20, Speed: 1, Workers: 1}}}
	opts := testOptions()
	opts.WorkerCommand = workerCommand("real worker")
	return runWith(b, cfg, opts)
}

// --- on a device of this process ----------------------------------------------

type direct struct {
	context device.Context
	stream  device.Stream
	kernel  device.Function
	event   device.Event
}

const (
	emptyKernel = ".version 6.4\n.target sm_70\n.address_size 64\n.visible .entry nothing()\n{\n\tret;\n}\n"
	directBase  = 0x0300_0000_0000
)

func openDirect(b *testing.B) *direct {
	b.Helper()
	gpu, err := soft.New(soft.Profile{Name: "Bench", Memory: 512 << 20, Speed: 1, Workers: 1}, soft.Options{})
	must(b, err)
	d := &direct{}
	d.context, err = gpu.Open(device.Config{Arena: device.Arena{Base: directBase, Size: 1 << 30}})
	must(b, err)
	b.Cleanup(func() { _ = d.context.Close() })
	must(b, d.context.Map(directBase, benchCopy))
	d.stream, err = d.context.NewStream()
	must(b, err)
	d.event, err = d.context.NewEvent()
	must(b, err)
	module, err := d.context.Load([]byte(emptyKernel))
	must(b, err)
	d.kernel, err = module.Function("nothing")
	must(b, err)
	return d
}

func (d *direct) launch() error {
	one := device.Dim{X: 1, Y: 1, Z: 1}
	return d.stream.Launch(d.kernel, device.Launch{Grid: one, Block: one})
}

func (d *direct) synchronise() error   { return d.context.Synchronise(context.Background()) }
func (d *direct) in(data []byte) error { return d.stream.CopyIn(directBase, data) }

func (d *direct) out(data []byte) error {
	if err := d.stream.CopyOut(data, directBase); err != nil {
		return err
	}
	return d.stream.Synchronise(context.Background())
}

func (d *direct) query() error {
	_, err := d.stream.Done()
	return err
}

func (d *direct) record() error { return d.stream.Record(d.event) }

// A device has memory in pieces of 2 MiB.
func (d *direct) memory() error {
	const at, size = directBase + 2*benchCopy, 2 << 20
	if err := d.context.Map(at, size); err != nil {
		return err
	}
	return d.context.Unmap(at, size)
}

// --- through a ring -------------------------------------------------------------

// ringed does what the library in C does.
type ringed struct {
	session *clientside.Session
	base    uint64
	bounce  uint64
}

const inFlight = 4

func openRing(b *testing.B, socket string) *ringed {
	b.Helper()
	session, err := clientside.Attach(socket, clientside.Hello("bench", 0), 0)
	must(b, err)
	b.Cleanup(session.Close)
	r := &ringed{session: session, base: session.Attached.ArenaBase, bounce: session.Shared.Geometry().Staging}
	p := session.Producer
	must(b, refused(p.Call(&wire.MemAlloc{Addr: r.base, Size: benchCopy}, nil)))
	must(b, p.SendData(wire.Header{Op: wire.OpModuleData, Slot: -1}, (&wire.ModuleData{Module: 1}).Append(nil), []byte(emptyKernel)))
	must(b, refused(p.Call(&wire.ModuleLoad{Module: 1}, nil)))
	pending, err := p.Start(wire.Header{Op: wire.OpModuleFunction, Data: r.bounce, Length: 1024}, (&wire.ModuleFunction{Module: 1, Function: 1, Name: "nothing"}).Append(nil))
	must(b, err)
	result, _, err := pending.Wait()
	must(b, refused(result, err))
	must(b, p.Post(&wire.EventCreate{Event: 1}))
	must(b, r.launch()) // from now on there is a device, with the memory on it
	must(b, r.synchronise())
	return r
}

func (r *ringed) call(m wire.Message) error { return refused(r.session.Producer.Call(m, nil)) }

func (r *ringed) launch() error {
	return r.session.Producer.Post(&wire.Launch{Function: 1, GridX: 1, GridY: 1, GridZ: 1, BlockX: 1, BlockY: 1, BlockZ: 1})
}

func (r *ringed) synchronise() error { return r.call(&wire.Synchronise{}) }

func (r *ringed) in(data []byte) error {
	if len(data) < 1024 {
		return r.session.Producer.Post(&wire.CopyInline{Dst: r.base, Data: data})
	}
	for at := 0; at < len(data); at += wire.MaxPiece {
		m := wire.CopyIn{Dst: r.base + uint64(at)}
		piece := data[at:min(at+wire.MaxPiece, len(data))]
		if err := r.session.Producer.SendData(wire.Header{Op: m.Op(), Slot: -1}, m.Append(nil), piece); err != nil {
			return err
		}
	}
	return nil
}

func (r *ringed) out(data []byte) error {
	var pending [inFlight]*wire.Pending
	asked := 0
	for done := 0; done < len(data); done += wire.BounceBuffer {
		for ; asked < len(data) && asked < done+inFlight*wire.BounceBuffer; asked += wire.BounceBuffer {
			m := wire.CopyOut{Src: r.base + uint64(asked)}
			p, err := r.session.Producer.Start(wire.Header{Op: m.Op(), Data: r.buffer(asked), Length: uint64(min(wire.BounceBuffer, len(data)-asked))}, m.Append(nil))
			if err != nil {
				return err
			}
			pending[asked/wire.BounceBuffer%inFlight] = p
		}
		result, _, err := pending[done/wire.BounceBuffer%inFlight].Wait()
		if err := refused(result, err); err != nil {
			return err
		}
		copy(data[done:], r.session.Shared.Arena()[r.buffer(done):][:wire.BounceBuffer])
	}
	return nil
}

// buffer is where a piece of a copy comes to.
func (r *ringed) buffer(at int) uint64 {
	return r.bounce + uint64(at/wire.BounceBuffer%inFlight*wire.BounceBuffer)
}

func (r *ringed) query() error  { return r.call(&wire.StreamQuery{}) }
func (r *ringed) record() error { return r.session.Producer.Post(&wire.EventRecord{Event: 1}) }

func (r *ringed) memory() error {
	at := r.base + 2*benchCopy
	if err := r.call(&wire.MemAlloc{Addr: at, Size: 1 << 20}); err != nil {
		return err
	}
	return r.session.Producer.Post(&wire.MemFree{Addr: at})
}

// --- over TCP and TLS -------------------------------------------------------------

// benchCerts makes certificates for a node on this machine and a user.
func benchCerts(b *testing.B) (nodeTLS, userTLS *tls.Config) {
	b.Helper()
	authority, _, err := gateway.OpenAuthority(b.TempDir(), time.Now())
	must(b, err)
	folder, err := authority.Node([]string{"127.0.0.1"}, 1)
	must(b, err)
	nodeTLS, err = gateway.LoadDir(folder)
	must(b, err)
	folder, err = authority.User("bench", 1)
	must(b, err)
	userTLS, err = clientside.LoadTLS(filepath.Clean(folder))
	must(b, err)
	return nodeTLS, userTLS
}

// startRelay starts a daemon with a gateway, and returns the socket of a relay to
// it.
func startRelay(b *testing.B) (socket string) {
	b.Helper()
	nodeTLS, userTLS := benchCerts(b)
	daemon := startBench(b, 2).socket
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(b, err)
	quiet := slog.New(slog.DiscardHandler)
	g, err := gateway.New(listener.(*net.TCPListener), gateway.Config{Socket: daemon, TLS: nodeTLS, Log: quiet})
	must(b, err)
	background(b, func(ctx context.Context) error {
		g.Serve(ctx)
		return nil
	})
	socket = freshSocket()
	programs, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	must(b, err)
	background(b, func(ctx context.Context) error {
		return clientside.Relay(ctx, programs, clientside.Remote{Dial: clientside.Dialler(listener.Addr().String(), userTLS), Lane: clientside.LaneDialler(listener.Addr().String(), userTLS)}, quiet)
	})
	return socket
}

// background does something until the benchmark ends.
func background(b *testing.B, do func(context.Context) error) {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- do(ctx) }()
	b.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			b.Error(err)
		}
	})
}

// benchRatio copies in over TCP and sends the same through TLS alone, turn by
// turn, since the machine may be fast now and slow then. The figure is the median
// of the ratios.
func benchRatio(b *testing.B, data []byte) {
	send, w := openTLS(b, len(data)), openRing(b, startRelay(b))
	var ratios []float64
	for b.Loop() {
		start := time.Now()
		must(b, send(data))
		middle := time.Now()
		must(b, w.in(data))
		must(b, w.synchronise())
		ratios = append(ratios, float64(middle.Sub(start))/float64(time.Since(middle)))
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "of-tls")
}

// openTLS makes a connection of TLS alone, which answers a byte when so many have
// come.
func openTLS(b *testing.B, size int) (send func(data []byte) error) {
	b.Helper()
	nodeTLS, userTLS := benchCerts(b)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(b, err)
	background(b, func(ctx context.Context) error {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		defer conn.Close()
		far, to := tls.Server(conn, nodeTLS), make([]byte, size)
		for {
			if _, err := io.ReadFull(far, to); err != nil {
				return nil // the benchmark is over
			}
			if _, err := far.Write(to[:1]); err != nil {
				return err
			}
		}
	})
	near, err := clientside.Dialler(listener.Addr().String(), userTLS)(context.Background())
	must(b, err)
	b.Cleanup(func() {
		near.Close()
		listener.Close()
	})
	return func(data []byte) error {
		if _, err := near.Write(data); err != nil {
			return err
		}
		_, err := io.ReadFull(near, make([]byte, 1))
		return err
	}
}
