package clientcore

import (
	"strings"
	"testing"

	"muster/device"
	"muster/vmm"
	"muster/wire/control"
)

func (s *script) play(events ...string) (last string) {
	for _, e := range events {
		last = s.run(strings.Fields(e))
	}
	return last
}

// pointOf is a client with 8 MiB, a module and a stream, as it is saved.
func pointOf(t testing.TB) []byte {
	s := &script{t: t}
	s.play("client 2", "alloc 0 8M", "in 0 4M", "load 1 1", "done", "function 1", "stream 3", "launch 1", "grant 0 16M 1", "done", "done", "done", "detach", "done", "point")
	return s.point
}

// The daemon must have room for what comes. If it has not, nothing has changed.
func TestReplaceAsksForRoom(t *testing.T) {
	s := &script{t: t, point: pointOf(t)}
	s.play("client 1", "alloc 16M 2M", "room 2M")
	if got := s.play("replace"); got != "say commit {Bytes:8388608}\n... waits\n" {
		t.Fatal(got)
	}
	if done, _ := s.core.Replaced(); done {
		t.Error("it is said to be done while the daemon is asked")
	}
	s.play("committed 8M no")
	done, err := s.core.Replaced()
	if !done || err == nil || !strings.Contains(err.Error(), "the swap area is full") {
		t.Error(done, err)
	}
	if got := s.core.Allocations(); len(got) != 1 || s.core.Waits() {
		t.Errorf("a refused client has %v", got)
	}
	s.play("replace", "committed 8M yes", "done")
	if done, err := s.core.Replaced(); !done || err != nil {
		t.Error(done, err)
	}
	if got := s.core.Allocations(); len(got) != 1 || got[0] != (vmm.Range{Addr: scriptBase, Size: 8 * scriptMiB}) {
		t.Errorf("it has %v", got)
	}
	if got := s.play("sync"); got != "reply slot 1 result 0\n" {
		t.Error(got)
	}
}

// What cannot be a client here is refused.
func TestRehomedIsRefused(t *testing.T) {
	good := Config{Arena: vmm.Range{Addr: scriptBase, Size: 1 << 30}, Chunk: 2 * scriptMiB, Devices: []Device{{Place: vmm.Device(0)}}}
	for _, c := range []struct {
		name   string
		change func(c *Config)
		want   string
	}{
		{"fits", func(*Config) {}, ""},
		{"another device", func(c *Config) { c.Arena.Addr += 1 << 40 }, "restore it into a client of the same virtual device"},
		{"too small", func(c *Config) { c.Arena.Size = 4 * scriptMiB }, "does not fit"},
		{"limited", func(c *Config) { c.Limit = 4 * scriptMiB }, "does not fit into that of this client (4 MiB in all)"},
		{"other chunks", func(c *Config) { c.Chunk = 1 << 16 }, "does not fit"},
	} {
		to := good
		c.change(&to)
		_, err := Rehomed(pointOf(t), noMemory, to)
		if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	s := &script{t: t}
	s.play("client 1", "alloc 0 2M", "load 1", "done", "function 1", "launch 1", "grant 0 8M 1", "done", "done", "done")
	data, err := s.core.Save()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Rehomed(data, noMemory, good); err == nil {
		t.Error("a client that is on a device was taken")
	}
	if _, err := s.core.SavePoint(); err == nil {
		t.Error("a client that is on a device was saved")
	}
}

// A client whose module is being made when it is saved has not got it.
func TestPointUndoesHalfAMessage(t *testing.T) {
	s := &script{t: t}
	s.play("client 1", "load 1 1", "done unknown")
	if !s.core.Waits() || s.core.Head == nil || !s.core.Head.Made {
		t.Fatal("the load does not wait for a device")
	}
	s.play("point")
	by, err := Rehomed(s.point, noMemory, s.core.config.Config)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(by.Modules.All) + len(by.Modules.ByID); n != 0 || by.Head != nil {
		t.Errorf("%+v", by.Modules)
	}
	if got := s.play("grant 0 8M 1"); got != "open dev0\n" {
		t.Errorf("the client itself does not go on: %s", got)
	}
}

// A client that is put back to an earlier point has the graphs of that point: later ones may launch
// functions of modules that it has no more.
func TestReplacedHasItsGraphs(t *testing.T) {
	s := &script{t: t}
	s.play("client 1", "load 1", "done", "function 1", "define 7 launch 1 -", "point",
		"load 2", "done", "function 2", "define 8 launch 2 -", "replace", "done")
	if done, err := s.core.Replaced(); !done || err != nil {
		t.Fatal(done, err)
	}
	if s.core.Graphs[7] == nil || s.core.Graphs[8] != nil {
		t.Errorf("graphs %v", s.core.Graphs)
	}
	data, err := s.core.Save()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(data, noMemory); err != nil {
		t.Error(err)
	}
}

// Whatever bytes are taken for a client can take the place of another, and be worked
// with.
func FuzzReplace(f *testing.F) {
	f.Add(pointOf(f), false)
	f.Add(pointOf(f), true)
	f.Fuzz(func(t *testing.T, data []byte, whole bool) {
		s := &script{t: t}
		s.play("client 1 reserves", "alloc 4M 2M")
		c := s.core
		by, err := Rehomed(data, noMemory, c.config.Config)
		if err != nil {
			return
		}
		finish := func(ops []Op, err error) bool {
			for err == nil && len(ops) > 0 && ops[len(ops)-1].Kind.Asks() {
				last := ops[len(ops)-1]
				o := Outcome{}
				if last.Kind != MakeRoom && last.Kind != Refill {
					o.Err = device.ErrOutOfMemory
				}
				ops, err = c.Outcome(c.Now, &last, o)
			}
			return err == nil
		}
		if !finish(c.Replace(c.Now, by, whole)) {
			return
		}
		if done, _ := c.Replaced(); !done && !finish(c.Control(c.Now, control.Committed{Bytes: c.Asked.Bytes, Granted: true})) {
			return
		}
		if whole && !finish(c.Unpark(c.Now)) {
			return
		}
		for _, event := range []string{"launch 1", "sync", "in 0 1M", "detach", "reset"} {
			if c.Waits() || c.asking || event == "detach" && !c.CanDetach() {
				return
			}
			if !finish(s.event(strings.Fields(event))) {
				return
			}
		}
	})
}
