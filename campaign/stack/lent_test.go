package stack

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"muster/wire/status"
)

// lent starts a node that lends its device, and one that has it beside one of its own.
func lent(w *world) (lender, borrower *theNode) {
	w.Helper()
	lender, users := remoteNode(w)
	borrower = w.start("--devices", "soft:name=own,memory=32M;remote:"+lender.gateway+",name=lent,tls="+users[0])
	return lender, borrower
}

// computes waits until the only program of a node computes on a device, and has launched more
// further kernels.
func (n *theNode) computes(device int, more uint64) {
	n.Helper()
	var from uint64
	on := func(c *status.Client) bool { return c.Device != nil && *c.Device == device }
	n.eventually("the program is on the device", func() bool {
		clients := n.status().Clients
		if len(clients) != 1 || !on(&clients[0]) {
			return false
		}
		from = clients[0].Kernels
		return true
	})
	n.eventually("it computes there", func() bool {
		clients := n.status().Clients
		return len(clients) == 1 && clients[0].Kernels >= from+more
	})
}

// A program moves between a device of its node and one that another node lends, and back, while it
// computes. It is an ordinary program, and notices nothing.
func TestProgramMovesToALentDeviceAndBack(t *testing.T) {
	t.Parallel()
	lender, n := lent(newWorld(t))
	p := n.launch(made("small"), "until", "4096", "4")
	for range 3 {
		n.computes(0, 5)
		n.muster("device", "drain", "own", "--socket", n.socket)
		n.computes(1, 5)
		n.muster("device", "drain", "lent", "--socket", n.socket)
		n.muster("device", "resume", "own", "--socket", n.socket)
		n.computes(0, 1)
		n.muster("device", "resume", "lent", "--socket", n.socket)
	}
	p.right()
	n.idle()
	lender.idle()
	if n.total("muster_moves_total") < 6 {
		t.Errorf("the program was moved %v times", n.total("muster_moves_total"))
	}
}

// When a lender dies its device is lost, at the same cost to the program as any lost device.
func TestLenderDies(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]bool{"while a program computes there": false, "while a program is leaving": true} {
		t.Run(name, func(t *testing.T) {
			lender, n := lent(newWorld(t))
			n.muster("device", "drain", "own", "--socket", n.socket)
			p := n.launch(made("small"), "until", "4096", "4")
			n.computes(1, 5)
			n.muster("device", "resume", "own", "--socket", n.socket)
			if leave {
				n.muster("device", "drain", "lent", "--socket", n.socket)
			}
			lender.killWith()
			if !leave { // a program that is told to end before it misses the device would lose nothing
				n.eventually("the lender's device is lost", func() bool { return n.logged("a device is lost", "name") == "lent" })
			}
			p.right()
		})
	}
}

// A program whose node has nothing but the device of a lender waits for the lender to come back.
func TestLenderComesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	certs, user := certificates(w)
	lend := func(address string) *theNode {
		return w.start("--devices", "soft:memory=32M", "--listen", address, "--tls-dir", certs)
	}
	lender := lend("127.0.0.1:0")
	n := w.start("--devices", "remote:"+lender.gateway+",name=lent,tls="+user)
	p := n.launch(made("small"), "until", "4096", "4")
	n.computes(0, 5)
	lender.killWith()
	n.eventually("the device is lost", func() bool { return n.logged("a device is lost", "name") == "lent" })
	lend(lender.gateway)
	p.right()
}

// withWorkers are the daemon and its workers.
func (n *theNode) withWorkers() []int {
	n.Helper()
	parent := fmt.Sprintf("PPid:\t%d\n", n.cmd.Process.Pid)
	all := []int{n.cmd.Process.Pid}
	for _, pid := range n.processes() {
		if text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)); strings.Contains(string(text), parent) {
			all = append(all, pid)
		}
	}
	return all
}

// killWith kills the daemon and its workers, as the end of a machine does.
func (n *theNode) killWith() {
	n.Helper()
	all := n.withWorkers()
	n.kill()
	signalAll(all[1:], syscall.SIGKILL)
}

// Nodes without devices of their own run programs on those that others lend.
func TestNodeWithoutDevicesOfItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	lender, users := remoteNode(w)
	n := w.start("--devices", "remote:"+lender.gateway+",tls="+users[0])
	n.launch(made("small"), "sums").right()
	var several []*program // they do not fit at the same time
	for range 3 {
		several = append(several, n.launch(example(t, "weave"), "--size", "512k", "--repeat", "5"))
	}
	for _, p := range several {
		p.right()
	}
	n.idle()
	lender.idle()
}

// A program moves to a device that another node lends and that was not there when it began, though its
// worker does not reach that node: it goes on in one that does.
func TestProgramMovesToALentDeviceThatIsAdded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	lender, users := remoteNode(w)
	n := w.start("--devices", "soft:name=own,memory=32M")
	p := n.launch(made("small"), "until", "4096", "4")
	n.computes(0, 5)
	n.muster("device", "add", "remote:"+lender.gateway+",name=lent,tls="+users[0], "--socket", n.socket)
	n.muster("device", "drain", "own", "--socket", n.socket)
	n.computes(1, 5)
	p.right()
}
