package remote

import (
	"errors"
	"net"
	"os"
	"sync"
	"testing"

	"muster/device"
	"muster/device/devicetest"
	"muster/internal/need"
	"muster/node/settings"
)

// beside is a device in another process of this machine. Each of its contexts has a connection of its own,
// as the daemon gives workers one with each loan.
type beside struct {
	*Device
	mu   sync.Mutex
	dial func() (*Device, error)
}

func (b *beside) Open(c device.Config) (device.Context, error) {
	d, err := b.dial()
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over.Store(d.over.Swap(nil)) // all contexts share the device's memory
	return b.Device.Open(c)
}

func (l *lender) beside(t testing.TB) *beside {
	t.Helper()
	b := &beside{dial: func() (*Device, error) {
		conn, err := net.Dial("unix", l.socket)
		if err != nil {
			return nil, err
		}
		return Over(conn.(*net.UnixConn), "")
	}}
	var err error
	if b.Device, err = b.dial(); err != nil {
		t.Fatal(err)
	}
	b.over.Swap(nil).Close()
	return b
}

// alone leaves a lender one device: with a loan the daemon shows that alone.
func alone(c *settings.Config) { c.Devices = c.Devices[:1] }

// A device in another process of this machine is one as all others are.
func TestConformanceBeside(t *testing.T) {
	if os.Getenv("MUSTER_SOAK") == "" {
		need.Missing(t, need.Soak, "MUSTER_SOAK=1 runs it, and so does make soak")
	}
	l := newLender(t, alone)
	devicetest.Run(t, func(t *testing.T) device.Device { return l.beside(t) }, devicetest.Options{
		Isolated: true, Stoppable: true, FixedVariables: true, Prints: true,
		Cubin:  readFile(t, "../soft/testdata/cubin.fatbin"),
		Fatbin: readFile(t, "../soft/testdata/basic.fatbin"),
	})
}

// The connection is good for one context, copies both ways arrive, and one that ends is lost.
func TestBeside(t *testing.T) {
	l := newLender(t, alone)
	d := l.beside(t)
	arena := device.Arena{Base: 0x640000000000, Size: 64 << 20}
	inner, err := d.dial()
	must(t, err)
	c, err := inner.Open(device.Config{Arena: arena})
	must(t, err)
	defer c.Close()
	if second, err := inner.Open(device.Config{Arena: arena}); err == nil {
		_ = second.Close()
		t.Error("a connection is good for two contexts")
	}
	must(t, c.Map(arena.Base, 8<<20))
	s, err := c.NewStream()
	must(t, err)
	in, out := make([]byte, 5<<20), make([]byte, 5<<20)
	for i := range in {
		in[i] = byte(i * 7 >> 3)
	}
	must(t, s.CopyIn(arena.Base, in))
	must(t, s.CopyOut(out, arena.Base))
	must(t, s.Synchronise(t.Context()))
	if string(in) != string(out) {
		t.Error("other bytes came back")
	}
	c.(*Context).guest.HangUp()
	<-c.(*Context).over
	var fault *device.Fault
	if err := s.Synchronise(t.Context()); !errors.As(err, &fault) || fault.Kind != device.DeviceLost {
		t.Errorf("without a connection: %v", err)
	}
}
