package gateway

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"muster/wire"
	"muster/wire/client"
)

// testDaemon plays a daemon whose workers are goroutines and whose devices are
// memory of this process.
type testDaemon struct {
	socket   string
	listener *net.UnixListener
	geometry wire.Geometry
	clients  sync.WaitGroup

	atOnce bool // workers copy before they take the next message

	mu      sync.Mutex
	tokens  []string
	grants  []string
	serving int
	refuse  *wire.Refused
	workers []*testWorker
}

var testGeometry = wire.Geometry{Ring: 128 << 10, Staging: 4 << 20, Bounce: 2 << 20, Pinned: 64 << 20}

var sockets atomic.Int64

func startDaemon(t testing.TB, g wire.Geometry) *testDaemon {
	t.Helper()
	d := &testDaemon{socket: newSocket(), geometry: g}
	d.listener = listen(t, d.socket)
	go d.run(func(err error) { t.Error("the test's daemon:", err) })
	t.Cleanup(func() {
		d.listener.Close()
		d.clients.Wait()
	})
	return d
}

func (d *testDaemon) run(failed func(error)) {
	for {
		conn, err := d.listener.AcceptUnix()
		if err != nil {
			return
		}
		d.clients.Go(func() {
			defer conn.Close()
			if err := d.serve(conn); err != nil {
				failed(err)
			}
		})
	}
}

func newSocket() string {
	return fmt.Sprintf("@muster-gateway-test-%d-%d", time.Now().UnixNano(), sockets.Add(1))
}

func listen(t testing.TB, socket string) *net.UnixListener {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (d *testDaemon) serve(conn *net.UnixConn) error {
	var hello wire.Hello
	if err := wire.ReadAs(conn, &hello); err != nil {
		return nil
	}
	d.mu.Lock()
	token := hello.Token
	if user, address, ok := wire.SpokenFor(token); ok && address != "" { // addresses of clients differ
		token = wire.SpeaksFor + user
	}
	d.tokens, d.grants = append(d.tokens, token), append(d.grants, hello.Grant)
	refused := d.refuse
	d.mu.Unlock()
	if refused != nil {
		return wire.WriteRecord(conn, refused)
	}
	for _, m := range []wire.Message{&wire.Welcome{Version: wire.Version, Driver: 13000, Devices: 2},
		&wire.Device{Memory: 1 << 30, Name: "first", Uuid: make([]byte, 16)}, &wire.Device{Memory: 2 << 30, Name: "second", Uuid: make([]byte, 16)}} {
		if err := wire.WriteRecord(conn, m); err != nil {
			return nil
		}
	}
	var attach wire.Attach
	if err := wire.ReadAs(conn, &attach); err != nil {
		return nil
	}
	if attach.Device > 1 {
		return wire.WriteRecord(conn, &wire.Refused{Result: 101, Reason: "there is no such device"})
	}
	ring, arena, err := wire.Create(d.geometry)
	if err != nil {
		return err
	}
	defer ring.Close()
	defer arena.Close()
	shared, err := wire.Map(ring, arena)
	if err != nil {
		return err
	}
	var record bytes.Buffer
	_ = wire.WriteRecord(&record, &wire.Attached{ArenaBase: deviceBase, ArenaSize: deviceSize, Memory: deviceSize, Warp: 32, Client: uint64(attach.Device)})
	if err := wire.SendFiles(conn, record.Bytes(), ring, arena); err != nil {
		shared.Unmap()
		return nil
	}
	w := &testWorker{shared: shared, consumer: wire.NewConsumer(shared), atOnce: d.atOnce, device: make([]byte, deviceSize), streams: map[uint32]chan func(){}, gone: make(chan struct{})}
	d.mu.Lock()
	d.serving++
	d.workers = append(d.workers, w)
	d.mu.Unlock()
	var all sync.WaitGroup
	all.Go(func() {
		if err := w.run(); err != nil {
			shared.Close("the program sent what it must not: " + err.Error())
			conn.Close()
		}
	})
	_, _ = conn.Read(make([]byte, 1))
	close(w.gone)
	w.consumer.Stop()
	all.Wait()
	w.work.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.serving--
	w.mu.Lock() // a test may have answered the program by finds; the race detector does not see that the program ended after that
	defer w.mu.Unlock()
	shared.Unmap()
	return nil
}

// end ends a client, for a reason.
func (d *testDaemon) end(worker int, reason string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.workers[worker].shared.Close(reason)
}

func (d *testDaemon) clientsServed() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.serving
}

const (
	deviceBase = 0x10000000
	deviceSize = 16 << 20
	illegal    = 700 // CUDA_ERROR_ILLEGAL_ADDRESS
)

// testWorker does what messages say on memory, each stream in a goroutine.
type testWorker struct {
	shared   *wire.Shared
	consumer *wire.Consumer
	atOnce   bool
	device   []byte
	streams  map[uint32]chan func()
	work     sync.WaitGroup
	gone     chan struct{}

	mu      sync.Mutex
	waiting []int // slots of host_next
	cookies []uint64
	done    map[uint64]chan struct{}
	module  []byte
}

func (w *testWorker) run() error {
	defer func() {
		for _, s := range w.streams {
			close(s)
		}
	}()
	for {
		h, body, err := w.consumer.Next(time.Minute)
		switch {
		case errors.Is(err, wire.ErrStopped):
			return nil
		case errors.Is(err, wire.ErrTimeout):
			continue
		case err != nil:
			return err
		}
		if err := w.handle(h, bytes.Clone(body)); err != nil {
			return fmt.Errorf("%v: %w", h.Op, err)
		}
	}
}

// streamQueue is how much work waits for a stream before the worker does.
const streamQueue = 4096

// on does something when a stream is there.
func (w *testWorker) on(stream uint32, do func()) {
	if w.atOnce {
		do()
		return
	}
	s := w.streams[stream]
	if s == nil {
		s = make(chan func(), streamQueue)
		w.streams[stream] = s
		w.work.Go(func() {
			for f := range s {
				f()
			}
		})
	}
	s <- do
}

// memory returns a part of the device; outside of it is a fault.
func (w *testWorker) memory(addr, size uint64) []byte {
	if addr < deviceBase || addr-deviceBase > deviceSize || size > deviceSize-(addr-deviceBase) {
		w.shared.Notify(fmt.Sprintf("nothing is at %#x", addr))
		w.shared.SetStatus(illegal)
		return nil
	}
	return w.device[addr-deviceBase:][:size]
}

func (w *testWorker) handle(h wire.Header, body []byte) error {
	data, err := w.shared.Data(h.Data, h.Length)
	if err != nil {
		return err
	}
	reply := func(payload ...byte) { w.shared.Reply(h.Slot, w.shared.Status(), payload) }
	switch h.Op {
	case wire.OpStreamCreate:
	case wire.OpMemAlloc, wire.OpStreamQuery, wire.OpEventQuery:
		reply()
	case wire.OpReset:
		w.shared.SetStatus(0)
		reply()
	case wire.OpCopyInline:
		var m wire.CopyInline
		if err := m.Decode(body); err != nil {
			return err
		}
		w.on(m.Stream, func() { copy(w.memory(m.Dst, uint64(len(m.Data))), m.Data) })
	case wire.OpCopyIn:
		var m wire.CopyIn
		if err := m.Decode(body); err != nil {
			return err
		}
		if w.atOnce {
			defer w.consumer.Release(h.Release)
		} else if h.Release != 0 { // staged: read at once
			data = bytes.Clone(data)
			w.consumer.Release(h.Release)
		}
		w.on(m.Stream, func() { copy(w.memory(m.Dst, h.Length), data) })
	case wire.OpCopyOut:
		var m wire.CopyOut
		if err := m.Decode(body); err != nil {
			return err
		}
		w.on(m.Stream, func() {
			copy(data, w.memory(m.Src, h.Length))
			reply()
		})
	case wire.OpCopyWithin:
		var m wire.CopyWithin
		if err := m.Decode(body); err != nil {
			return err
		}
		w.on(m.Stream, func() { copy(w.memory(m.Dst, m.Size), w.memory(m.Src, m.Size)) })
	case wire.OpFill:
		var m wire.Fill
		if err := m.Decode(body); err != nil {
			return err
		}
		w.on(m.Stream, func() {
			to := w.memory(m.Dst, m.Count*4)
			for i := 0; i+4 <= len(to); i += 4 {
				binary.LittleEndian.PutUint32(to[i:], m.Value)
			}
		})
	case wire.OpStreamSynchronise:
		var m wire.StreamSynchronise
		if err := m.Decode(body); err != nil {
			return err
		}
		w.on(m.Stream, func() { reply() })
	case wire.OpSynchronise:
		var all sync.WaitGroup
		for s := range w.streams {
			all.Add(1)
			w.on(s, all.Done)
		}
		w.work.Go(func() {
			all.Wait()
			reply()
		})
	case wire.OpModuleData:
		w.module = append(w.module, data...)
		w.consumer.Release(h.Release)
	case wire.OpModuleNames:
		copy(data, w.module)
		reply((&wire.ModuleNamesReply{Total: uint64(len(w.module)), Functions: 1}).Append(nil)...)
	case wire.OpLaunch:
		w.shared.SetPrint(true)
	case wire.OpPrintFetch:
		w.shared.SetPrint(false)
		reply((&wire.PrintFetchReply{Size: uint32(copy(data, "printed"))}).Append(nil)...)
	case wire.OpHostFunction, wire.OpHostNext, wire.OpHostDone:
		return w.host(h, body)
	default:
		return errors.New("the test's worker does not know it")
	}
	return nil
}

// host does what has to do with functions of the host.
func (w *testWorker) host(h wire.Header, body []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done == nil {
		w.done = map[uint64]chan struct{}{}
	}
	switch h.Op {
	case wire.OpHostFunction:
		var m wire.HostFunction
		if err := m.Decode(body); err != nil {
			return err
		}
		done := make(chan struct{})
		w.done[m.Cookie] = done
		w.on(m.Stream, func() {
			w.mu.Lock()
			w.cookies = append(w.cookies, m.Cookie)
			w.pair()
			w.mu.Unlock()
			select {
			case <-done:
			case <-w.gone:
			}
		})
	case wire.OpHostNext:
		w.waiting = append(w.waiting, h.Slot)
		w.pair()
	case wire.OpHostDone:
		var m wire.HostDone
		if err := m.Decode(body); err != nil {
			return err
		}
		close(w.done[m.Cookie])
	}
	return nil
}

func (w *testWorker) pair() {
	for len(w.waiting) > 0 && len(w.cookies) > 0 {
		w.shared.Reply(w.waiting[0], 0, (&wire.HostNextReply{Cookie: w.cookies[0]}).Append(nil))
		w.waiting, w.cookies = w.waiting[1:], w.cookies[1:]
	}
}

// attachTo becomes a client at a socket.
func attachTo(t testing.TB, socket string) *client.Session {
	t.Helper()
	s, err := client.Attach(socket, client.Hello("test", 0), 1)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
