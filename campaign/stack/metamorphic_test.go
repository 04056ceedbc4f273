package stack

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/node/ask"
	"muster/wire/status"
)

// Random programs (testdata/walk.c) run while everything happens to them that a node is
// meant to hide: they are moved to and fro, devices are drained, resumed and lost, workers
// are killed and stopped, the daemon is killed or hands over, and what they hold does not
// fit; they are saved to disk at any time, restored where they wait for it, and save
// themselves. What they print must be what they print alone on a roomy node.
//
// The seed decides the node, the programs, and what happens in which order. It does not
// decide how the processes interleave: play a seed a few times if it passes.

// storm is a node to which things happen.
type storm struct {
	*theNode
	r        *rand.Rand
	args     []string // of the node
	rules    string   // folder with what makes devices fail
	devices  []string
	programs []*program
	hurt     map[*program]int
	counts   map[string]int
	due      []happening // what happens before anything else does
	undo     []func()    // what ends what has happened
	history  []string
}

// Limits on events that cost a program its worker. A node gives up a client that it has rebuilt
// five times without progress.
const (
	maxKilled = 2 // workers of one program
	maxLost   = 2 // launches or copies that fail as if the device were gone
)

// happening is an event that the test can cause; do returns false if it is impossible at present.
type happening struct {
	name   string
	weight int
	do     func(*storm) bool
}

var happenings = []happening{
	{"move", 10, (*storm).move}, {"drain", 5, (*storm).drain}, {"device lost", 2, (*storm).loseDevice}, {"call lost", 4, (*storm).loseCall},
	{"worker killed", 8, (*storm).killWorker}, {"worker stopped", 2, (*storm).pauseWorker},
	{"daemon killed", 2, (*storm).killDaemon}, {"handover", 1, (*storm).handOver},
	{"saved", 3, (*storm).save}, {"saved and restored", 3, (*storm).saveAndRestore},
}

// walk is a random program.
type walk struct{ seed, steps int }

func (w walk) args(more ...string) []string {
	return append([]string{fmt.Sprint(w.seed), fmt.Sprint(w.steps)}, more...)
}

func TestSameResultsWhateverHappens(t *testing.T) {
	if err := compile("walk"); err != nil {
		t.Fatal(err)
	}
	seeds, walks, times := []uint64{1, 2}, 3, 10
	switch {
	case testing.Short():
		seeds, walks, times = seeds[:1], 3, 8
	case allBetween:
		seeds, walks, times = []uint64{1, 2, 3, 4, 5, 6, 7, 8}, 5, 16
	}
	if text := os.Getenv("MUSTER_STACK_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seeds = []uint64{seed}
	}
	counts := map[string]int{}
	for _, seed := range seeds {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Logf("MUSTER_STACK_SEED=%d repeats it", seed)
			t.Setenv("MUSTER_CHECKPOINTS", t.TempDir())
			r := rand.New(rand.NewPCG(seed, 2))
			var all []walk
			for range walks {
				all = append(all, walk{seed: 1 + r.IntN(1<<20), steps: 100 * times})
			}
			want := walkAlone(t, all)
			s := newStorm(newWorld(t), r)
			for i, h := range happenings { // two seeds one after the other have all of them
				if (uint64(i)+seed)%2 == 0 {
					s.due = append(s.due, h)
				}
			}
			for _, w := range all {
				s.launchWalk(w)
			}
			s.blow(times)
			s.check(want)
			for k, n := range s.counts {
				counts[k] += n
			}
		})
	}
	t.Logf("%v", counts)
	for _, h := range happenings {
		if !t.Failed() && !testing.Short() && os.Getenv("MUSTER_STACK_SEED") == "" && counts[h.name] == 0 {
			t.Errorf("nothing of this has happened: %s", h.name)
		}
	}
}

// walkAlone is what programs print on a node with room for all of them.
func walkAlone(t *testing.T, all []walk) map[string]string {
	n := newWorld(t).start("--devices", "soft:memory=512M", "--vgpus", "8")
	results, programs := map[string]string{}, []*program{}
	for _, w := range all {
		programs = append(programs, n.launch(made("walk"), w.args()...))
	}
	for i, p := range programs {
		results[fmt.Sprint(all[i])] = printed(p.right())
	}
	return results
}

// printed is a program's own output, without Muster's messages to the user.
func printed(output string) string {
	var b strings.Builder
	for line := range strings.Lines(output) {
		if !strings.HasPrefix(line, "muster: ") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// newStorm starts a node with random settings, whose devices can be made to fail.
func newStorm(w *world, r *rand.Rand) *storm {
	pick := func(words ...string) string { return words[r.IntN(len(words))] }
	s := &storm{r: r, rules: w.T.TempDir(), hurt: map[*program]int{}, counts: map[string]int{}}
	var devices []string
	for i := range 2 + r.IntN(2) {
		name := string(rune('a' + i))
		s.devices = append(s.devices, name)
		devices = append(devices, fmt.Sprintf("soft:name=%s,memory=%dM,speed=%s,workers=1,faults=%s", name, 2*(8+r.IntN(5)), pick("1", "1", "0.5"), s.writeRules(w, name)))
	}
	s.args = []string{"--devices", strings.Join(devices, ";"), "--vgpus", pick("1", "2", "4"), "--policy", pick("fcfs", "sjf", "credit"),
		"--max-idle", pick("1ms", "10ms"), "--migrate", pick("auto", "off"), "--warm", pick("0", "2"), "--defer=" + pick("true", "false"),
		"--orphan-grace", "1m", "--state", filepath.Join(w.T.TempDir(), "state")}
	if len(devices) == 2 { // kernels run on either, at random
		s.args = append(s.args, "--mapping", "ar:alpha=1:beta=1")
	}
	if r.IntN(2) == 0 {
		s.args = append(s.args, "--swap-dir", w.T.TempDir())
	}
	w.Logf("muster node %s", strings.Join(s.args, " "))
	s.theNode = w.start(s.args...)
	return s
}

// writeRules writes the rules by which a device fails when trigger files exist.
func (s *storm) writeRules(w *world, device string) string {
	file := filepath.Join(s.rules, device)
	text := "any:while=" + s.trigger("gone", device) + ":fail=device-lost\n"
	for _, call := range []string{"launch", "copyin", "copyout"} {
		text += call + ":take=" + s.trigger(call, device) + ":fail=device-lost\n"
	}
	if err := errors.Join(os.WriteFile(file, []byte(text), 0o644), os.Chmod(s.rules, 0o777)); err != nil {
		w.Fatal(err)
	}
	return file
}

func (s *storm) trigger(what, device string) string { return filepath.Join(s.rules, what+"-"+device) }

// launchWalk starts a program that does not fit on the devices beside the others, and possibly not
// even alone.
func (s *storm) launchWalk(w walk) {
	s.Helper()
	limit := []string{"32M", "64M", "1G"}[s.r.IntN(3)]
	args := w.args(fmt.Sprint(s.r.IntN(20<<20)), fmt.Sprint("walk-", w.seed))
	args = append(args, s.trigger("save", fmt.Sprint(w)))
	p := s.launchWith([]string{"--socket", s.socket, "--memory", limit}, made("walk"), args...)
	p.name = fmt.Sprint(w)
	s.programs = append(s.programs, p)
}

// blow causes the given number of events while programs run.
func (s *storm) blow(times int) {
	s.Helper()
	s.eventually("all programs compute", func() bool {
		busy := 0
		for _, c := range append(s.status().Clients, s.status().Ended...) {
			if c.Kernels > 0 {
				busy++
			}
		}
		return busy >= len(s.programs)
	})
	for n := 0; n < times && len(s.running()) > 0 && !s.Failed(); {
		s.goOn(uint64(1 + s.r.IntN(60)))
		s.calm()
		if s.happen() {
			n++
		}
	}
	s.calm()
}

// goOn waits until programs have run the given number of further kernels, or none for a while,
// because all devices may be away.
func (s *storm) goOn(kernels uint64) {
	s.Helper()
	before := s.kernels()
	for end := time.Now().Add(150 * time.Millisecond); time.Now().Before(end) && len(s.running()) > 0 && s.kernels() < before+kernels; {
		time.Sleep(2 * time.Millisecond)
	}
}

func (s *storm) kernels() (all uint64) {
	s.Helper()
	now := s.status()
	for _, c := range slices.Concat(now.Clients, now.Ended) {
		all += c.Kernels
	}
	return all
}

// running are the programs that have not ended.
func (s *storm) running() []*program {
	return slices.DeleteFunc(slices.Clone(s.programs), func(p *program) bool {
		select {
		case <-p.exited:
			return true
		default:
			return false
		}
	})
}

// happen causes an event that is due, or else a random one, and returns whether it was possible.
func (s *storm) happen() bool {
	for i, h := range s.due {
		if s.cause(h) {
			s.due = slices.Delete(s.due, i, i+1)
			return true
		}
	}
	total := 0
	for _, h := range happenings {
		total += h.weight
	}
	n := s.r.IntN(total)
	for _, h := range happenings {
		if n -= h.weight; n < 0 {
			return s.cause(h)
		}
	}
	return false
}

// cause causes an event, if it is possible.
func (s *storm) cause(h happening) bool {
	s.note("%s", h.name)
	if !h.do(s) {
		s.history = s.history[:len(s.history)-1]
		return false
	}
	s.counts[h.name]++
	return true
}

func (s *storm) note(format string, args ...any) {
	s.history = append(s.history, fmt.Sprintf(format, args...))
}

// calm ends all events that are still in effect.
func (s *storm) calm() {
	for _, undo := range s.undo {
		undo()
	}
	s.undo = nil
}

// --- what happens ------------------------------------------------------------

// move moves a program to another device.
func (s *storm) move() bool {
	clients := s.status().Clients
	if len(clients) == 0 {
		return false
	}
	c, device := clients[s.r.IntN(len(clients))], s.devices[s.r.IntN(len(s.devices))]
	out, code := s.tries("move", fmt.Sprint(c.ID), device, "--socket", s.socket)
	s.note("  client %d to %s: %s", c.ID, device, strings.TrimSpace(out))
	if code != 0 && !impossible(out) {
		s.Errorf("move says %q", out)
	}
	return code == 0
}

// impossible says whether a request was refused for a valid reason: the client has ended or has
// moved by itself, or has more memory than the device.
func impossible(text string) bool {
	return slices.ContainsFunc([]string{"there is no client", "already", "drain", "removed", "lost", "bytes, and device"}, func(words string) bool { return strings.Contains(text, words) })
}

// drain drains some devices, possibly all, until programs have made progress or none can.
func (s *storm) drain() bool {
	for _, i := range s.r.Perm(len(s.devices))[:1+s.r.IntN(len(s.devices))] {
		device := s.devices[i]
		s.note("  %s", device)
		s.changed(ask.DrainDevice(s.socket, device))
		s.undo = append(s.undo, func() { s.changed(ask.ResumeDevice(s.socket, device)) })
	}
	return true
}

// changed checks the node's answer to a change request.
func (s *storm) changed(_ *status.Changed, err error) {
	if err != nil && !impossible(err.Error()) {
		s.Error(err)
	}
}

// loseDevice makes all calls to a device fail for a time, once per test.
func (s *storm) loseDevice() bool {
	if s.counts["device lost"] > 0 {
		return false
	}
	device := s.devices[s.r.IntN(len(s.devices))]
	s.note("  %s", device)
	s.touch(s.trigger("gone", device))
	s.undo = append(s.undo, func() {
		s.remove(s.trigger("gone", device))
		s.changed(ask.ResumeDevice(s.socket, device)) // the node would find out by itself, but later
	})
	return true
}

// loseCall makes a launch or a copy fail as if the device were gone.
func (s *storm) loseCall() bool {
	if s.counts["call lost"] >= maxLost {
		return false
	}
	call, device := []string{"launch", "copyin", "copyout"}[s.r.IntN(3)], s.devices[s.r.IntN(len(s.devices))]
	s.note("  %s on %s", call, device)
	s.touch(s.trigger(call, device))
	s.undo = append(s.undo, func() {
		s.remove(s.trigger(call, device)) // possibly no program has met it
		for _, d := range s.status().Devices {
			if d.Lost {
				s.changed(ask.ResumeDevice(s.socket, d.Name))
			}
		}
	})
	return true
}

func (s *storm) touch(file string) {
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		s.Fatal(err)
	}
}

func (s *storm) remove(file string) {
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.Fatal(err)
	}
}

// victim is a worker whose program may still lose one.
func (s *storm) victim() (pid int, of *program) {
	for _, i := range s.r.Perm(len(s.programs)) {
		p := s.programs[i]
		if s.hurt[p] < maxKilled {
			if pid = s.workerOf(p); pid != 0 {
				return pid, p
			}
		}
	}
	return 0, nil
}

// workerOf is the worker of a program, or 0.
func (s *storm) workerOf(p *program) int {
	memory := sharedMemory(p.cmd.Process.Pid)
	for _, w := range slices.Sorted(maps.Keys(s.workers())) {
		for inode := range sharedMemory(w) {
			if memory[inode] {
				return w
			}
		}
	}
	return 0
}

// killWorker kills a worker.
func (s *storm) killWorker() bool {
	pid, of := s.victim()
	if of == nil {
		return false
	}
	s.note("  %d of %s", pid, of.name)
	s.hurt[of]++
	_ = syscall.Kill(pid, syscall.SIGKILL)
	return true
}

// pauseWorker stops a worker for a time that is too short for the daemon to kill it.
func (s *storm) pauseWorker() bool {
	pid, of := s.victim()
	if of == nil {
		return false
	}
	s.note("  %d of %s", pid, of.name)
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	s.undo = append(s.undo, func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	return true
}

// killDaemon kills the daemon, and starts it again.
func (s *storm) killDaemon() bool {
	s.whole()
	s.kill()
	s.theNode = s.again(s.args...)
	if s.r.IntN(2) == 0 {
		s.back(nil)
	}
	return true
}

// whole waits until each program has run a further kernel, or has ended. Then each has a worker: a
// daemon that is killed while a program has none, because its device was lost or its worker killed,
// takes the program with it (docs/node.md).
func (s *storm) whole() {
	s.Helper()
	before := map[uint64]uint64{}
	for _, c := range s.status().Clients {
		before[c.ID] = c.Kernels
	}
	s.eventually("all programs go on", func() bool {
		for _, c := range s.status().Clients {
			if kernels, known := before[c.ID]; known && kernels == c.Kernels {
				return false
			}
		}
		return true
	})
}

// handOver makes the daemon hand its programs over to the next one.
func (s *storm) handOver() bool {
	if out, code := s.tries("node", "stop", "--handover", "--socket", s.socket); code != 0 {
		s.Errorf("muster node stop says %q", out)
	}
	<-s.exited
	s.killed = true
	s.theNode = s.again(s.args...)
	return true
}

// save saves a client to disk, in whatever state it is.
func (s *storm) save() bool {
	clients := s.status().Clients
	if len(clients) == 0 {
		return false
	}
	c := clients[s.r.IntN(len(clients))]
	s.note("  client %d", c.ID)
	out, code := s.tries("checkpoint", "--socket", s.socket, fmt.Sprint(c.ID), filepath.Join(s.T.TempDir(), "saved"))
	// The program may have just faulted, which it sometimes does deliberately.
	if code != 0 && !interrupted(out) && !strings.Contains(out, "a fault has ended the program's work") {
		s.Errorf("checkpoint says %q", out)
	}
	return code == 0
}

// gone is what is said of a client that has ended before a request came, or while it was carried out.
var gone = regexp.MustCompile(`there is no client|client \d+ has ended`)

// interrupted says whether a client cannot be saved or restored at present: it has ended, has just
// lost its worker, or has lost its memory by a fault of its own.
func interrupted(text string) bool {
	return gone.MatchString(text) || strings.Contains(text, "try again")
}

// saveAndRestore saves a program that is waiting for it, lets it overwrite its memory, and restores
// it, possibly in another worker.
func (s *storm) saveAndRestore() bool {
	running := s.running()
	if len(running) == 0 {
		return false
	}
	p := running[s.r.IntN(len(running))]
	kill := s.r.IntN(2) == 0
	trigger := s.trigger("save", p.name)
	s.note("  %s", p.name)
	s.touch(trigger)
	stopped := s.stops(p)
	s.remove(trigger)
	if !stopped {
		return false
	}
	dir := filepath.Join(s.T.TempDir(), "saved")
	s.insists("checkpoint", "--socket", s.socket, s.clientOf(p), dir)
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	if !s.stops(p) {
		s.Errorf("%s has ended instead of being restored", p.name)
		return true
	}
	if worker := s.workerOf(p); kill && worker != 0 && s.hurt[p] < maxKilled {
		s.note("  and worker %d killed", worker)
		s.hurt[p]++
		_ = syscall.Kill(worker, syscall.SIGKILL)
	}
	s.insists("restore", "--socket", s.socket, dir)
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	return true
}

// insists repeats a command until no loss of a worker interrupts it.
func (s *storm) insists(args ...string) {
	s.Helper()
	s.eventually(args[0], func() bool {
		out, code := s.tries(args...)
		if code != 0 && !interrupted(out) {
			s.Fatalf("%s says %q", args[0], out)
		}
		return code == 0
	})
}

// stops waits until a program has stopped itself, or ended.
func (s *storm) stops(p *program) (stopped bool) {
	s.Helper()
	s.eventually(p.name+" stops", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		_, state, _ := strings.Cut(string(stat), ") ")
		stopped = strings.HasPrefix(state, "T")
		return stopped || err != nil || !slices.Contains(s.running(), p)
	})
	return stopped
}

// clientOf is the number of a program's client.
func (s *storm) clientOf(p *program) string {
	s.Helper()
	for _, c := range s.status().Clients {
		if int(c.Pid) == p.cmd.Process.Pid {
			return fmt.Sprint(c.ID)
		}
	}
	s.Fatalf("%s has no client", p.name)
	return ""
}

// check compares the programs' output with the expected one, and checks that nothing is left.
func (s *storm) check(want map[string]string) {
	s.Helper()
	for _, p := range s.programs {
		if got := printed(p.right()); got != want[p.name] {
			s.Errorf("program %s says something else than alone%s", p.name, differs(got, want[p.name]))
		}
	}
	if s.Failed() {
		s.Logf("what happened:\n%s", strings.Join(s.history, "\n"))
		return
	}
	s.idle()
	now := s.status()
	var rebuilds, moves uint64
	for _, c := range now.Ended {
		rebuilds, moves = rebuilds+c.Rebuilds, moves+c.Moves.Total()
	}
	s.Logf("%v; %d rebuilds and %d moves are known, %v swaps", s.counts, rebuilds, moves, s.total("muster_swaps_total"))
}

// differs describes the first difference between two texts.
func differs(got, want string) string {
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(a), len(b)) {
		x, y := "nothing", "nothing"
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if x != y {
			return fmt.Sprintf(" in line %d: %q, not %q", i+1, x, y)
		}
	}
	return ""
}
