package stack

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"muster/internal/need"
)

// Programs with graphs (testdata/graphs.c): functions of the program, rows of its memory,
// graphs in graphs, updates, memory of graphs, and the end of a context.
func TestGraphs(t *testing.T) {
	t.Parallel()
	if err := compile("graphs"); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	n := w.start("--devices", "soft:memory=64M")
	if got := n.launch(made("graphs"), "uses").right(); got != "right\n" {
		t.Errorf("it said %q", got)
	}
	n.idle()
}

// Random graphs of kernels, fills, copies and functions of the program, made node by node
// and captured from several streams, do what their nodes do one after another.
func TestRandomGraphs(t *testing.T) {
	t.Parallel()
	if err := compile("graphs"); err != nil {
		t.Fatal(err)
	}
	count := 12
	if testing.Short() {
		count = 3
	}
	w := newWorld(t)
	n := w.start("--devices", "soft:memory=64M")
	if got := n.launch(made("graphs"), "random", "1", fmt.Sprint(count)).right(); got != "right\n" {
		t.Errorf("it said %q", got)
	}
	n.idle()
}

// The same on a node of another machine: a function of the program's writes what a copy
// behind it takes.
func TestGraphsFromAfar(t *testing.T) {
	t.Parallel()
	if err := compile("graphs"); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	n, users := remoteNode(w)
	there := []string{"--node", n.gateway, "--tls-dir", users[0]}
	for _, args := range [][]string{{"uses"}, {"random", "100", "4"}} {
		if got := n.launchWith(there, made("graphs"), args...).right(); got != "right\n" {
			t.Errorf("it said %q", got)
		}
	}
	n.idle()
}

// A captured graph of three streams is launched a thousand times. Between and during
// launches the program is moved and its worker is killed.
func TestGraphsSurvive(t *testing.T) {
	t.Parallel()
	if err := compile("graphs"); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	n := w.start("--devices", "soft:memory=64M,name=a;soft:memory=64M,name=b", "--state", filepath.Join(t.TempDir(), "state"))
	p := n.launch(made("graphs"), "replay")
	round := 0
	ask := func(launches int) {
		if _, err := io.WriteString(p.stdin, fmt.Sprintln(launches)); err != nil {
			t.Fatal(err)
		}
		round++
	}
	ended := func() { p.says(fmt.Sprintf("round %d\n", round)) }
	ask(1000)
	ended()
	n.killWorkers()
	ask(100)
	ended()
	for _, device := range []string{"a", "b"} {
		ask(100)
		for _, c := range n.status().Clients {
			out, code := n.tries("move", fmt.Sprint(c.ID), device, "--socket", n.socket)
			if code != 0 && !strings.Contains(out, "already") {
				t.Errorf("the move failed: %s", out)
			}
		}
		ended()
		ask(100)
		n.killWorkers()
		ended()
	}
	if got := p.right(); !strings.HasSuffix(got, "right\n") {
		t.Errorf("it said %q", got)
	}
	n.idle()
}

// Conditional nodes (testdata/conditional.c), here and on a node of another machine.
func TestConditionalGraphs(t *testing.T) {
	t.Parallel()
	if err := compile("conditional"); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	n, users := remoteNode(w)
	for _, options := range [][]string{{"--socket", n.socket}, {"--node", n.gateway, "--tls-dir", users[0]}} {
		if got := n.launchWith(options, made("conditional")).right(); got != "right\n" {
			t.Errorf("it said %q", got)
		}
	}
	n.idle()
}

// Loops in loops are launched while the program is moved and its worker is killed.
func TestConditionalGraphsSurvive(t *testing.T) {
	t.Parallel()
	if err := compile("conditional"); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	n := w.start("--devices", "soft:memory=64M,name=a;soft:memory=64M,name=b", "--state", filepath.Join(t.TempDir(), "state"))
	p := n.launch(made("conditional"), "replay")
	for round, device := range []string{"a", "b", "a"} {
		if _, err := io.WriteString(p.stdin, "20\n"); err != nil {
			t.Fatal(err)
		}
		for _, c := range n.status().Clients {
			if out, code := n.tries("move", fmt.Sprint(c.ID), device, "--socket", n.socket); code != 0 && !strings.Contains(out, "already") {
				t.Errorf("the move failed: %s", out)
			}
		}
		p.says(fmt.Sprintf("round %d\n", round+1))
	}
	if got := p.right(); !strings.HasSuffix(got, "right\n") {
		t.Errorf("it said %q", got)
	}
	n.idle()
}

// A program whose worker dies while a conditional graph is running ends with the reason, or is
// rebuilt if the graph had finished; it never computes something else forever.
func TestConditionalGraphsAndLostWorkers(t *testing.T) {
	t.Parallel()
	if err := compile("conditional"); err != nil {
		t.Fatal(err)
	}
	n := newWorld(t).start("--devices", "soft:memory=64M", "--state", filepath.Join(t.TempDir(), "state"))
	p := n.launch(made("conditional"), "replay")
	if _, err := io.WriteString(p.stdin, "20\n20\n20\n"); err != nil {
		t.Fatal(err)
	}
	p.says("round 1\n")
	for pid := range n.workers() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	if code := p.wait(); code == 0 && !strings.HasSuffix(p.output.String(), "right\n") {
		t.Errorf("it ended without an error, and said %q", p.output.String())
	}
	n.idle()
}

// A host function costs about the same if thousands of them are waiting: neither the library nor
// the worker scans all of them, or waits for a timer.
func TestManyFunctionsCostTheSame(t *testing.T) {
	t.Parallel()
	need.IsSoak(t) // it compares times
	if err := compile("graphs"); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	n := w.start("--devices", "soft:memory=64M")
	each := func(launches, runs int) (least int) {
		for range runs {
			var took int
			out := n.launch(made("graphs"), "functions", fmt.Sprint(launches)).right()
			if _, err := fmt.Sscan(out, &took); err != nil {
				t.Fatalf("it said %q: %v", out, err)
			}
			if least == 0 || took < least {
				least = took
			}
		}
		return least
	}
	for try := 1; ; try++ { // other processes may slow it down
		few, many := each(8, 2), each(128, 1)
		t.Logf("%d ns each of 800, %d ns each of 12,800", few, many)
		if many <= 4*few {
			break
		}
		if try == 8 {
			t.Fatalf("a function takes %d ns among 800, and %d ns among 12,800", few, many)
		}
	}
	n.idle()
}
