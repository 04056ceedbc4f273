package chaos

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"muster/campaign/vitals"
	"muster/wire/status"
)

const (
	pollTime  = 5 * time.Millisecond   // between two polls of the node
	stallTime = 250 * time.Millisecond // the least stall of an episode
	homeTime  = time.Minute            // without a victim for this long, a fault is skipped
)

// episode is one node with its programs and its share of the faults.
type episode struct {
	o      *Options
	number int
	faults int // number of its faults
	spec   nodeSpec

	dir, rules, swapDir string // swapDir is "" if the swap area is in memory
	mounted             bool
	mark                string
	stall               time.Duration // without progress for this long, the next fault is injected anyway
	node                *daemon
	before              vitals.Vitals // of the daemon, before the first fault

	programs  []*program // programs that have not been judged
	launched  int
	processes map[int]*process // as last seen, by PID
	last      map[int]int      // number of the program that a worker last served, by the worker's PID
	spent     map[int]bool     // workers that were killed or stopped, by PID
	dying     int              // PID of the worker that was killed last
	armed     map[string]fault // failures by rule that no program has met yet, by trigger file
	unclaimed []excuse         // excuses of programs that are not known
	undos     []undo
	lost      int       // number of lost devices, by the node's status
	lostUntil time.Time // when a device that was taken away returned
	away      bool      // some workers have not reconnected to the restarted daemon yet
	ambient   []excuse  // excuses of lasting faults, for programs that start meanwhile
	kept      []net.Conn

	kernels  map[uint64]uint64 // by client
	progress uint64            // total number of kernels
	history  []string
	began    time.Time

	result     Result
	violations []string
}

// run plays the episode, and leaves nothing but its folder. An error says that the episode could
// not be played; findings go to violations.
func (e *episode) run() (err error) {
	e.began = time.Now()
	defer func() { err = errors.Join(err, e.clear()) }()
	if err := e.prepare(); err != nil {
		return err
	}
	if err := e.live(); err != nil { // a node that cannot be started or does not answer is a violation, too
		e.violate("%v", err)
	}
	return nil
}

func (e *episode) live() error {
	if err := e.node.start(); err != nil {
		return err
	}
	if err := e.warmUp(); err != nil {
		return err
	}
	if err := e.play(); err != nil {
		return err
	}
	if len(e.violations) == 0 {
		e.checkLeaks()
	}
	return nil
}

// prepare makes the folders and files.
func (e *episode) prepare() error {
	e.rules, e.mark = filepath.Join(e.dir, "rules"), fmt.Sprintf("%d-%d", os.Getpid(), e.number)
	e.processes, e.last, e.spent = map[int]*process{}, map[int]int{}, map[int]bool{}
	e.armed, e.kernels = map[string]fault{}, map[uint64]uint64{}
	e.result = Result{Faults: map[Kind]int{}, Ends: map[string]int{}}
	for _, dir := range []string{filepath.Join(e.rules, "now"), filepath.Join(e.dir, "tmp")} {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return err
		}
	}
	// Workers rename files there, as whichever user they run.
	if err := os.Chmod(filepath.Join(e.rules, "now"), 0o777); err != nil {
		return err
	}
	for _, d := range e.spec.devices {
		if err := os.WriteFile(filepath.Join(e.rules, d.name), []byte(ruleFile(e.rules, d.name)), 0o644); err != nil {
			return err
		}
	}
	if err := e.prepareSwap(); err != nil {
		return err
	}
	record := ""
	if e.spec.records {
		record = filepath.Join(e.dir, "decisions.jsonl")
	}
	e.node = &daemon{muster: e.o.Muster, dir: e.dir, socket: "@muster-chaos-" + e.mark, config: filepath.Join(e.dir, "node.yaml"), environ: e.environ()}
	return os.WriteFile(e.node.config, []byte(e.spec.file(e.node.socket, e.rules, e.swapDir, record, e.settings()...)), 0o644)
}

// settings are the node's settings that depend on the expectation.
func (e *episode) settings() []string {
	var settings []string
	if e.spec.remote {
		at := e.o.certificates("node-*")
		settings = append(settings, "listen: 127.0.0.1:0", fmt.Sprintf("tls: {cert: %[1]s/node.pem, key: %[1]s/node-key.pem, ca: %[1]s/ca.pem}", at))
	}
	if slices.Contains(e.o.Kinds, SabotageDescriptor) { // the daemon is to keep silent connections until they are found
		settings = append(settings, "connections: {greet: 1h}")
	}
	if e.o.Expect == Fail {
		return append(settings, "recover: off", "orphan_grace: 0")
	}
	return append(settings, "recover: on", "orphan_grace: 1m")
}

func (e *episode) prepareSwap() error {
	if e.spec.swap == "memory" {
		return nil
	}
	e.swapDir = filepath.Join(e.dir, "swap")
	if err := os.Mkdir(e.swapDir, 0o755); err != nil {
		return err
	}
	if e.spec.swap != "disk" {
		return nil
	}
	if err := mountDisk(e.swapDir, (swapSize+16)<<20); err != nil {
		return fmt.Errorf("a small disk for the swap area: %w", err)
	}
	e.mounted = true
	return nil
}

func mountDisk(dir string, size int) error {
	return syscall.Mount("muster-chaos", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=755", size))
}

// environ is the environment of all processes of the episode.
func (e *episode) environ() []string {
	return append(os.Environ(), markVariable+"="+e.mark, "TMPDIR="+filepath.Join(e.dir, "tmp"), "MUSTER_SOCKET=@muster-chaos-nowhere")
}

func (e *episode) shell(line string) *exec.Cmd {
	cmd := exec.Command("/bin/sh", "-c", line)
	cmd.Env = e.environ()
	return cmd
}

// note adds an event to the history.
func (e *episode) note(format string, args ...any) {
	e.history = append(e.history, fmt.Sprintf("%8.3f s, %d kernels: %s", time.Since(e.began).Seconds(), e.progress, fmt.Sprintf(format, args...)))
}

// violate records a violation.
func (e *episode) violate(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	e.note("VIOLATION: %s", text)
	e.violations = append(e.violations, text)
}

// warmUp runs one short program, so that the node has everything that it keeps after its first use,
// and then records the daemon's vitals.
func (e *episode) warmUp() error {
	w := weave{size: 1024, rounds: 4, every: 2, seed: 1}
	p, err := e.launch(command{
		words: []string{"weave", "--size", "1024", "--repeat", "4", "--compare", "2"},
		line:  fmt.Sprintf("weave: 4 rounds of 3 x 1024 words, checksum %08x right", w.checksum()),
	})
	if err != nil {
		return err
	}
	e.programs = append(e.programs, p)
	begun := time.Now()
	<-p.exited
	// Faults that come faster than programs can make progress would end them.
	e.stall = max(stallTime, 2*time.Since(begun))
	e.reap()
	if len(e.violations) > 0 {
		return nil
	}
	if err := e.idle(); err != nil {
		return err
	}
	// Workers come and go. Take the maximum over several readings, with all of them present.
	for range 10 {
		time.Sleep(pollTime)
		v, err := vitals.Read(e.node.pid())
		if err != nil {
			return err
		}
		e.before = vitals.Most(e.before, v)
	}
	return nil
}

// play runs programs and injects faults until no fault is left and all programs have ended.
func (e *episode) play() error {
	pause := pollTime
	for next := e.draw(1); len(e.violations) == 0; time.Sleep(pause) {
		e.observe()
		e.reap()
		if err := e.undoDue(false); err != nil {
			return err
		}
		if next.number > e.faults {
			if len(e.programs) == 0 {
				return e.undoDue(true)
			}
			pause = 10 * pollTime // only ends are waited for
			continue
		}
		if err := e.admit(); err != nil {
			return err
		}
		if e.progress < next.due && time.Now().Before(next.latest) {
			continue
		}
		done, err := e.tryFault(&next)
		if err != nil {
			return err
		}
		if done {
			next = e.draw(next.number + 1)
		}
	}
	return nil
}

// planned is a fault with the progress at which it is due.
type planned struct {
	fault
	due    uint64
	latest time.Time // when it is injected even without progress
	gone   time.Time // when it is skipped if it has no victim
}

// draw draws the next fault.
func (e *episode) draw(number int) planned {
	f := drawFault(e.o.Seed, e.number, number, e.spec.kinds)
	now := time.Now()
	return planned{f, e.progress + f.gap, now.Add(e.stall), now.Add(homeTime)}
}

// tryFault injects a fault, or skips it if it has found no victim for too long.
func (e *episode) tryFault(f *planned) (done bool, err error) {
	err = e.inject(f.fault)
	switch {
	case err == nil:
		e.result.Faults[f.kind]++
		return true, nil
	case !errors.Is(err, errNobody):
		return false, fmt.Errorf("%v: %w", f.fault, err)
	case time.Now().After(f.gone):
		e.note("%v: passed over, there was nobody", f.fault)
		e.result.PassedOver++
		return true, nil
	}
	return false, nil
}

// admit starts programs until the intended number is running.
func (e *episode) admit() error {
	for len(e.programs) < e.o.Programs {
		c := drawCommand(draws(e.o.Seed, e.number, drawsProgram, e.launched))
		p, err := e.launch(c)
		if err != nil {
			return err
		}
		p.excuses = append(p.excuses, e.ambient...)
		e.programs = append(e.programs, p)
		e.note("%v begins, process %d", p, p.cmd.Process.Pid)
	}
	return nil
}

// observe reads the state of the node: the kernels that have run, and which programs have met
// failures.
func (e *episode) observe() {
	if len(e.armed) > 0 {
		e.look()
		e.collect()
	}
	if !e.node.up() {
		return
	}
	s, err := e.node.status()
	if err != nil {
		if e.node.up() {
			e.violate("the daemon does not say how it is: %v", err)
		}
		return
	}
	e.bringBack(s)
	e.away = slices.ContainsFunc(s.Clients, func(c status.Client) bool { return c.Away })
	for _, c := range s.Clients {
		for _, p := range e.programs {
			if p.cmd.Process.Pid == int(c.Pid) && c.Kernels > p.kernels {
				p.kernels, p.hurt = c.Kernels, 0
			}
		}
	}
	for _, c := range slices.Concat(s.Ended, s.Clients) {
		if was := e.kernels[c.ID]; c.Kernels > was {
			e.progress += c.Kernels - was
			e.kernels[c.ID] = c.Kernels
		}
	}
}

// look finds the processes, and records which program each worker serves.
func (e *episode) look() {
	e.processes = look(e.mark, e.processes)
	for pid, w := range e.processes {
		if w.role != isWorker {
			continue
		}
		if number := owner(w, e.processes); number != 0 {
			e.last[pid] = number
		}
	}
}

// servedBy is the program that a worker served when it was last seen; nil if unknown.
func (e *episode) servedBy(pid int) *program {
	for _, p := range e.programs {
		if p.number == e.last[pid] {
			return p
		}
	}
	return nil
}

// allIn says whether all running programs are clients of the node.
func (e *episode) allIn(s *status.Node) bool {
	for _, p := range e.running() {
		if !p.paused && !p.remote && !slices.ContainsFunc(s.Clients, func(c status.Client) bool { return int(c.Pid) == p.cmd.Process.Pid }) {
			return false
		}
	}
	return true
}

// reap judges the programs that have ended, and reports those that do not end.
func (e *episode) reap() {
	over := slices.DeleteFunc(slices.Clone(e.programs), func(p *program) bool { return !p.ended() })
	e.collect() // programs that have ended cannot meet further failures
	e.programs = slices.DeleteFunc(e.programs, func(p *program) bool {
		if !slices.Contains(over, p) {
			if time.Since(p.began) > e.o.Patience {
				e.hangs(p)
			}
			return false
		}
		how, err := e.claim(p)
		e.result.Ends[string(how)]++
		e.note("%v: %s", p, how)
		if err != nil {
			e.violate("%v: %v", p, err)
			return true
		}
		_, _ = os.Remove(p.file("out")), os.Remove(p.file("err"))
		return true
	})
}

// hangs reports a program that does not end, and makes the processes involved dump their state.
func (e *episode) hangs(p *program) {
	e.violate("%v does not end within %v", p, e.o.Patience)
	if s, err := e.node.status(); err == nil {
		e.note("the node: %+v", *s)
	}
	e.look()
	for pid, w := range e.processes {
		if w.role == isWorker && e.last[pid] == p.number {
			_ = syscall.Kill(pid, syscall.SIGQUIT)
		}
	}
	time.Sleep(100 * time.Millisecond) // gives the daemon time to log what its worker says
	_ = e.node.cmd.Process.Signal(syscall.SIGQUIT)
}

// undoDue undoes the faults that are due, or all.
func (e *episode) undoDue(all bool) error {
	var err error
	e.undos = slices.DeleteFunc(e.undos, func(u undo) bool {
		if !all && e.progress < u.at && time.Now().Before(u.deadline) {
			return false
		}
		e.note("%s", u.what)
		if wrong := u.do(); wrong != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", u.what, wrong))
		}
		return true
	})
	return err
}

// clear ends everything that is left, and unmounts the disk.
func (e *episode) clear() error {
	for _, c := range e.kept {
		c.Close()
	}
	if e.node == nil {
		return nil // it was not prepared
	}
	if e.node.cmd != nil {
		_ = e.node.cmd.Process.Kill()
	}
	for _, p := range e.programs {
		p.signal(syscall.SIGKILL)
		<-p.exited
	}
	for pid := range look(e.mark, nil) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	for _, folder := range e.stateFolders() {
		_ = os.RemoveAll(folder)
	}
	if !e.mounted {
		return nil
	}
	return syscall.Unmount(e.swapDir, syscall.MNT_DETACH)
}

// account is the history as text.
func (e *episode) account() string { return strings.Join(e.history, "\n") + "\n" }
