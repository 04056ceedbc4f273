package stack

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"muster/wire/status"
)

// Software GPUs that pace kernels by their operations: the first half as fast as the second.
const (
	slowGPU = "soft:memory=64M,workers=1,rate=1e7,speed=0.5"
	fastGPU = ratedGPU
)

// isServedBy waits until a client has run kernels on a device that a node has of another, or on the node's own: "".
func (n *theNode) isServedBy(is func(status.Client) bool, lender string) {
	n.Helper()
	n.eventually("it computes on the GPU of node "+lender, func() bool {
		s := n.status()
		i := slices.IndexFunc(s.Clients, is)
		if i < 0 || s.Clients[i].Device == nil || s.Devices[*s.Clients[i].Device].Lender != lender {
			return false
		}
		return slices.ContainsFunc(s.Clients[i].Ran, func(r status.RanOn) bool { return r.Device == *s.Clients[i].Device && r.Kernels > 0 })
	})
}

func anyClient(status.Client) bool { return true }

// A program on a slow GPU moves to the faster one of a node that has nothing to do, makes way for that
// node's own programs, and comes back when they have ended.
func TestGoesToTheFasterNode(t *testing.T) {
	t.Parallel()
	p := newPair(t, []string{"--devices", slowGPU}, []string{"--devices", fastGPU})
	one := endless(p.a, 1)[0]
	p.a.isServedBy(anyClient, "nb")
	if c, _ := p.a.client(one); c.Moves.Auto < 1 {
		t.Errorf("it has moved: %+v", c.Moves)
	}
	own := endless(p.b, 1)[0]
	p.eventually("the lender has its GPU for itself", func() bool {
		s := p.b.status()
		return len(s.Lent) == 0 && len(p.guests()) == 0 && slices.ContainsFunc(s.Clients, func(c status.Client) bool { return c.Kernels > 0 })
	})
	p.a.isServedBy(anyClient, "")
	p.a.goOn()
	own.right()
	p.eventually("it is there again", func() bool { return p.guestsCompute() == 1 })
	one.right()
	p.eventually("everything is given back", func() bool { return p.a.status().Peers[0].Borrowed == 0 && len(p.b.status().Lent) == 0 })
	p.b.idle()
}

// under makes and admits a grant, and returns how programs run under it.
func (n *theNode) under(id, device, reach string) []string {
	n.Helper()
	file := filepath.Join(n.TempDir(), id)
	n.muster("grant", "make", "--id", id, "--device", device, "--reach", reach, file)
	n.muster("grant", "admit", file, "--socket", n.socket)
	return []string{"--socket", n.socket, "--grant", file}
}

// A guest whose GPU is granted to a job has a few seconds to leave. If its own node hangs it is ended, and goes on at
// home when that is there again.
func TestAJobNeedNotWaitForAGuest(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it waits for as long as a guest may stay")
	}
	p := newPair(t, []string{"--devices", slowGPU}, []string{"--devices", fastGPU})
	one := endless(p.a, 1)[0]
	p.a.isServedBy(anyClient, "nb")
	frozen := p.a.withWorkers()
	signalAll(frozen, syscall.SIGSTOP)
	t.Cleanup(func() { signalAll(frozen, syscall.SIGCONT) })
	job := p.launchWith(p.b.under("job", "nb:0", "device"), made("small"), "until", "4096", "4")
	p.b.isServedBy(func(c status.Client) bool { return c.Grant == "job" }, "")
	if n := len(p.guests()); n > 0 {
		t.Errorf("the job's GPU has %d guests", n)
	}
	signalAll(frozen, syscall.SIGCONT)
	p.a.isServedBy(anyClient, "")
	p.a.goOn()
	one.right()
	job.right()
}

// A job's programs go to a faster node if their grant reaches it, and to none that a job has been granted.
func TestJobsGoToTheFasterNode(t *testing.T) {
	t.Parallel()
	p := newPair(t, []string{"--devices", slowGPU}, []string{"--devices", fastGPU})
	of := func(id string) func(status.Client) bool { return func(c status.Client) bool { return c.Grant == id } }
	stays := p.launchWith(p.a.under("stays", "na:0:16M", "node"), made("small"), "until", "4096", "4")
	p.a.isServedBy(of("stays"), "")
	goes := p.launchWith(p.a.under("goes", "na:0:16M", "cluster"), made("small"), "until", "4096", "4")
	p.a.isServedBy(of("goes"), "nb")
	p.b.under("other", "nb:0", "device")
	p.eventually("the lender's GPU is the job's", func() bool { return len(p.b.status().Lent) == 0 && len(p.guests()) == 0 })
	p.a.isServedBy(of("goes"), "")
	p.a.isServedBy(of("stays"), "")
	p.a.goOn()
	p.muster("grant", "revoke", "other", "--socket", p.b.socket)
	p.a.isServedBy(of("goes"), "nb")
	p.a.isServedBy(of("stays"), "")
	stays.right()
	goes.right()
}

// Three programs share a slow GPU beside two idle nodes with faster ones: two of them move there. With
// MUSTER_MEASURE=1 the programs run longer, and the test shows the elapsed times.
func TestSharersGoToIdleNodes(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it runs three programs to their end, three times")
	}
	rounds := "30"
	if os.Getenv("MUSTER_MEASURE") != "" {
		rounds = "100"
	}
	for _, mode := range []string{"off", "auto"} {
		t.Run(mode, func(t *testing.T) {
			p := besideTwo(t, mode)
			var programs []*program
			begin := time.Now()
			for range 3 {
				programs = append(programs, p.a.launch(made("small"), "sums", "65536", rounds))
			}
			for _, one := range programs {
				one.right()
			}
			took := time.Since(begin)
			here, there, yonder := p.a.status().Devices[0].BusyTime, p.b.status().Devices[0].BusyTime, p.c.status().Devices[0].BusyTime
			t.Logf("offload %s: %.1f s; GPU time %.1f s on the slow GPU, %.1f s and %.1f s on the fast ones", mode, took.Seconds(), here, there, yonder)
			if used := there > 0 && yonder > 0; used != (mode == "auto") {
				t.Errorf("the fast GPUs are used: %v", used)
			}
		})
	}
}

// overtaken is a node with a slow GPU, and two peers of it with fast ones.
type overtaken struct {
	*pair
	c *theNode
}

func besideTwo(t *testing.T, mode string) *overtaken {
	w := newWorld(t)
	p := &overtaken{pair: &pair{world: w, certs: filepath.Join(t.TempDir(), "certs")}}
	for _, name := range []string{"na", "nb", "nc"} {
		w.muster("cert", p.certs, "--host", name+",127.0.0.1")
	}
	p.b = p.lender("127.0.0.1:0", "--devices", fastGPU)
	p.c = p.node("nc", "--listen", "127.0.0.1:0", "--devices", fastGPU)
	p.a = p.node("na", "--peers", p.b.gateway+","+p.c.gateway, "--devices", slowGPU, "--offload", mode)
	p.eventually("the peers were heard", func() bool {
		return mode == "off" || !slices.ContainsFunc(p.a.status().Peers, func(q status.Peer) bool { return q.Heard < 0 })
	})
	return p
}

// With MUSTER_MEASURE=1: how long it takes from the end of the last program on a fast GPU, and from the end of a
// job's grant of it, until a program of a node with a slow one has computed there.
func TestHowSoonAProgramMoves(t *testing.T) {
	if os.Getenv("MUSTER_MEASURE") == "" {
		t.Skip("it only measures")
	}
	for i := range 6 {
		p := newPair(t, []string{"--devices", slowGPU}, []string{"--devices", fastGPU})
		run := []string{"--socket", p.b.socket}
		if i%2 == 1 {
			run = p.b.under("job", "nb:0", "device")
		}
		own := p.launchWith(run, made("small"), "until", "4096", "4")
		p.eventually("the lender's own program computes", func() bool { s := p.b.status(); return len(s.Clients) == 1 && s.Clients[0].Kernels > 0 })
		one := endless(p.a, 1)[0]
		p.eventually("it has lost as much as a move costs", func() bool { c, ok := p.a.client(one); return ok && c.BusyTime > 1 })
		own.stdin.Close()
		for len(p.b.status().Clients) > 0 {
			time.Sleep(time.Millisecond)
		}
		if i%2 == 1 {
			p.muster("grant", "revoke", "job", "--socket", p.b.socket)
		}
		idle := time.Now()
		for p.a.status().Peers[0].Borrowed == 0 {
			time.Sleep(time.Millisecond)
		}
		borrowed := time.Since(idle)
		for len(p.guests()) == 0 {
			time.Sleep(time.Millisecond)
		}
		there := time.Since(idle)
		for p.guestsCompute() == 0 {
			time.Sleep(time.Millisecond)
		}
		t.Logf("%d grants: after %.3f s it was borrowed, after %.3f s the program came, after %.3f s it had computed", i%2, borrowed.Seconds(), there.Seconds(), time.Since(idle).Seconds())
		one.right()
		own.right()
	}
}
