package chaos

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
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

// episode is one node with its programs and its share of the faults. Its many methods are one a kind of
// fault, for the greater part (inject has the list).
type episode struct {
	*grounds
	*account
	cast
	effects

	number int
	faults int           // number of its faults
	stall  time.Duration // without progress for this long, the next fault is injected anyway
	node   *daemon
	before vitals.Vitals // of the daemon, before the first fault

	launched  int
	lost      int       // number of lost devices, by the node's status
	lostUntil time.Time // when a device that was taken away returned
	away      bool      // some workers have not reconnected to the restarted daemon yet
	kept      []net.Conn
	result    Result
}

// newEpisode makes an episode, which prepare gives its folders and files.
func newEpisode(o *Options, number, faults int, spec nodeSpec, dir string) *episode {
	g := &grounds{o: o, spec: spec, dir: dir, rules: filepath.Join(dir, "rules"), mark: fmt.Sprintf("%d-%d", os.Getpid(), number)}
	a := &account{kernels: map[uint64]uint64{}}
	return &episode{
		number: number, faults: faults,
		grounds: g,
		account: a,
		cast:    cast{in: g, processes: map[int]*process{}, last: map[int]int{}, spent: map[int]bool{}},
		effects: effects{account: a, armed: map[string]fault{}},
		result:  Result{Faults: map[Kind]int{}, Ends: map[string]int{}},
	}
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
	if e.spec.granted {
		if err := e.makeGrant(e.node.socket); err != nil {
			return err
		}
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
	if err := e.grounds.make(); err != nil {
		return err
	}
	record := ""
	if e.spec.records {
		record = filepath.Join(e.dir, "decisions.jsonl")
	}
	e.node = &daemon{muster: e.o.Muster, dir: e.dir, socket: "@muster-chaos-" + e.mark, config: filepath.Join(e.dir, "node.yaml"), environ: e.environ()}
	return os.WriteFile(e.node.config, []byte(e.spec.file(e.node.socket, e.rules, e.swapDir, record, e.settings()...)), 0o644)
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
	return e.grounds.clear(e.node.socket)
}
