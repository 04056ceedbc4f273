package stack

import (
	"fmt"
	"path/filepath"
	"testing"
)

// managedProgram is the program with managed memory, built once.
func managedProgram(t *testing.T) string {
	t.Helper()
	if err := compile("managed"); err != nil {
		t.Fatal(err)
	}
	return made("managed")
}

// Managed memory is what the host and the device wrote last, whoever reads it: in lists,
// in copies of every kind, with many threads, in children, beside the program's own
// handler of signals, in functions that streams call, and after a fault.
func TestManagedMemory(t *testing.T) {
	n := newWorld(t).start("--devices", "soft:memory=64M")
	program := managedProgram(t)
	for _, args := range [][]string{
		{"list", "3000"}, {"words", "100000"}, {"threads"}, {"handler"}, {"children"}, {"functions"}, {"attributes"}, {"variables"}, {"fault"},
	} {
		t.Run(args[0], func(t *testing.T) {
			if got := n.launch(program, args...).right(); len(got) < 6 || got[len(got)-6:] != "right\n" {
				t.Errorf("it said %q", got)
			}
		})
	}
	n.idle()
}

// A program has more managed memory than the device.
func TestManagedMemoryBeyondTheDevice(t *testing.T) {
	n := newWorld(t).start("--devices", "soft:memory=16M")
	n.launchWith([]string{"--socket", n.socket, "--memory", "64M"}, managedProgram(t), "words", "3000000").right()
	n.idle()
}

// Workers die and devices are left while a program computes with managed memory; it sees
// nothing of that.
func TestManagedMemoryOutlivesWorkers(t *testing.T) {
	w := newWorld(t)
	n := w.start("--devices", "soft:memory=64M,name=a;soft:memory=64M,name=b", "--state", filepath.Join(t.TempDir(), "state"))
	p := n.launch(managedProgram(t), "rounds", "300000")
	p.says("begun")
	for round := 1; round <= 6; round++ {
		fmt.Fprintln(p.stdin)
		p.says(fmt.Sprintf("round %d\n", round))
		if round == 3 {
			n.killWorkers()
		}
		if round == 4 {
			for _, device := range []string{"a", "b"} { // it is on one of them
				n.tries("move", fmt.Sprint(n.status().Clients[0].ID), device, "--socket", n.socket)
			}
		}
	}
	p.right()
	n.idle()
}
