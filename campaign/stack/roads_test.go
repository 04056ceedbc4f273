package stack

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"testing"
)

// keeps are the arguments of a node that can be killed and started again.
func keeps(t *testing.T) []string {
	return []string{"--orphan-grace", "1m", "--state", filepath.Join(t.TempDir(), "state")}
}

// reaches are the terms of a grant whose programs have their clients at home.
var reaches = []string{"--reach", "node"}

// drainOwn has the near node's own devices take no programs.
func (c *grantCluster) drainOwn() {
	c.Helper()
	for _, d := range []string{"A", "B"} {
		c.muster("device", "drain", d, "--socket", c.near.socket)
	}
}

// A program whose lender is killed waits for it while no other device within reach takes programs, and is
// rebuilt there.
func TestLostLenderComesBack(t *testing.T) {
	t.Parallel()
	c := newGrantCluster(t)
	state := keeps(t)
	c.lend(state...)
	file, _ := c.atHome(reaches, "far:0")
	c.drainOwn()
	p := c.talk(file)
	p.do("use 0", "use 0: 0\n")
	p.do("add 0 5", "add 0: 0\n")
	c.far.kill()
	p.begin("add 0 6")
	p.begin("show 0")
	c.eventually("the program waits for its device", func() bool {
		s := c.near.status()
		return len(s.Devices) == 3 && s.Devices[2].Lost && len(s.Clients) == 1 && s.Clients[0].Parked
	})
	c.far = c.far.again(c.lender(c.far.gateway, state...)...)
	p.hears("value 11 show 0: 0\n")
	p.right()
	c.near.idle()
	c.far.idle()
}

// A program whose lender is gone for good goes on at home, if its grant reaches that far.
func TestLostLenderIsReplaced(t *testing.T) {
	t.Parallel()
	c := newGrantCluster(t)
	c.lend()
	file, _ := c.atHome(reaches, "far:1")
	p := c.talk(file)
	p.do("use 0", "use 0: 0\n")
	p.do("add 0 5", "add 0: 0\n")
	c.far.kill()
	p.do("add 0 6", "add 0: 0\n")
	p.do("show 0", "value 11 show 0: 0\n")
	if s := c.near.status(); len(s.Clients) != 1 || s.Clients[0].Device == nil || *s.Clients[0].Device > 1 {
		t.Errorf("its client is %+v", s.Clients)
	}
	p.right()
	c.near.idle()
}

// When the lender revokes the grant, programs go on at home, and one that cannot ends with the reason.
func TestLenderRevokes(t *testing.T) {
	t.Parallel()
	for _, drained := range []bool{false, true} {
		c := newGrantCluster(t)
		c.lend()
		file, g := c.atHome(reaches, "far:0")
		if drained {
			c.drainOwn()
		}
		p := c.talk(file)
		p.do("use 0", "use 0: 0\n")
		p.do("add 0 5", "add 0: 0\n")
		c.muster("grant", "revoke", g.ID, "--socket", c.far.socket)
		p.begin("show 0")
		if drained {
			p.hears("the node that lent it says: the node knows no grant with this credential")
		} else {
			p.hears("value 5 show 0: 0\n")
		}
		p.right()
		c.muster("grant", "revoke", g.ID, "--socket", c.near.socket)
		c.eventually("the device is removed", func() bool { return c.near.status().Devices[2].State == "removed" })
		c.near.idle()
		c.far.idle()
	}
}

// The next daemon has the devices of others that a grant had, under their numbers, and its programs go on.
func TestHomeOfGrantIsKilled(t *testing.T) {
	t.Parallel()
	own := append([]string{"--name", "near", "--devices", nearDevices}, keeps(t)...)
	c := newGrantCluster(t, own...)
	c.lend()
	file, g := c.atHome(reaches, "far:0", "near:0")
	_, unused := c.atHome(reaches, "far:1:32MiB")
	p := c.talk(file)
	p.do("use 0", "use 0: 0\n")
	p.do("add 0 5", "add 0: 0\n")
	before := c.known()
	c.near.kill()
	c.near = c.near.again(own...)
	if after := c.known(); !reflect.DeepEqual(after, before) {
		t.Errorf("before: %+v, after: %+v", before, after)
	}
	p.do("add 0 6", "add 0: 0\n")
	p.do("show 0", "value 11 show 0: 0\n")
	p.do("use 1", "use 1: 0\n")
	p.right()
	for _, id := range []string{g.ID, unused.ID} {
		c.muster("grant", "revoke", id, "--socket", c.near.socket)
	}
	c.eventually("the devices of others are removed", func() bool {
		s := c.near.status()
		return len(s.Devices) == 4 && s.Devices[2].State == "removed" && s.Devices[3].State == "removed"
	})
	c.near.idle()
	c.far.idle()
}

// Programs without the grant, or under another one, never get its device of another node: neither while it is
// idle, nor while the job is suspended.
func TestHeldForTheGrant(t *testing.T) {
	t.Parallel()
	c := newGrantCluster(t)
	c.lend()
	_, g := c.atHome(reaches, "far:0")
	c.muster("grant", "limit", g.ID, "0", "--socket", c.near.socket)
	other, _ := c.grantWith([]string{"--reach", "cluster"}, "near:1")
	c.muster("grant", "admit", other, "--socket", c.near.socket)
	p := c.talk(other)
	p.do("see", "devices 1 Muster vGPU:96MiB:1\n")
	p.do("use 0", "use 0: 0\n")
	var others []*program
	for range 12 { // more than the node's own devices have virtual GPUs
		one := c.near.launch(made("small"), "until", "1000", "3")
		others = append(others, one)
	}
	for _, one := range others {
		one.right()
	}
	if s := c.near.status(); len(s.Devices) != 3 || s.Devices[2].BusyTime != 0 {
		t.Errorf("the devices are %+v", s.Devices)
	}
	p.right()
	c.near.idle()
}

// What a program's calls cost by each road to a device of another node, where both nodes are on one machine.
// Run it with MUSTER_MEASURE=1.
func TestHowFastRoadsAre(t *testing.T) {
	if os.Getenv("MUSTER_MEASURE") == "" {
		t.Skip("MUSTER_MEASURE is not set")
	}
	c := newGrantCluster(t)
	c.lend()
	byRelay, _ := c.admitted("far:0")
	atHome, _ := c.atHome(reaches, "far:1")
	for range 3 {
		for road, file := range map[string]string{"relay": byRelay, "home": atHome} {
			p := c.talk(file)
			p.do("use 0", "use 0: 0\n")
			p.do("time 0 2000", "time 0: 0\n")
			p.right()
			t.Logf("%s: %s", road, regexp.MustCompile(`(?m)^took .* time`).FindString(p.output.String()))
		}
	}
}
