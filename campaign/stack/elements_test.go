package stack

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muster/internal/need"
	"muster/internal/seeds"
	"muster/node/gateway"
)

// buildElements builds the library of programs with elements, and some.
var buildElements = sync.OnceValue(func() error {
	flags := []string{"-I../../ivm/c", "-Wl,--no-as-needed", made("lib/libmuster-ivm.so")}
	return errors.Join(
		command("gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-fPIC", "-fvisibility=hidden", "-pthread", "-shared",
			"-Wl,-soname,libmuster-ivm.so", "-Wl,-z,defs", "-o", made("lib/libmuster-ivm.so"), "../../ivm/c/ivm.c", "../../ivm/c/balance.c", "-ldl"),
		compileAs(made("balanced"), "balanced", made("lib"), flags...),
		compileAs(made("elements"), "elements", made("lib"), flags...),
		compileAs(made("vectoradd"), "../../../examples/ivm/vectoradd/vectoradd", made("lib"), flags...),
		command("go", "build", "-buildvcs=false", "-o", made("dmm"), "../../examples/ivm/dmm"))
})

// elementNodes starts nodes with a GPU each, over TLS, of one authority.
func elementNodes(t *testing.T) (start func(name string, more ...string) *theNode) {
	t.Helper()
	if err := buildElements(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	authority, _, err := gateway.OpenAuthority(dir, time.Now())
	if err == nil {
		_, err = authority.Node([]string{"127.0.0.1"}, 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	return func(name string, more ...string) *theNode {
		return w.start(append([]string{"--name", name, "--devices", "soft:memory=64M", "--listen", "127.0.0.1:0", "--tls-dir", dir + "/node-127.0.0.1"}, more...)...)
	}
}

// elementCluster is two nodes, of which the second starts elements of the first's programs.
func elementCluster(t *testing.T) (near, far *theNode) {
	t.Helper()
	start := elementNodes(t)
	return start("near"), start("far", "--ivm", "--ivm-root")
}

func TestElementsOfProgramsInC(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the whole run does this, without the race detector")
	}
	near, far := elementCluster(t)
	way := []string{"--socket", near.socket, "--nodes", far.gateway}
	for _, c := range []struct {
		path, want string
		args       []string
	}{
		{"elements", "PASS\n", []string{"calls"}},
		{"elements", "told: element 4 ended: signal: segmentation fault\n", []string{"crash"}},
		{"vectoradd", "PASS\n", []string{"0"}},
		{"vectoradd", "PASS\n", []string{"1"}}, // on the other node's GPU
		{"balanced", "on 4 devices\nPASS\n", []string{"async"}},
		{"balanced", "on 4 devices\nPASS\n", []string{"spawning"}},
		{"balanced", "on 4 devices\nPASS\n", []string{"monitoring"}},
		{"balanced", "on 4 devices\nPASS\n", []string{"guided"}},
		{"dmm", "PASS 128 x 128 in 16 tiles on 2 nodes", []string{"128", "4"}},
	} {
		if got := near.launchWith(way, made(c.path), c.args...).right(); !strings.Contains(got, c.want) {
			t.Errorf("%s %v said %q", c.path, c.args, got)
		}
	}
}

func TestANodeThatIsKilledIsAnErrorForTheOthers(t *testing.T) {
	t.Parallel()
	near, far := elementCluster(t)
	p := near.launchWith([]string{"--socket", near.socket, "--nodes", far.gateway}, made("elements"), "hang")
	p.says("all have put")
	if is := far.status().IVM; is == nil || len(is.Programs) != 1 || len(is.Programs[0].Elements) != 2 || is.Programs[0].Mirrors == 0 || is.GotBytes == 0 || is.PutBytes == 0 {
		t.Errorf("the node says of its elements %+v", is)
	}
	far.kill()
	if got := p.right(); !strings.Contains(got, "told: node 1 is lost") {
		t.Errorf("the program said %q", got)
	}
}

func TestANodeDoesNotStartElementsOfOthersUnasked(t *testing.T) {
	t.Parallel()
	near, far := elementCluster(t)
	p := near.launchWith([]string{"--socket", far.socket, "--nodes", near.gateway}, made("dmm"))
	if code := p.wait(); code == 0 || !strings.Contains(p.output.String(), "node near starts no elements of programs that began elsewhere") {
		t.Errorf("%d %s", code, p.output)
	}
}

// elements are the processes of elements that were created, on all nodes.
func (w *world) elements() (found []int) {
	for _, pid := range w.processes() {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err == nil && bytes.Contains(text, []byte("\x00MUSTER_IVM=")) {
			found = append(found, pid)
		}
	}
	return found
}

// Up to three of six elements and one of three nodes are killed while a program runs that divides
// its work with Guided. The program ends with the right result. make soak runs many rounds.
func TestAStormOfDeathsChangesNoResult(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the whole run does this, without the race detector")
	}
	seed, _ := seeds.First(t)
	rounds := 1
	if os.Getenv("MUSTER_SOAK") != "" {
		rounds = 200
	}
	rng := rand.New(rand.NewPCG(seed, 21))
	start := elementNodes(t)
	near, far := start("near"), start("far", "--ivm", "--ivm-root")
	for round := range rounds {
		third := start("third", "--ivm", "--ivm-root")
		p := near.launchWith([]string{"--socket", near.socket, "--nodes", far.gateway + "," + third.gateway}, made("balanced"), "storm")
		p.says("on 6 devices")
		for i := range 4 {
			time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond) // so that the kill hits at a random point
			if elements := near.elements(); i == 2 {
				third.kill()
			} else if len(elements) > 0 {
				_ = syscall.Kill(elements[rng.IntN(len(elements))], syscall.SIGKILL)
			}
		}
		if got := p.right(); !strings.HasSuffix(got, "PASS\n") {
			t.Fatalf("round %d: the program said %q", round, got)
		}
	}
}

// A program with elements on all nodes of a job of the head, some of them on GPUs.
func TestElementsInAJob(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the whole run does this, without the race detector")
	}
	if err := buildElements(); err != nil {
		t.Fatal(err)
	}
	r := startRealCluster(t, "--ivm", "--ivm-root")
	for i, c := range []struct {
		asks []string
		want string
	}{
		{[]string{"-N3", "-n3"}, "on 6 devices\nPASS\n"},                      // three nodes' cores and all GPUs
		{[]string{"-N2", "-n2", "--gpus-per-node=1"}, "on 4 devices\nPASS\n"}, // and only those GPUs that each node's part of the job was granted
	} {
		out := filepath.Join(r.dir, fmt.Sprintf("job-%d.out", i))
		_, err := r.muster(append(append([]string{"submit", "--wait"}, c.asks...), "--ntasks-per-node=1", "-o", out, "--wrap", made("muster")+" run --nodes job -- "+made("balanced")+" guided")...)
		if text, _ := os.ReadFile(out); err != nil || string(text) != c.want {
			t.Errorf("%v: the job wrote %q, %v", c.asks, text, err)
		}
	}
}

// Root of another machine is not root here, unless the node's configuration says so.
func TestANodeStartsNoElementsOfRootUnasked(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		need.Missing(t, need.Root, "the program must be root's")
	}
	start := elementNodes(t)
	near, far := start("near"), start("far", "--ivm")
	p := near.launchWith([]string{"--socket", near.socket, "--nodes", far.gateway}, made("dmm"))
	if code := p.wait(); code == 0 || !strings.Contains(p.output.String(), "node far starts no elements of root") {
		t.Errorf("%d %s", code, p.output)
	}
}

// Elements on GPUs are under the grant of their program, on its node and on others: they have the
// granted devices and no others, and none without a grant where one is required.
func TestElementsAreUnderTheGrantOfTheirProgram(t *testing.T) {
	t.Parallel()
	if err := buildElements(); err != nil {
		t.Fatal(err)
	}
	c := newGrantWorld(t)
	c.near = c.start("--name", "near", "--devices", nearDevices, "--listen", "127.0.0.1:0", "--tls-dir", filepath.Join(c.dir, "node-127.0.0.1"), "--grants", "required")
	c.lend("--grants", "required", "--ivm", "--ivm-root")
	where := []string{"--socket", c.near.socket, "--nodes", c.far.gateway}
	here, _ := c.admitted("near:1:32MiB")
	both, g := c.admitted("near:0:32MiB", "far:0:32MiB")
	for _, x := range []struct {
		grant, node string
		want        string
	}{
		{"", "0", "CUDA error 800"}, // not permitted
		{here, "0", "PASS"},         // the first granted device, which is the node's second
		{here, "1", "no node has the device that is asked for (node 1, gpu 0"}, // none of its devices was granted
		{both, "0", "PASS"}, {both, "1", "PASS"},
	} {
		way := where
		if x.grant != "" {
			way = append([]string{"--grant", x.grant}, where...)
		}
		p := c.launchWith(way, made("vectoradd"), x.node)
		if code := p.wait(); (code == 0) != (x.want == "PASS") || !strings.Contains(p.output.String(), x.want) {
			t.Errorf("%q on node %s: %d %s", filepath.Base(x.grant), x.node, code, p.output)
		}
	}
	c.muster("grant", "revoke", g.ID, "--socket", c.far.socket)
	p := c.launchWith(append([]string{"--grant", here}, where...), made("vectoradd"), "1")
	if code := p.wait(); code == 0 {
		t.Errorf("after the grant: %s", p.output)
	}
}
