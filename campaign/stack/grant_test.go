package stack

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/node/ask"
	"muster/node/gateway"
	"muster/wire/grant"
	"muster/wire/status"
)

var buildDevices = sync.OnceValue(func() error { return compile("devices") })

// cluster is a node where a job's programs run, near, and one that lends its devices, far.
type grantCluster struct {
	*world
	near, far *theNode
	dir       string // certificates and grants
	grants    int
}

const nearDevices, farDevices = "soft:memory=64M,name=A;soft:memory=96M,name=B", "soft:memory=128M,name=C;soft:memory=64M,name=D"

func newGrantCluster(t *testing.T, near ...string) *grantCluster {
	t.Helper()
	c := newGrantWorld(t)
	c.near = c.start(append([]string{"--name", "near", "--devices", nearDevices}, near...)...)
	return c
}

// newGrantWorld is a cluster without nodes, which has certificates.
func newGrantWorld(t *testing.T) *grantCluster {
	t.Helper()
	if err := buildDevices(); err != nil {
		t.Fatal(err)
	}
	c := &grantCluster{dir: t.TempDir(), world: newWorld(t)}
	authority, _, err := gateway.OpenAuthority(c.dir, time.Now())
	if err == nil {
		_, err = authority.Node([]string{"127.0.0.1"}, 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// lend starts the node that lends its devices.
func (c *grantCluster) lend(args ...string) {
	c.Helper()
	c.far = c.start(c.lender("127.0.0.1:0", args...)...)
}

// lender are the arguments of the node that lends its devices at an address.
func (c *grantCluster) lender(address string, args ...string) []string {
	return append([]string{"--name", "far", "--devices", farDevices, "--listen", address, "--tls-dir", filepath.Join(c.dir, "node-127.0.0.1")}, args...)
}

// grant makes a grant, which no node knows yet.
func (c *grantCluster) grant(devices ...string) (file string, g *grant.Grant) {
	c.Helper()
	return c.grantWith(nil, devices...)
}

// grantWith makes one with further terms.
func (c *grantCluster) grantWith(terms []string, devices ...string) (file string, g *grant.Grant) {
	c.Helper()
	c.grants++
	file = filepath.Join(c.dir, fmt.Sprintf("grant-%d", c.grants))
	args := append([]string{"grant", "make", "--id", fmt.Sprintf("job.%d", c.grants)}, terms...)
	for _, d := range devices {
		args = append(args, "--device", d)
	}
	if c.far != nil {
		args = append(args, "--address", "far="+c.far.gateway, "--authority", filepath.Join(c.dir, "ca.pem"))
	}
	c.muster(append(args, file)...)
	text, err := os.ReadFile(file)
	if err == nil {
		g, err = grant.Decode(text)
	}
	if err != nil {
		c.Fatal(err)
	}
	return file, g
}

// admitted makes a grant of which each node knows its own devices.
func (c *grantCluster) admitted(devices ...string) (file string, g *grant.Grant) {
	c.Helper()
	file, g = c.grant(devices...)
	for _, n := range []*theNode{c.near, c.far} {
		if n == nil {
			continue
		}
		if devices := g.On(n.status().Node); len(devices) > 0 {
			if _, err := ask.Admit(n.socket, g, devices, grant.AllDevices, time.Time{}); err != nil {
				c.Fatal(err)
			}
		}
	}
	return file, g
}

// atHome makes a grant that the lender knows, and all of which the near node knows, where the programs run.
func (c *grantCluster) atHome(terms []string, devices ...string) (file string, g *grant.Grant) {
	c.Helper()
	file, g = c.grantWith(terms, devices...)
	c.muster("grant", "admit", file, "--socket", c.far.socket)
	c.muster("grant", "admit", file, "--socket", c.near.socket)
	return file, g
}

// talker is a program that executes commands.
type talker struct {
	*program
	said int
}

// talk starts the program under a grant.
func (c *grantCluster) talk(file string, options ...string) *talker {
	c.Helper()
	t := &talker{program: c.launchWith(append([]string{"--socket", c.near.socket, "--grant", file}, options...), made("devices"))}
	c.Cleanup(func() {
		if c.Failed() {
			c.Logf("the program said:\n%s", t.output)
		}
	})
	t.says("init 0")
	return t
}

// do tells the program something, and waits for what it says to that.
func (t *talker) do(what, want string) {
	t.Helper()
	t.begin(what)
	t.hears(want)
}

func (t *talker) begin(what string) {
	t.Helper()
	if _, err := fmt.Fprintln(t.stdin, what); err != nil {
		t.Fatal(err, t.output)
	}
}

// hears waits until the program says something that it has not said before.
func (t *talker) hears(want string) {
	t.Helper()
	t.eventually(fmt.Sprintf("the program says %q", want), func() bool {
		at := strings.Index(t.output.String()[t.said:], want)
		if at < 0 {
			select {
			case <-t.exited:
				if !strings.Contains(t.output.String()[t.said:], want) {
					t.Fatalf("the program ended (%v) and did not say %q:\n%s", t.cmd.ProcessState, want, t.output)
				}
			default:
			}
			return false
		}
		t.said += at + len(want)
		return true
	})
}

// One program uses a device of its own node and borrowed ones, in the order of the grant, and
// copies between them. Each device is reported with its own properties.
func TestGrantOfSeveralNodes(t *testing.T) {
	t.Parallel()
	c := newGrantCluster(t)
	c.lend()
	file, _ := c.admitted("far:1", "near:1", "far:0:40MiB")
	p := c.talk(file)
	p.do("see", "devices 3 D:64MiB:1 B:96MiB:2 C:40MiB:3\n")
	for d, on := range []*theNode{c.far, c.near, c.far} {
		before := len(on.status().Clients)
		p.do(fmt.Sprint("use ", d), fmt.Sprintf("use %d: 0\n", d))
		if now := len(on.status().Clients); now != before+1 {
			t.Errorf("device %d: node %s has %d clients, and had %d", d, on.status().Node, now, before)
		}
	}
	p.do("add 0 5", "add 0: 0\n")
	p.do("copy 0 1", "copy 0: 0\n")
	p.do("add 1 7", "add 1: 0\n")
	p.do("copy 1 2", "copy 1: 0\n")
	p.do("add 2 100", "add 2: 0\n")
	p.do("show 0", "value 5 show 0: 0\n")
	p.do("show 1", "value 12 show 1: 0\n")
	p.do("show 2", "value 112 show 2: 0\n")
	for _, client := range append(c.near.status().Clients, c.far.status().Clients...) {
		if client.Grant != "job.1" || client.Device == nil || *client.Device != map[int]int{0: 1, 1: 1, 2: 0}[client.Virtual] || int(client.Pid) == p.cmd.Process.Pid {
			t.Errorf("client %+v", client)
		}
	}
	p.right()
	c.near.idle()
	c.far.idle()
}

// The programs of a job together get no more memory of a device than the job's share.
func TestGrantedMemory(t *testing.T) {
	t.Parallel()
	c := newGrantCluster(t)
	file, _ := c.admitted("near:1:32MiB")
	first, second := c.talk(file), c.talk(file)
	first.do("see", "devices 1 B:32MiB:1\n")
	first.do("use 0", "use 0: 0\n")
	first.do("take 0 33554433", "that is the job's share of the device: ask for a larger one when you submit the job")
	first.hears("take 0: 2\n")
	less := c.talk(file, "--memory", "8MiB")
	less.do("use 0", "use 0: 0\n")
	less.do("take 0 16777216", "give it more with muster run --memory (MUSTER_RUN_MEMORY), up to the job's share of the device")
	less.hears("take 0: 2\n")
	less.right()
	first.do("take 0 16777216", "take 0: 0\n")
	second.do("use 0", "use 0: 0\n")
	second.do("take 0 16777216", "the job's share of the device is used up")
	second.hears("take 0: 2\n")
	second.do("take 0 4194304", "take 0: 0\n")
	second.do("add 0 3", "add 0: 0\n")
	first.do("add 0 4", "add 0: 0\n")
	second.do("show 0", "value 3 show 0: 0\n")
	first.do("show 0", "value 4 show 0: 0\n")
	first.right()
	c.eventually("the first process has gone", func() bool { return len(c.near.status().Clients) == 1 })
	second.do("drop 0", "drop 0: 0\n")
	second.do("take 0 29360128", "take 0: 0\n")
	second.right()
	c.near.idle()
}

// Other programs are moved off a device that is granted whole, and return to it when the grant has
// ended.
func TestGrantedWhole(t *testing.T) {
	t.Parallel()
	c := newGrantCluster(t)
	other := c.near.launch(made("small"), "hold", "1000")
	other.says("holding")
	was := *c.near.status().Clients[0].Device
	file, _ := c.admitted(fmt.Sprint("near:", was))
	c.eventually("the other program has left", func() bool {
		d := c.near.status().Clients[0].Device
		return d == nil || *d != was
	})
	p := c.talk(file)
	p.do("use 0", "use 0: 0\n")
	p.do("add 0 1", "add 0: 0\n")
	p.do("show 0", "value 1 show 0: 0\n")
	until := c.near.launch(made("small"), "until", "1000", "3")
	c.eventually("another program runs beside it", func() bool {
		for _, client := range c.near.status().Clients {
			if client.Grant == "" && client.Kernels > 10 {
				return true
			}
		}
		return false
	})
	for _, client := range c.near.status().Clients {
		if client.Grant == "" && client.Device != nil && *client.Device == was {
			t.Errorf("client %+v is on a device that is granted to another", client)
		}
	}
	until.right()
	other.right()
	// A second job cannot have what the first has.
	again, _ := c.grant(fmt.Sprintf("near:%d:16MiB", was))
	refused := c.execute(made("muster"), "grant", "admit", again, "--socket", c.near.socket)
	if refused.wait() == 0 || !strings.Contains(refused.output.String(), "granted to others") {
		t.Errorf("a device was granted twice: %s", refused.output)
	}
	p.right()
	c.muster("grant", "revoke", "job.1", "--socket", c.near.socket)
	c.muster("grant", "admit", again, "--socket", c.near.socket)
	c.near.idle()
}

// A suspended job leaves its devices between kernels, on both nodes, and later continues where it
// was.
func TestGrantSuspended(t *testing.T) {
	t.Parallel()
	c := newGrantCluster(t)
	c.lend()
	file, _ := c.admitted("near:0", "far:0")
	for d, n := range []*theNode{c.near, c.far} {
		p := c.talk(file)
		p.do(fmt.Sprint("use ", d), fmt.Sprintf("use %d: 0\n", d))
		p.begin(fmt.Sprint("spin ", d))
		p.hears("spinning")
		c.eventually("kernels run", func() bool { return n.status().Clients[0].Kernels > 0 })
		c.muster("grant", "limit", "job.1", "0", "--socket", n.socket)
		c.eventually("nobody is on the device", func() bool {
			s := n.status()
			return s.Clients[0].Device == nil && s.Clients[0].Parked && s.Devices[0].Free == s.Devices[0].Memory
		})
		// Another job may have the device meanwhile, and the first comes back afterwards.
		other, _ := c.grant(fmt.Sprintf("%s:0", n.status().Node))
		c.muster("grant", "admit", other, "--socket", n.socket)
		if back := c.execute(made("muster"), "grant", "limit", "job.1", "1", "--socket", n.socket); back.wait() == 0 {
			t.Errorf("a job went on with a device that another one has: %s", back.output)
		}
		c.muster("grant", "revoke", fmt.Sprintf("job.%d", c.grants), "--socket", n.socket)
		ran := n.status().Clients[0].Kernels
		c.muster("grant", "limit", "job.1", "--socket", n.socket, "--", "-1")
		c.eventually("kernels run again", func() bool { return n.status().Clients[0].Kernels > ran })
		p.begin(fmt.Sprint("show ", d))
		p.hears(fmt.Sprintf("spin %d: 0\n", d))
		times := regexp.MustCompile(`times (\d+) `).FindStringSubmatch(p.output.String())
		p.hears(fmt.Sprintf("value %s show %d: 0\n", times[1], d))
		p.right()
		n.idle()
	}
}

// If a program may use only one of two devices at a time, it uses one after the other.
func TestGrantTakesTurns(t *testing.T) {
	t.Parallel()
	c := newGrantCluster(t)
	file, _ := c.grant("near:0", "near:1")
	c.muster("grant", "admit", file, "--limit", "1", "--socket", c.near.socket)
	p := c.talk(file)
	for _, d := range []string{"0", "1"} {
		p.do("use "+d, "use "+d+": 0\n")
	}
	for range 3 {
		for _, d := range []string{"0", "1"} {
			p.do("add "+d+" 1", "add "+d+": 0\n")
			p.do("show "+d, "show "+d+": 0\n")
			used := map[int]bool{}
			for _, client := range c.near.status().Clients {
				if client.Device != nil {
					used[*client.Device] = true
				}
			}
			if len(used) > 1 {
				t.Errorf("devices %v are used while device %s runs", used, d)
			}
		}
	}
	p.do("show 1", "value 3 show 1: 0\n")
	p.right()
	c.near.idle()
}

// Revoking a grant ends the programs' use of its devices, with the reason, and invalidates the
// credential. Devices of other nodes are not affected.
func TestGrantRevoked(t *testing.T) {
	t.Parallel()
	c := newGrantCluster(t)
	c.lend()
	file, g := c.admitted("near:0", "far:0")
	p := c.talk(file)
	p.do("use 0", "use 0: 0\n")
	p.do("use 1", "use 1: 0\n")
	p.begin("spin 1")
	p.hears("spinning")
	c.eventually("kernels run", func() bool { return c.far.status().Clients[0].Kernels > 0 })
	c.muster("grant", "revoke", g.ID, "--reason", "the job has ended", "--socket", c.far.socket)
	p.hears("the job has ended")
	p.hears("spin 1: ")
	c.far.idle()
	p.do("add 0 2", "add 0: 0\n")
	p.do("show 0", "value 2 show 0: 0\n")
	p.right()
	for _, n := range []string{"far", "near"} {
		again := c.launchWith([]string{"--socket", c.near.socket, "--grant", file}, made("devices"))
		if again.wait() == 0 || !strings.Contains(again.output.String(), "node "+n+": the node knows no grant with this credential") {
			t.Errorf("a program came in with a grant that has ended on node %s: %s", n, again.output)
		}
		if n == "far" { // the first is asked first
			c.muster("grant", "revoke", g.ID, "--socket", c.near.socket)
		}
	}
	c.near.idle()
}

// A node refuses a credential that is made up, belongs to another user, or is for another node; if
// grants are required, it also refuses programs without one.
func TestGrantsThatAreRefused(t *testing.T) {
	t.Parallel()
	c := newGrantCluster(t, "--grants", "required")
	c.lend()
	unknown, _ := c.grant("near:0")
	unknownThere, _ := c.grant("far:0")
	others := filepath.Join(c.dir, "others")
	c.muster("grant", "make", "--user", "somebody", "--id", "others", "--device", "near:0", others)
	c.muster("grant", "admit", others, "--socket", c.near.socket)
	readable := filepath.Join(c.dir, "readable")
	c.muster("grant", "make", "--device", "near:1", readable)
	if err := os.Chmod(readable, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []struct{ name, file, want string }{
		{"unknown", unknown, "node near: the node knows no grant with this credential"},
		{"unknown at the lender", unknownThere, "node far: the node knows no grant with this credential"},
		{"another user's", others, "grant others is user somebody's, and user"},
		{"readable", readable, "others can read"},
	} {
		p := c.launchWith([]string{"--socket", c.near.socket, "--grant", bad.file}, made("devices"))
		if p.wait() == 0 || !strings.Contains(p.output.String(), bad.want) {
			t.Errorf("%s: %s", bad.name, p.output)
		}
	}
	p := c.near.launch(made("small"), "sums", "1000")
	if p.wait() == 0 || !strings.Contains(p.output.String(), "this node serves only programs that were granted its devices") {
		t.Errorf("without a grant: %s", p.output)
	}
	granted, _ := c.admitted("near:1")
	ok := c.talk(granted)
	ok.do("use 0", "use 0: 0\n")
	ok.right()
	c.near.idle()
}

// A failed lender affects only its own device. When it is back it knows its grants: programs that
// have not used its device yet do not notice, and new ones can start.
func TestLenderFails(t *testing.T) {
	t.Parallel()
	c := newGrantCluster(t)
	state := []string{"--orphan-grace", "1m", "--state", filepath.Join(t.TempDir(), "state")}
	c.lend(state...)
	file, _ := c.admitted("near:0", "far:0")
	later := c.talk(file)
	p := c.talk(file)
	p.do("use 0", "use 0: 0\n")
	p.do("use 1", "use 1: 0\n")
	c.far.kill()
	p.begin("show 1")
	p.hears("node far: the connection to the node broke")
	p.hears("show 1: ")
	p.do("add 0 9", "add 0: 0\n")
	p.do("show 0", "value 9 show 0: 0\n")
	p.right()
	later.do("see", "devices 2 A:64MiB:1 C:128MiB:2\n")
	c.far = c.far.again(c.lender(c.far.gateway, state...)...)
	later.do("use 1", "use 1: 0\n")
	later.do("add 1 3", "add 1: 0\n")
	later.do("show 1", "value 3 show 1: 0\n")
	later.right()
	next := c.talk(file)
	next.do("use 1", "use 1: 0\n")
	next.right()
	c.near.idle()
	c.far.idle()
}

// known is what the near node knows of grants.
func (c *grantCluster) known() *status.Grants {
	c.Helper()
	known, err := ask.Grants(c.near.socket)
	if err != nil {
		c.Fatal(err)
	}
	for _, g := range known.Grants {
		for i := range g.Devices {
			g.Devices[i].Allocated = 0 // workers report it only from time to time
		}
	}
	return known
}

// Programs continue under their grants when the daemon was killed and started again. The granted
// devices stay reserved, and the grant can be limited and revoked as before.
func TestGrantsOutliveTheDaemon(t *testing.T) {
	t.Parallel()
	keeps := []string{"--name", "near", "--devices", nearDevices, "--orphan-grace", "1m", "--state", filepath.Join(t.TempDir(), "state")}
	c := newGrantCluster(t, keeps...)
	_, unused := c.admitted("near:1:16MiB")
	file, g := c.admitted("near:0")
	p := c.talk(file)
	p.do("use 0", "use 0: 0\n")
	p.do("add 0 5", "add 0: 0\n")
	before := c.known()
	c.near.kill()
	c.near = c.near.again(keeps...)
	if after := c.known(); !reflect.DeepEqual(after, before) {
		t.Errorf("before: %+v, after: %+v", before, after)
	}
	p.do("add 0 6", "add 0: 0\n")
	p.do("show 0", "value 11 show 0: 0\n")
	second := c.talk(file)
	second.do("use 0", "use 0: 0\n")
	c.muster("grant", "limit", g.ID, "0", "--socket", c.near.socket)
	c.eventually("nobody is on the device", func() bool { return c.near.status().Devices[0].Assigned == 0 })
	c.muster("grant", "limit", g.ID, "1", "--socket", c.near.socket)
	p.do("show 0", "value 11 show 0: 0\n")
	c.muster("grant", "revoke", g.ID, "--socket", c.near.socket)
	c.muster("grant", "revoke", unused.ID, "--socket", c.near.socket)
	// A worker may answer a last call before it hears that its client has ended.
	c.eventually("its clients have ended", func() bool { return len(c.near.status().Clients) == 0 })
	p.begin("show 0")
	p.hears("grant " + g.ID + " was revoked")
	p.right()
	second.right()
	c.near.idle()
}
