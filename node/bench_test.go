package node

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"muster/wire"
)

// How long it takes from connecting to the worker's first answer.
func BenchmarkAttach(b *testing.B) {
	for _, warm := range []int{0, 4} {
		b.Run(fmt.Sprintf("warm=%d", warm), func(b *testing.B) {
			cfg := testConfig()
			cfg.Warm = warm
			opts := testOptions()
			opts.WorkerCommand = workerCommand("real worker")
			f := runWith(b, cfg, opts)
			for b.Loop() {
				p, err := connect(f.socket, hello(), 0)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := p.Call(&wire.MemAlloc{Addr: p.attached.ArenaBase, Size: 1 << 20}, nil); err != nil {
					b.Fatal(err)
				}
				p.leave()
				p.shared.Unmap()
			}
		})
	}
}

// Many clients at once, and what an idle one costs.
func BenchmarkClients(b *testing.B) {
	const count = 200
	cfg := testConfig()
	opts := testOptions()
	opts.WorkerCommand = workerCommand("real worker")
	f := runWith(b, cfg, opts)
	for b.Loop() {
		programs := make([]*program, count)
		var wg sync.WaitGroup
		for i := range programs {
			wg.Go(func() {
				p, err := connect(f.socket, hello(), 0)
				if err != nil {
					b.Error(err)
					return
				}
				if _, err := p.Call(&wire.MemAlloc{Addr: p.attached.ArenaBase, Size: 1 << 20}, nil); err != nil {
					b.Error(err)
				}
				programs[i] = p
			})
		}
		wg.Wait()
		total := uint64(0)
		for _, pid := range children(b) {
			total += privateMemory(pid)
		}
		b.ReportMetric(float64(total)/count, "B/client")
		for _, p := range programs {
			if p != nil {
				p.leave()
				p.shared.Unmap()
			}
		}
		eventually(b, "all are forgotten", func() bool { return len(statusOf(b, f).Clients) == 0 })
	}
}

// privateMemory is what a process has in memory and shares with nobody.
func privateMemory(pid string) uint64 {
	text, _ := os.ReadFile("/proc/" + pid + "/smaps_rollup")
	sum := uint64(0)
	for line := range strings.Lines(string(text)) {
		var kilobytes uint64
		if name, rest, ok := strings.Cut(line, ":"); ok && strings.HasPrefix(name, "Private_") {
			if _, err := fmt.Sscan(rest, &kilobytes); err == nil {
				sum += kilobytes << 10
			}
		}
	}
	return sum
}
