package stack

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"muster/wire/status"
)

// apartGPUs are two software GPUs whose contexts need a process each, as those of NVIDIA GPUs do.
const apartGPUs = "soft:memory=64M,workers=1,rate=2e7,own_process=true,name=a;soft:memory=64M,workers=1,rate=2e7,own_process=true,name=b"

// carrier is the client by which a mapped program uses its further device; nil if there is none.
func (n *theNode) carrier() *status.Client {
	for _, c := range n.status().Clients {
		if c.Guest {
			return &c
		}
	}
	return nil
}

// spread starts a program that sees one device, whose kernels run on both of the node.
func (n *theNode) spread() *program {
	n.Helper()
	one := n.launchWith([]string{"--socket", n.socket, "--mapping", atRandom}, made("small"), "spread", "4", "1024")
	n.eventually("kernels run on both devices", func() bool { return n.ranAt()[""] > 5 })
	return one
}

// A program that sees one device uses both GPUs of its node, though a process can have contexts of only
// one of them: the other one's is in a worker of its own. What that one does is the program's, and it
// leaves with it. If that worker is killed, it costs a recovery.
func TestOneProgramOnGPUsThatNeedAProcessEach(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the whole run does this, without the race detector")
	}
	n := newWorld(t).start("--devices", apartGPUs)
	one := n.spread()
	c := n.carrier()
	if c == nil || !strings.HasPrefix(c.Program, fmt.Sprintf("device 1 for client %d: ", c.ID-2)) || c.Device == nil || *c.Device != 1 {
		t.Errorf("device 1 is used by %+v", c)
	}
	if s := n.status(); len(s.Lent) > 0 || len(s.Served) > 0 {
		t.Errorf("the node has lent another one %+v, %+v", s.Lent, s.Served)
	}
	if err := syscall.Kill(c.Worker, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	n.eventually("another one is there", func() bool { now := n.carrier(); return now != nil && now.ID != c.ID && now.Kernels > 0 })
	one.right()
	n.idle()
}

// A GPU that is lent to a mapped program goes back to the first program that needs it.
func TestGPUsThatNeedAProcessEachGoBack(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the whole run does this, without the race detector")
	}
	n := newWorld(t).start("--devices", apartGPUs, "--vgpus", "1", "--quantum", "off")
	one := n.spread()
	other := n.launch(made("small"), "until", "30000", "1")
	n.eventually("each program has a device", func() bool { // the first one another if it was idle just then
		c, ok := n.client(other)
		return ok && c.Device != nil && n.carrier() == nil
	})
	n.goOn()
	other.right()
	var c *status.Client
	n.eventually("kernels run on both devices again", func() bool { c = n.carrier(); return n.ranAt()[""] > 0 && c != nil && c.Device != nil })
	n.muster("device", "drain", fmt.Sprint(*c.Device), "--socket", n.socket)
	n.eventually("it has left", func() bool { return n.carrier() == nil })
	one.right()
	n.idle()
}

// The same on two GPUs of NVIDIA's driver, as far as a stand-in for it goes.
func TestOneProgramOnTwoGPUsOfADriver(t *testing.T) {
	if testing.Short() {
		t.Skip("the whole run does this, without the race detector")
	}
	folder := t.TempDir()
	if err := command("gcc", "-std=gnu11", "-O1", "-shared", "-fPIC", "-pthread", "-Wl,-soname,libcuda.so.1", "-o", folder+"/libcuda.so.1", "../../device/cuda/testdata/standin.c"); err != nil {
		t.Fatal(err)
	}
	t.Setenv("STANDIN_DEVICES", "2")
	t.Setenv("STANDIN_KERNEL", "1000000")
	t.Setenv("LD_LIBRARY_PATH", folder)
	n := newWorld(t).start("--devices", "cuda:all")
	n.spread().right()
	n.idle()
}

// A program that uses both GPUs of its node, whose contexts need a process each, survives the node's
// daemon: what it has on the further one comes home, and the next daemon lends that one anew.
func TestGPUsThatNeedAProcessEachUnderTheNextDaemon(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the whole run does this, without the race detector")
	}
	args := []string{"--devices", apartGPUs, "--orphan-grace", "1m"}
	n := newWorld(t).start(args...)
	one := n.spread()
	for _, handover := range []bool{true, false} {
		if handover {
			n.muster("node", "stop", "--handover", "--socket", n.socket)
			<-n.exited
			n.killed = true
		} else {
			n.kill()
		}
		n = n.again(args...)
		n.back([]*program{one})
		before := n.ranAt()[""]
		n.eventually("kernels run on both devices again", func() bool { return n.ranAt()[""] > before })
	}
	one.right()
	n.idle()
}
