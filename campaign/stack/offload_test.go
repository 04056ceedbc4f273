package stack

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/wire/status"
)

// pair is two nodes on this machine; a borrows from b.
type pair struct {
	*world
	certs string
	a, b  *theNode
}

// ratedGPU is a software GPU that paces kernels by their operations at a fixed rate, so that eight
// programs are not slower because the machine has two processors.
const ratedGPU = "soft:memory=64M,workers=1,rate=2e7"

// newPair starts them.
func newPair(t *testing.T, a, b []string) *pair {
	w := newWorld(t)
	p := &pair{world: w, certs: filepath.Join(t.TempDir(), "certs")}
	w.muster("cert", p.certs, "--host", "na,127.0.0.1")
	w.muster("cert", p.certs, "--host", "nb,127.0.0.1")
	p.b = p.lender("127.0.0.1:0", b...)
	p.a = p.node("na", append([]string{"--peers", p.b.gateway}, a...)...)
	return p
}

// lender starts node b.
func (p *pair) lender(address string, args ...string) *theNode {
	return p.node("nb", append([]string{"--listen", address}, args...)...)
}

func (p *pair) node(name string, args ...string) *theNode {
	return p.start(append([]string{"--name", name, "--tls-dir", filepath.Join(p.certs, "node-"+name), "--state", filepath.Join(p.T.TempDir(), name)}, args...)...)
}

// places counts the programs of node a that have a device here and on the other node; all says
// whether each of them has run kernels.
func (p *pair) places() (here, there int, all bool) {
	s := p.a.status()
	all = true
	for _, c := range s.Clients {
		if c.Device != nil && s.Devices[*c.Device].Lender == "nb" {
			there++
		} else if c.Device != nil {
			here++
		}
		all = all && c.Kernels > 0
	}
	return here, there, all
}

// guests are the clients of node b that are of node a.
func (p *pair) guests() (list []status.Client) {
	for _, c := range p.b.status().Clients {
		if c.Guest {
			list = append(list, c)
		}
	}
	return list
}

// endless starts programs on a node that compute until they are told to end, and look at each sum.
func endless(n *theNode, count int) (list []*program) {
	for range count {
		list = append(list, n.launch(made("small"), "until", "4096", "4"))
	}
	return list
}

// goOn waits until each client of a node has run more kernels.
func (n *theNode) goOn() {
	n.Helper()
	before := map[uint64]uint64{}
	for _, c := range n.status().Clients {
		before[c.ID] = c.Kernels
	}
	n.eventually("each program goes on", func() bool {
		for _, c := range n.status().Clients {
			if c.Kernels <= before[c.ID] {
				return false
			}
		}
		return true
	})
}

// Waiting programs are served by an idle node without noticing. When they have ended, the borrowed
// virtual GPUs are returned.
func TestOffload(t *testing.T) {
	t.Parallel()
	p := newPair(t, []string{"--devices", ratedGPU, "--vgpus", "2"}, []string{"--devices", ratedGPU})
	programs := endless(p.a, 4)
	p.eventually("two programs are served here and two there", func() bool {
		here, there, all := p.places()
		return here == 2 && there == 2 && all && len(p.guests()) == 2
	})
	for _, g := range p.guests() {
		if g.User != "node:na" {
			t.Errorf("a guest is user %q", g.User)
		}
	}
	if got := p.muster("peers", "--socket", p.a.socket); !strings.Contains(got, "nb") {
		t.Errorf("muster peers says\n%s", got)
	}
	if got := p.muster("ps", "--socket", p.a.socket); strings.Count(got, " at nb ") != 2 || !strings.Contains(got, "\nborrowed of nb: ") {
		t.Errorf("muster ps says\n%s", got)
	}
	if got := p.muster("top", "--once", "--socket", p.b.socket); !strings.Contains(got, "\nlent to na: device 0, ") {
		t.Errorf("muster top says of the lender\n%s", got)
	}
	p.eventually("what went between the nodes is counted on both", func() bool {
		served := p.b.status().Served
		return len(served) == 1 && served[0].Node == "na" && served[0].Kernels > 0 && served[0].CopiedIn > 0 &&
			slices.ContainsFunc(p.a.status().Links, func(l status.Link) bool { return l.From.Node == "na" && l.To.Node == "nb" && l.Bytes > 0 })
	})
	for _, one := range programs {
		one.right()
	}
	p.eventually("everything is given back", func() bool {
		return p.a.status().Peers[0].Borrowed == 0 && len(p.b.status().Lent) == 0
	})
	p.b.idle()
}

// Programs of a job whose grant reaches the cluster go to another node while they wait for their share. What the
// grant allows holds there, too, and they survive the lender.
func TestGrantThatReachesTheCluster(t *testing.T) {
	t.Parallel()
	p := newPair(t, []string{"--devices", ratedGPU, "--vgpus", "2"}, []string{"--devices", ratedGPU})
	file := filepath.Join(t.TempDir(), "job")
	p.muster("grant", "make", "--id", "job", "--device", "na:0:32M", "--reach", "cluster", file)
	p.muster("grant", "admit", file, "--socket", p.a.socket)
	var programs []*program
	for range 4 {
		programs = append(programs, p.launchWith([]string{"--socket", p.a.socket, "--grant", file}, made("small"), "until", "4096", "4"))
	}
	shared := func() bool {
		here, there, all := p.places()
		return here == 2 && there == 2 && all && len(p.guests()) == 2
	}
	p.eventually("two programs are served here and two there", shared)
	p.muster("grant", "limit", "job", "0", "--socket", p.a.socket)
	p.eventually("the job has no device on either node", func() bool {
		here, there, _ := p.places()
		return here == 0 && there == 0 && len(p.guests()) == 0
	})
	p.muster("grant", "limit", "job", "--socket", p.a.socket, "--", "-1")
	p.eventually("the job goes on on both", shared)
	p.b.kill()
	p.eventually("the programs of the dead lender are at home", func() bool { _, there, _ := p.places(); return there == 0 })
	p.a.goOn()
	for _, one := range programs[:2] {
		one.right()
	}
	p.muster("grant", "revoke", "job", "--socket", p.a.socket)
	for _, one := range programs[2:] {
		if one.wait() == 0 {
			t.Error("a program outlives its grant")
		}
	}
	p.eventually("nothing is left of it", func() bool { return len(p.a.status().Clients) == 0 })
}

// A killed lender costs its guests a recovery, in any phase of the loan.
func TestLenderIsKilled(t *testing.T) {
	t.Parallel()
	for name, when := range map[string]func(p *pair) bool{
		"when programs are sent there": func(p *pair) bool { _, there, _ := p.places(); return there > 0 },
		"while they compute there":     func(p *pair) bool { return p.guestsCompute() == 2 },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, []string{"--devices", ratedGPU, "--vgpus", "2", "--quantum", "50ms"}, []string{"--devices", ratedGPU})
			programs := endless(p.a, 4)
			p.eventually(name, func() bool { return when(p) })
			p.b.kill()
			p.eventually("the lender is missed", func() bool { return p.a.logged("a lender is lost: its programs go on elsewhere", "lender") != "" })
			p.a.goOn()
			for _, one := range programs {
				one.right()
			}
		})
	}
}

// guestsCompute is how many guests of node b have run kernels.
func (p *pair) guestsCompute() (n int) {
	for _, g := range p.guests() {
		if g.Kernels > 0 {
			n++
		}
	}
	return n
}

// A program that runs on another node returns when a device of its own node is idle, once staying
// has cost as much as the move.
func TestComesHome(t *testing.T) {
	t.Parallel()
	p := newPair(t, []string{"--devices", ratedGPU, "--vgpus", "1", "--quantum", "off"}, []string{"--devices", ratedGPU})
	programs := endless(p.a, 1)
	p.eventually("one program is served here", func() bool { here, _, all := p.places(); return here == 1 && all })
	programs = append(programs, endless(p.a, 1)...)
	p.eventually("the other one is served there", func() bool { here, there, all := p.places(); return here == 1 && there == 1 && all })
	if c, _ := p.a.client(programs[0]); c.Device != nil && *c.Device != 0 { // it looked idle for a moment, and made way
		slices.Reverse(programs)
	}
	programs[0].right()
	p.a.isServedBy(func(c status.Client) bool { return c.Pid == int32(programs[1].cmd.Process.Pid) }, "")
	p.a.goOn()
	programs[1].right()
}

// A lender whose own programs wait gets its virtual GPUs back: the guests go home.
func TestLenderNeedsItsOwn(t *testing.T) {
	t.Parallel()
	p := newPair(t, []string{"--devices", ratedGPU, "--vgpus", "2", "--quantum", "50ms"}, []string{"--devices", ratedGPU, "--vgpus", "2", "--quantum", "off"})
	programs := endless(p.a, 4)
	p.eventually("two programs are served there", func() bool { _, there, all := p.places(); return there == 2 && all })
	own := endless(p.b, 2)
	p.eventually("the lender's own programs are served, and the guests have gone home", func() bool {
		s, served := p.b.status(), 0
		for _, c := range s.Clients {
			if !c.Guest && c.Kernels > 0 {
				served++
			}
		}
		return served == 2 && len(s.Lent) == 0 && len(p.guests()) == 0
	})
	p.a.goOn()
	for _, one := range append(programs, own...) {
		one.right()
	}
}

// A node without devices runs programs on those of its peers. When its only lender dies, they wait
// for the next.
func TestNodeWithoutDevices(t *testing.T) {
	t.Parallel()
	p := newPair(t, []string{"--devices", "none"}, []string{"--devices", ratedGPU})
	p.a.launch(made("small"), "sums").right()
	p.a.idle()
	one := endless(p.a, 1)[0]
	p.eventually("it is served there", func() bool { _, there, all := p.places(); return there == 1 && all })
	p.b.kill()
	p.eventually("the lender is missed", func() bool { return p.a.logged("a lender is lost: its programs go on elsewhere", "lender") != "" })
	p.b = p.lender(p.b.gateway, "--devices", ratedGPU)
	p.a.goOn()
	one.right()
	p.eventually("everything is given back", func() bool {
		return p.a.status().Peers[0].Borrowed == 0 && len(p.b.status().Lent) == 0
	})
}

// A program on a node without devices whose peers have nothing to lend is told so.
func TestNobodyLends(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it waits for as long as a program does")
	}
	p := newPair(t, []string{"--devices", "none"}, []string{"--devices", ratedGPU, "--offload", "borrow"})
	one := p.a.launch(made("small"), "sums")
	if one.wait() == 0 {
		t.Error("a program ran without any device")
	}
	if said := one.output.String(); !strings.Contains(said, "its peers lent it none") {
		t.Errorf("it said %q", said)
	}
}

// Eight programs with equal work share one GPU, beside an idle node. With offload, the busier GPU
// does little more than half of the work (less evenly where the machine has other work). With
// MUSTER_MEASURE=1 the programs run longer, and the test shows the elapsed times.
func TestOffloadHalvesTheWork(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it runs eight programs to their end")
	}
	rounds, wall := "20", map[string]time.Duration{}
	if os.Getenv("MUSTER_MEASURE") != "" {
		rounds = "150"
	}
	divided := func(t *testing.T, mode string) float64 {
		p := newPair(t, []string{"--devices", ratedGPU, "--offload", mode}, []string{"--devices", ratedGPU})
		p.eventually("the peer was heard", func() bool { s := p.a.status(); return mode == "off" || s.Peers[0].Heard >= 0 })
		var programs []*program
		begin := time.Now()
		for range 8 {
			programs = append(programs, p.a.launch(made("small"), "sums", "65536", rounds))
		}
		for _, one := range programs {
			one.right()
		}
		wall[mode] = time.Since(begin)
		here, there := p.a.status().Devices[0].BusyTime, p.b.status().Devices[0].BusyTime
		t.Logf("%v; GPU time %.1f s here, %.1f s there", wall[mode], here, there)
		return (here + there) / max(here, there)
	}
	for _, mode := range []string{"off", "auto"} {
		want := map[string]float64{"off": 1, "auto": 1.2}[mode]
		t.Run(mode, func(t *testing.T) {
			for range 5 {
				by := divided(t, mode)
				t.Logf("the work is divided by %.2f", by)
				if by >= want {
					return
				}
			}
			t.Error("the work is not divided")
		})
	}
	t.Logf("%.2f times as fast with offload", wall["off"].Seconds()/wall["auto"].Seconds())
}

// A stopped lender does not answer and closes no connection. It costs its guests a recovery, like
// one that dies; when it continues, its devices are free.
func TestLenderIsFrozen(t *testing.T) {
	t.Parallel()
	p := newPair(t, []string{"--devices", ratedGPU, "--vgpus", "2", "--quantum", "50ms", "--worker-timeout", "2s"}, []string{"--devices", ratedGPU})
	programs := endless(p.a, 4)
	p.eventually("two programs compute there", func() bool { return p.guestsCompute() == 2 })
	frozen := p.b.withWorkers()
	signalAll(frozen, syscall.SIGSTOP)
	t.Cleanup(func() { signalAll(frozen, syscall.SIGCONT) }) // it must run to be stopped at the end of the test
	p.eventually("the lender is missed", func() bool { return p.a.logged("a lender is lost: its programs go on elsewhere", "lender") != "" })
	p.a.goOn()
	signalAll(frozen, syscall.SIGCONT)
	for _, one := range programs {
		one.right()
	}
	p.eventually("everything is given back", func() bool { return len(p.b.status().Lent) == 0 })
	p.b.idle()
}

func signalAll(pids []int, signal syscall.Signal) {
	for _, pid := range pids {
		_ = syscall.Kill(pid, signal)
	}
}

// A borrower's daemon is replaced while its programs are on another node: the programs continue,
// and what the first daemon borrowed is returned.
func TestBorrowerIsRestarted(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the whole run does this, without the race detector")
	}
	for _, how := range []string{"handover", "kill"} {
		t.Run(how, func(t *testing.T) {
			w := newWorld(t)
			p := &pair{world: w, certs: filepath.Join(t.TempDir(), "certs")}
			w.muster("cert", p.certs, "--host", "na,127.0.0.1")
			w.muster("cert", p.certs, "--host", "nb,127.0.0.1")
			p.b = p.lender("127.0.0.1:0", "--devices", ratedGPU)
			args := []string{"--name", "na", "--tls-dir", filepath.Join(p.certs, "node-na"), "--state", filepath.Join(t.TempDir(), "na"),
				"--devices", ratedGPU, "--vgpus", "2", "--quantum", "50ms", "--orphan-grace", "1m", "--peers", p.b.gateway}
			p.a = w.start(args...)
			programs := endless(p.a, 4)
			p.eventually("two programs compute there", func() bool { return p.guestsCompute() == 2 })
			before := p.guests()
			if how == "handover" {
				w.muster("node", "stop", "--handover", "--socket", p.a.socket)
				<-p.a.exited
				p.a.killed = true
			} else {
				p.a.kill()
			}
			p.a = p.a.again(args...)
			p.a.back(programs)
			p.eventually("what was borrowed before is given back", func() bool {
				for _, g := range p.guests() {
					for _, was := range before {
						if g.ID == was.ID {
							return false
						}
					}
				}
				return true
			})
			p.a.goOn()
			for _, one := range programs {
				one.right()
			}
			p.eventually("everything is given back", func() bool { return len(p.b.status().Lent) == 0 })
			p.b.idle()
		})
	}
}
