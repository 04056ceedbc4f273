package stack

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/internal/need"
)

// One program repeatedly writes to invalid addresses while ten others compute: only it gets errors,
// each time.
func TestFaultBesideOthers(t *testing.T) {
	t.Parallel()
	n := newWorld(t).start("--devices", "soft:memory=16M,workers=1;soft:memory=8M,workers=1", "--vgpus", "3", "--max-idle", "1ms")
	rounds, words := need.Rounds(2, 20), need.Rounds(4_000, 40_000)
	var others []*program
	for i := range 10 {
		others = append(others, n.launch(made("small"), "hold", fmt.Sprint(words*(i+1)), "20"))
	}
	for _, p := range others {
		p.says("holding")
		p.stdin.Close() // now it computes
	}
	for range rounds {
		faulty := n.launch(made("small"), "fault")
		faulty.says("told")
		again := n.launch(made("small"), "recover")
		again.right()
		faulty.right()
	}
	for _, p := range others {
		p.right()
	}
	if got := n.total("muster_faults_total"); int(got) != 2*rounds {
		t.Errorf("%v faults, and there were %d", got, 2*rounds)
	}
	n.idle()
}

// A program that was given 64 MiB has 64 MiB: not a byte more, nor less.
func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.start("--devices", "soft:memory=128M", "--vgpus", "2")
	w.launchWith([]string{"--socket", n.socket, "--memory", "64M"}, made("small"), "memory", fmt.Sprint(64<<20)).right()
	w.launchWith([]string{"--socket", n.socket, "--memory", "64M"}, made("small"), "memory", fmt.Sprint(64<<20)).right()
	n.launch(made("small"), "memory", fmt.Sprint(128<<20)).right()
	n.idle()
}

// configured starts a node with a configuration file.
func (w *world) configured(text string) *theNode {
	w.Helper()
	path := filepath.Join(w.T.TempDir(), "node.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		w.Fatal(err)
	}
	return w.start("--config", path)
}

// Limits of users: how many clients, how much memory, how many virtual GPUs.
func TestUserLimits(t *testing.T) {
	t.Parallel()
	t.Run("clients", func(t *testing.T) {
		n := newWorld(t).configured("devices: [{soft: {memory: 64MiB}}]\nlimits: {default: {clients: 3}}\n")
		var held []*program
		for range 3 {
			p := n.launch(made("small"), "hold", "1000")
			p.says("holding")
			held = append(held, p)
		}
		refused := n.launch(made("small"), "sums")
		if code := refused.wait(); code != 1 {
			t.Errorf("the fourth ended with %d", code)
		}
		if got := refused.output.String(); !strings.Contains(got, "3 programs of user root use this node already, as many as limits.clients allows") {
			t.Errorf("the fourth was told %q", got)
		}
		held[0].right()
		n.eventually("there is room", func() bool { return len(n.status().Clients) == 2 })
		n.launch(made("small"), "sums").right()
		held[1].right()
		held[2].right()
		n.idle()
	})
	t.Run("memory", func(t *testing.T) {
		n := newWorld(t).configured("devices: [{soft: {memory: 64MiB}}]\nlimits: {default: {memory: 32MiB}}\n")
		n.launch(made("small"), "memory", fmt.Sprint(32<<20)).right() // no program sees more
		var held []*program
		for range 8 { // small programs do not reserve what they do not need
			p := n.launch(made("small"), "hold", "1000", "2")
			p.says("holding")
			held = append(held, p)
		}
		for _, p := range held {
			p.right()
		}
		n.idle()
	})
	t.Run("virtual GPUs", func(t *testing.T) {
		n := newWorld(t).configured("devices: [{soft: {memory: 64MiB}}]\nvgpus: 8\nmax_idle: 1ms\nlimits: {default: {vgpus: 2}}\n")
		var programs []*program
		for range 6 {
			programs = append(programs, n.launch(made("small"), "hold", "50000", "10"))
		}
		for _, p := range programs {
			p.says("holding")
			p.stdin.Close()
		}
		most := 0
		for _, p := range programs {
			for running := true; running; {
				select {
				case <-p.exited:
					running = false
				default:
					most = max(most, n.status().Devices[0].Assigned)
				}
			}
			p.right()
		}
		if most != 2 {
			t.Errorf("at most %d virtual GPUs were used, where 2 are allowed", most)
		}
		n.idle()
	})
}

// Two hundred clients at once: all attach, all compute, and an idle one costs little.
func TestManyClients(t *testing.T) {
	t.Parallel()
	clients := 100
	switch {
	case testing.Short():
		clients = 40
	case allBetween:
		clients = 400
	}
	n := newWorld(t).start("--devices", "soft:memory=64M;soft:memory=32M", "--max-idle", "1ms")
	start := time.Now()
	var programs []*program
	for range clients {
		programs = append(programs, n.launch(made("small"), "hold", "1000", "1"))
	}
	for _, p := range programs {
		p.says("holding")
	}
	attached := time.Since(start)
	if got := len(n.status().Clients); got != clients {
		t.Errorf("%d clients are there", got)
	}
	workers := n.workers()
	memory := 0
	for pid := range workers {
		memory += proportional(pid)
	}
	if len(workers) > 0 {
		t.Logf("%d clients attached and computed in %v; an idle one costs %d KiB in its worker", clients, attached.Round(time.Millisecond), memory/len(workers))
	}
	for _, p := range programs {
		p.stdin.Close()
	}
	for _, p := range programs {
		p.right()
	}
	n.idle()
}

// proportional returns how much memory a process has, in KiB, with its share of
// what it has together with others.
func proportional(pid int) int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	for line := range strings.Lines(string(text)) {
		var kib int
		if _, err := fmt.Sscanf(line, "Pss: %d kB", &kib); err == nil {
			return kib
		}
	}
	return 0
}
