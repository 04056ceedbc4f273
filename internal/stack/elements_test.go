package stack

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/node/gateway"
)

// buildElements builds the library of programs with elements, and some.
var buildElements = sync.OnceValue(func() error {
	flags := []string{"-I../../ivm/c", "-Wl,--no-as-needed", made("lib/libmuster-ivm.so")}
	return errors.Join(
		command("gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-fPIC", "-fvisibility=hidden", "-pthread", "-shared",
			"-Wl,-soname,libmuster-ivm.so", "-Wl,-z,defs", "-o", made("lib/libmuster-ivm.so"), "../../ivm/c/ivm.c", "-ldl"),
		compileAs(made("elements"), "elements", made("lib"), flags...),
		compileAs(made("vectoradd"), "../../../examples/ivm/vectoradd/vectoradd", made("lib"), flags...),
		command("go", "build", "-buildvcs=false", "-o", made("dmm"), "../../examples/ivm/dmm"))
})

// elementCluster is two nodes with a GPU each, over TLS; the second starts elements of the first's
// programs.
func elementCluster(t *testing.T) (near, far *theNode) {
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
	node := func(name string, more ...string) *theNode {
		return w.start(append([]string{"--name", name, "--devices", "soft:memory=64M", "--listen", "127.0.0.1:0", "--tls-dir", dir + "/node-127.0.0.1"}, more...)...)
	}
	return node("near"), node("far", "--ivm")
}

func TestElementsOfProgramsInC(t *testing.T) {
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
		{"dmm", "PASS 128 x 128 in 16 tiles on 2 nodes", []string{"128", "4"}},
	} {
		if got := near.launchWith(way, made(c.path), c.args...).right(); !strings.Contains(got, c.want) {
			t.Errorf("%s %v said %q", c.path, c.args, got)
		}
	}
}

func TestANodeThatIsKilledIsAnErrorForTheOthers(t *testing.T) {
	near, far := elementCluster(t)
	p := near.launchWith([]string{"--socket", near.socket, "--nodes", far.gateway}, made("elements"), "hang")
	p.says("all have put")
	far.kill()
	if got := p.right(); !strings.Contains(got, "told: node 1 is lost") {
		t.Errorf("the program said %q", got)
	}
}

func TestANodeDoesNotStartElementsOfOthersUnasked(t *testing.T) {
	near, far := elementCluster(t)
	p := near.launchWith([]string{"--socket", far.socket, "--nodes", near.gateway}, made("dmm"))
	if code := p.wait(); code == 0 || !strings.Contains(p.output.String(), "node near starts no elements of programs that began elsewhere") {
		t.Errorf("%d %s", code, p.output)
	}
}
