package noderuntime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/node/ask"
	"muster/wire/status"
)

// fast is for tests, which say nothing of times.
var fast = proportional(1e10, 1.0/150, 1.0/48)

// All programs of Table 3-2 run and find their results right while they share GPUs,
// with the paper's number of kernel calls.
func TestProgramsRun(t *testing.T) {
	l := workshop(t)
	all := append(slices.Clone(shortPrograms), matmulLarge, optionsLarge, matmulSmall)
	var jobs []job
	for _, p := range all {
		jobs = append(jobs, p.of())
	}
	err := withNode(l.tools, setting{devices: fast.devices(c2050, c1060), vgpus: 4}, func(n *theNode) error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		running, err := cluster{n}.startAll(ctx, jobs)
		if err != nil {
			return err
		}
		took, _, err := cluster{n}.measure(ctx, cancel, running, openAtOnce, func(*visitor) error { return nil })
		if took <= 0 {
			t.Error("it took no time")
		}
		for i, p := range all {
			if got := int(running[i].inside[0].kernels); got != p.calls && p.name != "BFS" { // two calls a level of a graph that is smaller
				t.Errorf("%s makes %d kernel calls, in the paper %d", p.name, got, p.calls)
			}
			if text := running[i].output.String(); !strings.Contains(text, "right") {
				t.Errorf("%s says %q", p.name, text)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// A program alone on a GPU: all of its kernels are known to the node before it ends.
func TestAlone(t *testing.T) {
	l := workshop(t)
	p := program{name: "short", words: words("mt", "--size", "16", "--repeat", "30")}
	for range 2 { // the second time nothing is measured
		known, err := l.alone(fast, p)
		if err != nil {
			t.Fatal(err)
		}
		if a := known[p.name]; a.Seconds <= 0 || a.Kernel <= 0 || a.Kernels != 30 || a.Copy != 2*16*16*4/fast.copies {
			t.Errorf("%+v", a)
		}
		l.tools = tools{}
	}
}

// Fig. 3-9 in small: alone on a GPU nothing is swapped; where memory is in conflict, it
// is, and all results are right nevertheless.
func TestSwapping(t *testing.T) {
	l := workshop(t)
	s := long
	s.rate = 1e10
	jobs := slices.Repeat([]job{matmulLarge.withCPU(alone{Seconds: 0.1, Kernels: 10}, 2)}, 6)
	for vgpus, swaps := range map[int]bool{serial: false, shared: true} {
		out, err := l.run(setting{devices: s.devices(c2050), vgpus: vgpus}, jobs, openAtOnce)
		if err != nil || (out.Swaps > 0) != swaps {
			t.Errorf("%d vGPUs: %d swaps, %v", vgpus, out.Swaps, err)
		}
	}
}

// Fig. 3-11 in small: programs on a slow GPU move when a fast one falls idle, if they
// may, and all results are right nevertheless.
func TestMigration(t *testing.T) {
	l := workshop(t)
	s := moved
	s.rate = 1e9
	jobs := slices.Repeat([]job{matmulSmall.of()}, 4)
	for _, migrate := range []bool{false, true} {
		slow := c2050.As("slow", c2050.Clock)
		slow.Cores /= 2
		if migrate { // so slow that the fast one is idle first on any machine
			slow.Cores = c2050.Cores / 40
		}
		out, err := l.run(setting{devices: s.devices(c2050, slow), vgpus: 2, migrate: migrate}, jobs, openAtOnce)
		if err != nil || (out.Moves > 0) != migrate {
			t.Errorf("migrate %v: %d moves, %v", migrate, out.Moves, err)
		}
	}
}

// Every scheme brings every pattern to an end; only preemptive ones take a GPU away.
func TestSchemes(t *testing.T) {
	l := withMPI(t)
	l.m.Addition = 0.001
	uneven := func(p pattern) []parallel { // a program of four processes and one of three
		return composition(2, parallel{phase: 0.05, others: 1, imbalance: 100, cpu: 2, pattern: p, iterations: leastIterations})[1:3]
	}
	for i, how := range allSchemes {
		p := []pattern{allToAll, broadcast, scatterGather, barrier, allToAll}[i]
		wanted := how.preempts && how.vgpus == 1
		preemptions := 0
		for run := 0; run == 0 || wanted && preemptions == 0 && run < 5; run++ { // on a busy machine those who are idle may be gone before others come
			out, err := l.runParallel(how, uneven(p))
			if err != nil {
				t.Errorf("%s, %v: %v", how.name, p, err)
			}
			preemptions += int(out.Preemptions)
		}
		if preemptions > 0 && !how.preempts {
			t.Errorf("%s, %v: %d preemptions", how.name, p, preemptions)
		}
		if preemptions == 0 && wanted {
			t.Errorf("%s, %v: nobody was told to leave while idle", how.name, p)
		}
	}
}

// In a batch no program starts before its processes have a GPU each.
func TestBatch(t *testing.T) {
	l := withMPI(t)
	l.m.Addition = 0.001
	most := 0
	watch := func(ctx context.Context, c cluster, all []*running, over <-chan int) error {
		done := make(chan error, 1)
		go func() { done <- openInBatch(ctx, c, all, over) }()
		for {
			s, err := ask.Status(c[0].socket)
			if err != nil {
				return err
			}
			most = max(most, asking(s))
			select {
			case err := <-done:
				return err
			case <-time.After(time.Millisecond):
			}
		}
	}
	var jobs []job
	for _, p := range composition(3, parallel{phase: 0.05, pattern: barrier, iterations: leastIterations}) {
		jobs = append(jobs, p.of(l.m))
	}
	if _, err := l.run(setting{devices: multi.devices(gtx480, gtx480, gtx480, gtx480), vgpus: 1}, jobs, watch); err != nil {
		t.Fatal(err)
	}
	if most == 0 || most > gpusOfNode1 {
		t.Errorf("%d processes asked for GPUs at a time", most)
	}
}

// asking is how many processes want a GPU or have one. A node hears a moment later that a process has
// ended, when the next application may have begun: those that have ended do not count.
func asking(s *status.Node) int {
	n := 0
	for _, c := range s.Clients {
		if (c.State == "assigned" || c.State == "ready") && isRunning(c.Pid) {
			n++
		}
	}
	return n
}

// isRunning says whether a process has not ended. One that is about to, and has closed its files, is still
// there, and so is a zombie, for which nobody has waited.
func isRunning(pid int32) bool {
	const exiting = 4 // PF_EXITING
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(text), ") ")
	var state string
	var number, flags int
	if _, scanned := fmt.Sscan(after, &state, &number, &number, &number, &number, &number, &flags); err != nil || scanned != nil {
		return false
	}
	return state != "Z" && state != "X" && flags&exiting == 0
}

// A program that fails is named with what it said, and ends the measurement with all
// other programs, also those that still wait at their gates.
func TestFailure(t *testing.T) {
	l := workshop(t)
	s := setting{devices: fast.devices(c2050), vgpus: 1}
	good := job{words: words("va", "--size", "1k")}
	if _, err := l.run(s, []job{good, {words: words("va", "--no-such-option")}}, openAtOnce); err == nil || !strings.Contains(err.Error(), "there is no option --no-such-option") {
		t.Error(err)
	}
	refused := errors.New("not today")
	never := func(context.Context, cluster, []*running, <-chan int) error { return refused }
	if _, err := l.run(s, []job{good, good}, never); !errors.Is(err, refused) {
		t.Error(err)
	}
	if _, err := l.run(setting{devices: "soft:rate=2"}, nil, openAtOnce); err == nil || !strings.Contains(err.Error(), "did not come up") {
		t.Error(err)
	}
}

// An interrupt ends everything, and nothing is left running.
func TestInterrupted(t *testing.T) {
	l := workshop(t)
	ctx, cancel := context.WithCancel(t.Context())
	l.ctx = ctx
	var socket string
	var pids []int32
	stop := func(ctx context.Context, c cluster, all []*running, over <-chan int) error {
		socket = c[0].socket
		for _, r := range all {
			pids = append(pids, r.inside[0].pid)
		}
		err := openAtOnce(ctx, c, all, over)
		cancel()
		return err
	}
	endless := job{words: words("mm", "--size", "16", "--repeat", "100000", "--cpu-ms", "10", "--cpu-sleep")}
	if _, err := l.run(setting{devices: fast.devices(c2050), vgpus: 2}, []job{endless, endless}, stop); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := ask.Status(socket); !errors.Is(err, ask.ErrNoNode) {
		t.Errorf("the node is still there: %v", err)
	}
	for _, pid := range pids {
		if err := syscall.Kill(int(pid), 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("program %d is still there: %v", pid, err)
		}
	}
}

// What is missing is said, with what to do about it.
func TestMissingTools(t *testing.T) {
	dir := t.TempDir()
	if _, err := toolsIn("muster", []string{"", dir}, dir); err == nil || !strings.Contains(err.Error(), "make build") {
		t.Error(err)
	}
	put(t, filepath.Join(dir, "libcuda.so.1"))
	if _, err := toolsIn("muster", []string{"", dir}, dir); err == nil || !strings.Contains(err.Error(), "make examples") {
		t.Error(err)
	}
	put(t, filepath.Join(dir, "mm"))
	found, err := toolsIn("muster", []string{"", dir}, dir)
	if err != nil || found.mpiexec != "" {
		t.Errorf("%+v, %v", found, err)
	}
	t.Setenv("PATH", dir)
	put(t, filepath.Join(dir, "mpiexec"))
	put(t, filepath.Join(dir, "phases"))
	if found, err = toolsIn("muster", []string{"", dir}, dir); err != nil || found.mpiexec == "" {
		t.Errorf("%+v, %v", found, err)
	}
}

func put(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

// Fig. 3-21 in small: programs with processes on both nodes, more processes than GPUs, and batch
// scheduling on each node's GPUs.
func TestOverNodes(t *testing.T) {
	l := withMPI(t)
	l.m.Addition = 0.001
	for _, how := range []scheme{batchScheme, preemptiveTwoWay} {
		one := (&parallel{processes: 3, phase: 0.05, pattern: scatterGather, iterations: leastIterations, mpi: 1000}).of(l.m)
		one.on = []int{1, 2}
		settings := []setting{how.setting([]card{gtx480}), how.setting([]card{gtx480, gtx480})}
		open := opener(openInOrder)
		if how.batch {
			open = openWithin([]int{1, 2})
		}
		if out, err := l.runCluster(settings, []job{one, one}, open); err != nil || out.Seconds <= 0 {
			t.Errorf("%s: %+v, %v", how.name, out, err)
		}
	}
}

// How processes are dealt to the nodes of Fig. 3-21, and what batch scheduling can run.
func TestDealtOut(t *testing.T) {
	for processes, want := range map[int][]int{4: {2, 2}, 6: {3, 3}, 7: {4, 3}, 8: {5, 3}} {
		if got := dealtOut(processes); !slices.Equal(got, want) || possible(processes, batchScheme) != (processes < 8) {
			t.Errorf("%d processes: %v, batch %v", processes, got, possible(processes, batchScheme))
		}
	}
	r := &running{job: job{processes: 4, on: []int{2, 2}}}
	free := []int{4, 3}
	r.take(free, 1)
	if !slices.Equal(free, []int{2, 1}) || r.fits(free) || !r.fits([]int{2, 2}) {
		t.Error(free)
	}
}

// Fig. 3-12 in small: programs that wait on one node are served by the other, where nothing runs, and all
// results are right nevertheless.
func TestOffload(t *testing.T) {
	l := workshop(t)
	s := setting{devices: moved.devices(c2050), vgpus: 1}
	for _, offload := range []bool{false, true} {
		jobs := slices.Repeat([]job{{words: matmulSmall.words, on: []int{0, 1}}}, 4)
		s.offload = offload
		out, err := l.runCluster([]setting{s, s}, jobs, openAtOnce)
		if err != nil || (out.Guests > 0) != offload {
			t.Errorf("offload %v: %d guests, %v", offload, out.Guests, err)
		}
	}
}
