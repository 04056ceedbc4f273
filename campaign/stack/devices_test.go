package stack

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"muster/wire/status"
)

// client finds the client of a program, also among those that have ended.
func (n *theNode) client(p *program) (status.Client, bool) {
	n.Helper()
	s := n.status()
	for _, c := range append(s.Clients, s.Ended...) {
		if c.Pid == int32(p.cmd.Process.Pid) {
			return c, true
		}
	}
	return status.Client{}, false
}

// isOn waits until a program has a device.
func (n *theNode) isOn(p *program, device int) {
	n.Helper()
	n.eventually(fmt.Sprintf("%s is on device %d", p.name, device), func() bool {
		c, ok := n.client(p)
		return ok && c.Device != nil && *c.Device == device
	})
}

// A program on a slow device moves to a fast one that becomes idle, and its sums are right.
func TestProgramMovesToAFasterDevice(t *testing.T) {
	t.Parallel()
	n := newWorld(t).start("--devices", "soft:memory=64M,name=slow,speed=0.05;soft:memory=64M,name=fast", "--vgpus", "1")
	first := n.launch(made("small"), "endless", "1000")
	n.isOn(first, 1)
	second := n.launch(made("small"), "sums", "200000", rounds(150))
	n.isOn(second, 0)
	n.eventually("it has run there", func() bool { c, _ := n.client(second); return c.Kernels > 0 })
	if moves := n.total("muster_moves_total"); moves != 0 {
		t.Errorf("%v moves before the fast device was idle", moves)
	}
	first.kill()
	second.right()
	c, _ := n.client(second)
	if c.Moves != (status.Moves{Auto: 1}) || c.Preemptions != 0 {
		t.Errorf("%+v", c)
	}
	if moves := n.total("muster_moves_total"); moves != 1 {
		t.Errorf("%v moves are counted", moves)
	}
	n.idle()
}

// With migrate off it stays where it is.
func TestProgramStaysWhereMovesAreOff(t *testing.T) {
	t.Parallel()
	n := newWorld(t).start("--devices", "soft:memory=64M,name=slow,speed=0.05;soft:memory=64M,name=fast", "--vgpus", "1", "--migrate", "off")
	first := n.launch(made("small"), "endless", "1000")
	n.isOn(first, 1)
	second := n.launch(made("small"), "sums", "50000", rounds(40))
	n.isOn(second, 0)
	first.kill()
	second.right()
	if c, _ := n.client(second); c.Moves.Total() != 0 {
		t.Errorf("%+v", c.Moves)
	}
}

// Each device is drained and removed while programs run on all of them, and all programs end right.
// One client is moved by hand meanwhile.
func TestDevicesAreTakenFromUnderPrograms(t *testing.T) {
	t.Parallel()
	n := newWorld(t).start("--devices", "soft:memory=16M,name=a,workers=1;soft:memory=8M,name=b,workers=1;soft:memory=8M,name=c,workers=1", "--vgpus", "2", "--max-idle", "1ms")
	var all []*program
	for i := range 4 {
		all = append(all, n.launch(made("small"), "sums", fmt.Sprint(200000+100000*i), rounds(250)))
	}
	for _, p := range all {
		n.eventually("the program has begun", func() bool { c, ok := n.client(p); return ok && c.Kernels > 0 })
	}
	for _, device := range []string{"a", "b", "c"} {
		if out := n.muster("device", "drain", device, "--socket", n.socket); !strings.HasSuffix(out, "("+device+") is drained\n") {
			t.Errorf("drain says %q", out)
		}
		n.muster("device", "resume", device, "--socket", n.socket)
	}
	n.muster("device", "remove", "c", "--socket", n.socket)
	n.muster("device", "add", "soft:memory=32M,name=d,workers=1", "--socket", n.socket)
	n.muster("device", "remove", "a", "--socket", n.socket)
	if out := n.muster("device", "list", "--socket", n.socket); !strings.Contains(out, " removed ") || strings.Contains(out, " lost ") {
		t.Errorf("list says\n%s", out)
	}
	if c, ok := n.client(all[0]); ok && c.State != "ended" {
		if out, code := n.tries("move", fmt.Sprint(c.ID), "d", "--socket", n.socket); code != 0 && !strings.Contains(out, "already") && !strings.Contains(out, "there is no client") {
			t.Errorf("move says %q", out)
		}
	}
	for _, p := range all {
		p.right()
	}
	if faults := n.total("muster_faults_total"); faults != 0 {
		t.Errorf("%v faults", faults)
	}
	n.idle()
}

// tries runs a command of muster that may fail.
func (w *world) tries(args ...string) (string, int) {
	w.Helper()
	p := w.execute(made("muster"), args...)
	code := p.wait()
	return p.output.String(), code
}

// If all devices are drained, programs wait without limit. A command that waits for a drain names
// the clients for which it waits.
func TestEverythingIsDrained(t *testing.T) {
	t.Parallel()
	n := newWorld(t).start("--devices", "soft:memory=16M,name=only")
	p := n.launch(made("small"), "hold", "1000", "5")
	p.says("holding")
	n.muster("device", "drain", "only", "--socket", n.socket)
	p.stdin.Close()
	n.eventually("the program waits", func() bool { c, _ := n.client(p); return c.State == "ready" && c.Parked })
	if out := n.muster("ps", "--socket", n.socket); !strings.Contains(out, "ready (parked)") {
		t.Errorf("ps says\n%s", out)
	}
	p.says("muster: all devices of the node are drained; the program waits until one is resumed")
	later := n.launch(made("small"), "sums", "1000")
	n.eventually("another one waits too", func() bool { c, ok := n.client(later); return ok && c.Parked })
	n.muster("device", "resume", "only", "--socket", n.socket)
	p.right()
	later.right()
	n.idle()
}

// A reloaded configuration removes the only device while a program uses it, and adds another; an
// invalid configuration changes nothing.
func TestConfigurationIsReadAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "node.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("devices: [{soft: {memory: 16MiB, name: old}}]\n")
	n := w.start("--config", file)
	p := n.launch(made("small"), "endless", "10000")
	n.isOn(p, 0)
	reads := 0
	hangup := func(message string) {
		t.Helper()
		reads++
		if err := n.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		n.eventually("the log says: "+message, func() bool {
			return strings.Count(n.log.String(), `"msg":"the configuration was read again`) == reads && strings.Contains(n.log.String(), message)
		})
	}
	write("devices: [{soft: {memory: 16MiB, name: old}}]\nmigrat: off\n")
	hangup("is not used: everything stays as it was")
	write("devices: [{soft: {memory: 16MiB, name: new}}]\n")
	hangup(`"changed":"devices"`)
	n.isOn(p, 1)
	n.eventually("the old device is removed", func() bool { return n.status().Devices[0].State == "removed" })
	hangup(`"changed":""`)
	n.eventually("the program goes on", func() bool { return n.status().Devices[1].BusyTime > 0 })
	select {
	case <-p.exited:
		t.Errorf("the program ended: %s", p.output)
	default:
		p.kill()
	}
	n.idle()
}
