package node

import (
	"testing"

	"muster/wire"
)

// From the greeting to a device and back, with everything that people can see
// on the way.
func TestProgramGetsDevice(t *testing.T) {
	f := run(t, testConfig())
	p := mustConnect(t, f)
	if result, err := p.Call(&wire.MemAlloc{Addr: p.attached.ArenaBase, Size: 64 << 20}, nil); err != nil || result != 0 {
		t.Fatal(result, err)
	}
	p.synchronise(t)
	s := statusOf(t, f)
	if len(s.Clients) != 1 {
		t.Fatalf("%+v", s)
	}
	c := s.Clients[0]
	if c.State != "assigned" || c.Device == nil || *c.Device != 0 || c.Program != "test program" || c.Kernels != 3 {
		t.Errorf("%+v", c)
	}
	if d := s.Devices[0]; d.Assigned != 1 || d.Free != 192<<20 || d.Busy != 1 || d.BusyTime != 0.005 {
		t.Errorf("%+v", d)
	}
	if s.Committed != 64<<20 {
		t.Errorf("%d bytes are committed", s.Committed)
	}
	p.leave()
	eventually(t, "the client is forgotten", func() bool {
		s := statusOf(t, f)
		return len(s.Clients) == 0 && s.Devices[0].Free == 256<<20 && s.Committed == 0
	})
}
