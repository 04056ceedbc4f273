package stack

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/internal/need"
	"muster/node/gateway"
	"muster/wire/status"
)

// newTrio starts three nodes: a has the given devices and borrows from b and c, which have a GPU
// each.
func newTrio(t *testing.T, devices string) (p *pair, c *theNode) {
	w := newWorld(t)
	p = &pair{world: w, certs: filepath.Join(t.TempDir(), "certs")}
	for _, name := range []string{"na", "nb", "nc"} {
		w.muster("cert", p.certs, "--host", name+",127.0.0.1")
	}
	p.b = p.lender("127.0.0.1:0", "--devices", ratedGPU)
	c = p.node("nc", "--listen", "127.0.0.1:0", "--devices", ratedGPU)
	p.a = p.node("na", "--devices", devices, "--peers", p.b.gateway+","+c.gateway)
	return p, c
}

// atRandom is a mapper that places kernels on any device, without preference.
const atRandom = "ar:alpha=1:beta=1"

// ranAt counts the kernels that the node's program ran on each of its current additional devices,
// by the node that lends the device; "" is the node itself.
func (n *theNode) ranAt() map[string]uint64 {
	s, ran := n.status(), map[string]uint64{}
	for _, c := range s.Clients {
		for _, f := range c.Further {
			if f.Lent {
				ran[s.Devices[f.Device].Lender] += f.Kernels
			}
		}
	}
	return ran
}

// A program that sees one device uses those of the cluster: kernels of its streams run on its own
// node and on two others, which lend their devices while they are idle. When one of the lenders
// dies, the program continues.
func TestOneDeviceIsACluster(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the whole run does this, without the race detector")
	}
	p, c := newTrio(t, ratedGPU)
	one := p.launchWith([]string{"--socket", p.a.socket, "--mapping", atRandom}, made("small"), "spread", "4", "1024")
	p.eventually("kernels run on three nodes", func() bool {
		ran := p.a.ranAt()
		return ran["nb"] > 5 && ran["nc"] > 5 && p.guestsCompute() == 1
	})
	p.b.kill()
	p.eventually("the lender is missed", func() bool { return p.a.logged("a lender is lost: its programs go on elsewhere", "lender") != "" })
	p.a.goOn()
	one.right()
	p.eventually("everything is given back", func() bool { return len(c.status().Lent) == 0 })
	c.idle()
}

// A node without devices maps programs to devices of several others; its lenders report what
// kernels use.
func TestMappingOnANodeWithoutDevices(t *testing.T) {
	t.Parallel()
	p, _ := newTrio(t, "none")
	one := p.launchWith([]string{"--socket", p.a.socket, "--mapping", atRandom}, made("small"), "spread", "4", "1024")
	p.eventually("kernels run on two nodes", func() bool {
		ran := p.a.ranAt()
		return ran["nb"] > 5 || ran["nc"] > 5
	})
	p.a.goOn()
	one.right()
}

// parcels is what a node's gateway has exchanged with those of other lenders.
func (n *theNode) parcels() status.Parcels {
	if p := n.status().Parcels; p != nil {
		return *p
	}
	return status.Parcels{}
}

// carried is how many bytes of programs' memory went from one node to another.
func (n *theNode) carried(from, to string) (bytes uint64) {
	for _, l := range n.status().Links {
		if l.From.Node == from && l.To.Node == to {
			bytes += l.Bytes
		}
	}
	return bytes
}

// What a program computes on one lender and needs on another goes from one to the other, and not by
// its own node. A lender that dies costs a recovery.
func TestDataGoFromLenderToLender(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := &pair{world: w, certs: filepath.Join(t.TempDir(), "certs")}
	for _, name := range []string{"na", "nb", "nc"} {
		w.muster("cert", p.certs, "--host", name+",127.0.0.1")
	}
	first, second := anyPort(t), anyPort(t)
	lends := []string{"--devices", ratedGPU, "--offload", "lend", "--peers", first + "," + second, "--listen"}
	p.b = p.node("nb", append(lends, first)...)
	c := p.node("nc", append(lends, second)...)
	p.a = p.node("na", "--devices", "none", "--peers", first+","+second)
	one := p.launchWith([]string{"--socket", p.a.socket, "--mapping", atRandom}, made("small"), "spread", "4", "1024")
	p.eventually("data go both ways", func() bool { return p.b.parcels().Fetched > 0 && c.parcels().Fetched > 0 })
	// What the links between the lenders carried is what the lenders have exchanged. Memory that was
	// never written elsewhere comes from the program's node.
	p.eventually("all of what goes between them goes directly", func() bool {
		there, back := p.a.carried("nb", "nc"), p.a.carried("nc", "nb") // first: what is under way is counted later
		return there > 0 && back > 0 && c.parcels().Fetched >= there && p.b.parcels().Fetched >= back
	})
	p.b.kill()
	p.eventually("the lender is missed", func() bool { return p.a.logged("a lender is lost: its programs go on elsewhere", "lender") != "" })
	p.a.goOn()
	one.right()
	c.idle()
}

// A program that asks for three GPUs on a node with one gets three, of three nodes.
func TestThreeGPUsOnANodeWithOne(t *testing.T) {
	t.Parallel()
	p, c := newTrio(t, ratedGPU)
	one := p.launchWith([]string{"--socket", p.a.socket, "--gpus", "3"}, made("small"), "several", "3", "1024")
	p.eventually("its devices are those of three nodes", func() bool {
		s, at := p.a.status(), map[string]int{}
		for _, c := range s.Clients {
			if c.Device != nil && c.Kernels > 0 {
				at[s.Devices[*c.Device].Lender]++
			}
		}
		return at[""] == 1 && at["nb"] == 1 && at["nc"] == 1
	})
	p.a.goOn()
	one.right()
	p.eventually("everything is given back", func() bool { return len(p.b.status().Lent) == 0 && len(c.status().Lent) == 0 })
}

// Devices that a node borrows by its configuration are mapped like its own.
func TestMappingToLentDevices(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	lender, users := remoteNode(w)
	n := w.start("--devices", fmt.Sprintf("soft:name=own,memory=32M;remote:%s,name=lent,tls=%s", lender.gateway, users[0]))
	one := w.launchWith([]string{"--socket", n.socket, "--mapping", atRandom}, made("small"), "spread", "3", "1024")
	n.eventually("kernels run on both", func() bool { return n.ranAt()[lender.gateway] > 5 })
	n.goOn()
	one.right()
	n.idle()
	lender.idle()
}

// Nodes of a cluster learn of each other from its head: a program that waits on one runs on another
// that no configuration names. The head does not announce nodes that others cannot reach.
func TestPeersOfTheHead(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the whole run does this, without the race detector")
	}
	w := newWorld(t)
	p := &pair{world: w, certs: filepath.Join(t.TempDir(), "certs")}
	authority, _, err := gateway.OpenAuthority(p.certs, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	folder, err := authority.Head([]string{"localhost", "127.0.0.1"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	port, state := anyPort(t), t.TempDir()
	head := w.execute(made("muster"), "head", "--policy", "easy", "--page", "none", "--socket", fmt.Sprintf("@%s-head", filepath.Base(state)+filepath.Base(p.certs)+port), "--listen", port, "--tls-dir", folder, "--state", filepath.Join(state, "head"))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the head's log:\n%s", head.output)
		}
	})
	join := func(name, listen string) *theNode {
		if _, err := authority.Node([]string{name, "127.0.0.1"}, 1); err != nil {
			t.Fatal(err)
		}
		args := []string{"--devices", ratedGPU, "--vgpus", "2", "--quantum", "50ms", "--head", port, "--spool", filepath.Join(state, name), "--peers", "head"}
		if listen != "" {
			args = append(args, "--listen", listen)
		}
		return p.node(name, args...)
	}
	p.a = join("na", "")
	p.b = join("nb", anyPort(t))
	p.eventually("the node knows the other", func() bool {
		s := p.a.status()
		return len(s.Peers) == 1 && s.Peers[0].Node == "nb"
	})
	if peers := p.b.status().Peers; len(peers) > 0 {
		t.Errorf("a node that cannot be reached is a peer: %+v", peers)
	}
	programs := endless(p.a, 4)
	p.eventually("two programs compute there", func() bool { _, there, all := p.places(); return there == 2 && all })
	p.a.goOn()
	for _, one := range programs {
		one.right()
	}
	p.eventually("everything is given back", func() bool { return len(p.b.status().Lent) == 0 })
}

// ranOn is how many kernels a program ran on each device of a node.
func (n *theNode) ranOn(p *program) map[int]uint64 {
	ran := map[int]uint64{}
	c, _ := n.client(p)
	for _, r := range c.Ran {
		ran[r.Device] += r.Kernels
	}
	return ran
}

// keepsOff waits until a program runs kernels, and none of them on a device.
func (n *theNode) keepsOff(p *program, device int) {
	n.Helper()
	n.eventually(fmt.Sprintf("%s keeps off device %d", p.name, device), func() bool {
		before := n.ranOn(p)
		n.eventually("it runs 30 kernels", func() bool { return n.all(p) >= sum(before)+30 })
		return n.ranOn(p)[device] == before[device]
	})
}

func sum(ran map[int]uint64) (all uint64) {
	for _, n := range ran {
		all += n
	}
	return all
}

func (n *theNode) all(p *program) uint64 { return sum(n.ranOn(p)) }

// Programs whose launches are mapped know what others do on their devices. One that meets a program
// on a device, whose launches are not mapped, uses the idle one alone; when it has gone, both. Two
// that are mapped spread themselves. By what they do themselves they would use both devices alike
// (gr), or only the first (ag).
func TestMappedProgramsKeepApart(t *testing.T) {
	t.Parallel()
	need.IsSoak(t) // on a busy machine what programs hear of each other is too old to keep them apart
	t.Parallel()
	n := newWorld(t).start("--devices", "soft:memory=64M,workers=1,rate=2e7,name=a;soft:memory=64M,workers=1,rate=2e7,name=b", "--vgpus", "4")
	plain := n.launch(made("small"), "until", "30000", "1")
	n.isOn(plain, 0)
	n.eventually("it computes", func() bool { return n.all(plain) > 5 })
	mapped := map[string]*program{}
	for _, mapper := range []string{"gr", "ag"} {
		mapped[mapper] = n.launchWith([]string{"--socket", n.socket, "--mapping", mapper}, made("small"), "until", "30000", "1")
		n.isOn(mapped[mapper], 1)
		n.keepsOff(mapped[mapper], 0)
		if mapper == "gr" {
			plain.right()
			n.eventually("it uses both devices", func() bool { return n.ranOn(mapped["gr"])[0] > 10 })
			mapped["gr"].right()
			plain = n.launch(made("small"), "until", "30000", "1")
			n.isOn(plain, 0)
			n.eventually("it computes", func() bool { return n.all(plain) > 5 })
		}
	}
	plain.right()
	other := n.launchWith([]string{"--socket", n.socket, "--mapping", "ag"}, made("small"), "until", "30000", "1")
	on := func(device int) uint64 { return n.ranOn(other)[device] + n.ranOn(mapped["ag"])[device] }
	n.eventually("both compute", func() bool { return n.all(other) > 5 })
	first, second := on(0), on(1)
	n.eventually("they use both devices", func() bool { return on(0) > first+20 && on(1) > second+20 })
	other.right()
	mapped["ag"].right()
	n.idle()
}

// The first launches of a mapped program are explained, also if it ends before it has waited for
// anything for long.
func TestMappedLaunchesAreExplained(t *testing.T) {
	t.Parallel()
	n := newWorld(t).start("--devices", "soft:memory=64M,name=a;soft:memory=64M,name=b")
	p := n.launchWith([]string{"--socket", n.socket, "--mapping", "ag", "--explain", "3"}, made("small"), "sums", "1024", "5")
	p.right()
	if said := p.output.String(); strings.Count(said, "muster: kernel add: device ") != 3 {
		t.Errorf("three launches are to be explained:\n%s", said)
	}
}

// A mapped program that has borrowed a device hears of its lender when a program there begins to use
// it, and keeps off.
func TestMappedProgramsHearOfTheLender(t *testing.T) {
	t.Parallel()
	need.IsSoak(t) // on a busy machine what programs hear of each other is too old to keep them apart
	t.Parallel()
	p := newPair(t, []string{"--devices", ratedGPU}, []string{"--devices", ratedGPU})
	one := p.launchWith([]string{"--socket", p.a.socket, "--mapping", "gr"}, made("small"), "until", "30000", "1")
	p.eventually("kernels run on both nodes", func() bool { return p.a.ranAt()["nb"] > 10 })
	own := p.b.launch(made("small"), "until", "30000", "1")
	p.eventually("the lender's program computes", func() bool { return p.b.all(own) > 5 })
	p.a.keepsOff(one, 1)
	one.right()
	own.right()
}
