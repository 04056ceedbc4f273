package remote

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"muster/device"
	"muster/internal/door"
	"muster/wire"
)

// fake is a lender that sends what a test tells it to.
type fake struct {
	geometry wire.Geometry
	attached func(wire.Attach) wire.Attached
	device   func(*wire.Device)
	talk     func(conn net.Conn) // after a guest was attached
}

// start listens, and returns how to reach the fake.
func (f *fake) start(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				f.serve(conn)
			}()
		}
	}()
	return listener.Addr().String()
}

func (f *fake) serve(conn net.Conn) {
	if _, err := wire.MeetPlain(conn, token); err != nil {
		return
	}
	var hello wire.Hello
	if wire.ReadAs(conn, &hello) != nil || hello.Guest == 0 {
		return
	}
	d := goodDevice()
	if f.device != nil {
		f.device(&d)
	}
	_ = wire.WriteRecord(conn, &wire.Welcome{Version: wire.Version, Driver: 13000, Devices: 1})
	_ = wire.WriteRecord(conn, &d)
	var attach wire.Attach
	if wire.ReadAs(conn, &attach) != nil {
		return
	}
	attached := wire.Attached{ArenaBase: attach.ArenaBase, ArenaSize: attach.ArenaSize, Memory: d.Memory, Warp: 32, Client: 1}
	if f.attached != nil {
		attached = f.attached(attach)
	}
	_ = wire.WriteRecord(conn, &attached)
	frame := wire.Frame{Kind: wire.FrameGeometry, Geometry: f.geometry, Silence: 20_000}
	if _, err := conn.Write(frame.Append(nil)); err == nil && f.talk != nil {
		f.talk(speaker{conn, door.NewResumable(conn, nil, nil, door.Resuming{Silence: 20 * time.Second})})
	}
}

// speaker is a connection that carries frames, and sends them at once.
type speaker struct {
	net.Conn
	frames *door.Resumable
}

func (s speaker) Read(b []byte) (int, error) { return s.frames.Read(b) }

func (s speaker) Write(b []byte) (int, error) {
	n, err := s.frames.Write(b)
	if err == nil {
		err = s.frames.Flush()
	}
	return n, err
}

// goodDevice is a description that is accepted.
func goodDevice() wire.Device {
	var pairs []byte
	for _, a := range [][2]uint32{{1, 1024}, {2, 1024}, {3, 1024}, {4, 64}, {5, 1<<31 - 1}, {6, 65535}, {7, 65535}, {10, 32}, {16, 2}, {39, 2048}, {75, 9}, {97, 100 << 10}, {106, 32}, {wire.LentSpeed, 1e6}} {
		pairs = append(pairs, byte(a[0]), byte(a[0]>>8), byte(a[0]>>16), byte(a[0]>>24), byte(a[1]), byte(a[1]>>8), byte(a[1]>>16), byte(a[1]>>24))
	}
	return wire.Device{Memory: 64 << 20, Name: "GPU", Uuid: make([]byte, 16), Attributes: pairs}
}

var usual = wire.Geometry{Ring: 1 << 20, Staging: 16 << 20, Bounce: 16 << 20, Pinned: 64 << 20}

func (f *fake) open(t testing.TB) (device.Context, error) {
	t.Helper()
	d, err := Open(t.Context(), Options{Lender: plain(f.start(t))})
	must(t, err)
	c, err := d.Open(device.Config{Arena: device.Arena{Base: base, Size: 1 << 30}})
	if err == nil {
		t.Cleanup(func() { _ = c.Close() })
	}
	return c, err
}

func isLost(err error) bool {
	var f *device.Fault
	return errors.As(err, &f) && f.Kind == device.DeviceLost
}

// drain reads what a guest sends.
func drain(conn net.Conn) {
	buffer := make([]byte, 64<<10)
	for {
		if _, err := conn.Read(buffer); err != nil {
			return
		}
	}
}

// Whatever a lender sends, it ends at most its own context, with an error that says why.
func TestLenderThatTalksNonsense(t *testing.T) {
	frame := func(f wire.Frame) []byte { return f.Append(nil) }
	for name, talk := range map[string]func(net.Conn){
		"hangs up": func(net.Conn) {},
		"data nobody asked for": func(c net.Conn) {
			_, _ = c.Write(frame(wire.Frame{Kind: wire.FrameData, Offset: 63 << 20, Bytes: 1 << 20}))
			drain(c)
		},
		"data for staging": func(c net.Conn) {
			_, _ = c.Write(frame(wire.Frame{Kind: wire.FrameData, Offset: 0, Bytes: 1 << 20}))
			drain(c)
		},
		"data beyond everything": func(c net.Conn) {
			_, _ = c.Write(frame(wire.Frame{Kind: wire.FrameAway, Offset: 1 << 63, Length: 1 << 63}))
			drain(c)
		},
		"messages": func(c net.Conn) {
			_, _ = c.Write(frame(wire.Frame{Kind: wire.FrameMessage, Header: wire.Header{Op: wire.OpReset}}))
			drain(c)
		},
		"noise": func(c net.Conn) {
			const seed = 5
			r := rand.New(rand.NewPCG(seed, seed))
			noise := make([]byte, 4096)
			for i := range noise {
				noise[i] = byte(r.Uint32())
			}
			_, _ = c.Write(noise)
			drain(c)
		},
		"a fault that nobody has": func(c net.Conn) {
			_, _ = c.Write(frame(wire.Frame{Kind: wire.FrameClosed, Reason: "go away"}))
			drain(c)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := (&fake{geometry: usual, talk: talk}).open(t)
			must(t, err)
			<-c.(*Context).over
			s, streamErr := c.NewStream()
			for what, err := range map[string]error{"Err": c.Err(), "Map": c.Map(base, Granularity), "NewStream": streamErr} {
				if !isLost(err) {
					t.Errorf("%s: %v (%v)", what, err, s)
				}
			}
		})
	}
}

// Invalid answers end the context; answers to no question are ignored.
func TestLenderThatLies(t *testing.T) {
	for name, body := range map[string][]byte{"too short": {1, 2, 3}, "too long": bytes.Repeat([]byte{1}, 200), "numbers without bounds": bytes.Repeat([]byte{0xff}, 16)} {
		t.Run(name, func(t *testing.T) {
			talk := func(conn net.Conn) {
				go drain(conn)
				for { // answer each question, and also questions that were not asked
					for slot := range wire.Slots {
						f := wire.Frame{Kind: wire.FrameReply, Slot: slot, Body: body}
						if _, err := conn.Write(f.Append(nil)); err != nil {
							return
						}
					}
				}
			}
			c, err := (&fake{geometry: usual, talk: talk}).open(t)
			must(t, err)
			if _, err := c.Load([]byte("an image")); !isLost(err) {
				t.Errorf("loading: %v", err)
			}
			if err := c.Synchronise(context.Background()); !isLost(err) {
				t.Errorf("synchronise: %v", err)
			}
		})
	}
}

func TestLenderWithAnOddOffer(t *testing.T) {
	other := func(wire.Attach) wire.Attached { return wire.Attached{ArenaBase: 1 << 40, ArenaSize: 1 << 30} }
	for name, f := range map[string]*fake{
		"other addresses": {geometry: usual, attached: other},
		"no buffers":      {geometry: wire.Geometry{Ring: 1 << 20, Staging: 16 << 20, Pinned: 64 << 20}},
		"a huge ring":     {geometry: wire.Geometry{Ring: 1 << 40, Staging: 16 << 20, Bounce: 16 << 20, Pinned: 64 << 20}},
		"a huge arena":    {geometry: wire.Geometry{Ring: 1 << 20, Staging: 16 << 20, Bounce: 1 << 40, Pinned: 64 << 20}},
	} {
		if _, err := f.open(t); !isLost(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, spoil := range map[string]func(*wire.Device){
		"no name":         func(d *wire.Device) { d.Name = "" },
		"half a UUID":     func(d *wire.Device) { d.Uuid = d.Uuid[:8] },
		"half a pair":     func(d *wire.Device) { d.Attributes = d.Attributes[:len(d.Attributes)-1] },
		"nothing":         func(d *wire.Device) { d.Attributes = nil },
		"far too much":    func(d *wire.Device) { d.Memory = 1 << 60 },
		"no memory":       func(d *wire.Device) { d.Memory = 1 },
		"negative warps":  func(d *wire.Device) { d.Attributes = append(d.Attributes, 10, 0, 0, 0, 255, 255, 255, 255) },
		"a very long one": func(d *wire.Device) { d.Name = string(make([]byte, 5000)) },
	} {
		f := &fake{geometry: usual, device: spoil}
		if _, err := Open(t.Context(), Options{Lender: plain(f.start(t))}); err == nil {
			t.Errorf("%s: it was believed", name)
		}
	}
}

// When a lender disappears, every waiting call returns, whatever it waits for.
func TestLenderDiesUnderWork(t *testing.T) {
	l := newLender(t, nil)
	o := openOn(t, l.open(t, 0), 64<<20)
	held, err := o.NewStream()
	must(t, err)
	e, err := o.NewEvent()
	must(t, err)
	must(t, held.Call(func() { <-t.Context().Done() })) // holds the stream for good
	must(t, held.Record(e))
	data := make([]byte, 32<<20)
	must(t, held.CopyOut(data, base))
	must(t, held.CopyIn(base, data)) // kept until the call has returned
	told := make(chan error, 3)
	for _, wait := range []func(context.Context) error{held.Synchronise, e.Synchronise, o.Synchronise} {
		go func() { told <- wait(context.Background()) }()
	}
	l.stop()
	for range 3 {
		if err := <-told; !isLost(err) {
			t.Errorf("who waited was told: %v", err)
		}
	}
	if err := o.Map(base+(64<<20), Granularity); !isLost(err) {
		t.Errorf("Map: %v", err)
	}
	must(t, o.Close())
}

// The decoders of a lender's descriptions of devices and kernels take any bytes.
func FuzzDescribe(f *testing.F) {
	d := goodDevice()
	f.Add(d.Memory, d.Name, d.Uuid, d.Attributes)
	f.Fuzz(func(t *testing.T, memory uint64, name string, uuid, attributes []byte) {
		info, err := describe(wire.Welcome{}, wire.Device{Memory: memory, Name: name, Uuid: uuid, Attributes: attributes})
		if err != nil {
			return
		}
		if info.Memory < info.ContextCost+Granularity || info.Memory%1024 != 0 || info.Speed <= 0 || info.Limits.Warp < 1 || info.Multiprocessors < 1 {
			t.Errorf("it believes %+v", info)
		}
	})
}

func FuzzFunctionInfo(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 8, 0, 0, 0}, uint32(8), int32(1024), int32(0))
	f.Fuzz(func(t *testing.T, layout []byte, size uint32, threads, shared int32) {
		info, err := functionInfo("k", &wire.ModuleFunctionReply{ParamSize: size, MaxThreads: threads, Shared: shared}, layout)
		if err != nil {
			return
		}
		for _, p := range info.Params {
			if p.Offset < 0 || p.Size < 0 || p.Offset+p.Size > info.ParamSize {
				t.Errorf("a parameter %+v of %d bytes", p, info.ParamSize)
			}
		}
	})
}
