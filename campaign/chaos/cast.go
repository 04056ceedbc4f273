package chaos

import (
	"slices"

	"muster/wire/status"
)

// cast are the programs of an episode and the processes of its node.
type cast struct {
	in        *grounds
	programs  []*program       // programs that have not been judged
	processes map[int]*process // as last seen, by PID
	last      map[int]int      // number of the program that a worker last served, by the worker's PID
	spent     map[int]bool     // workers that were killed or stopped, by PID
	dying     int              // PID of the worker that was killed last
}

// look finds the processes, and records which program each worker serves.
func (c *cast) look() {
	c.processes = look(c.in.mark, c.processes)
	for pid, w := range c.processes {
		if w.role != isWorker {
			continue
		}
		if number := owner(w, c.processes); number != 0 {
			c.last[pid] = number
		}
	}
}

// servedBy is the program that a worker served when it was last seen; nil if unknown.
func (c *cast) servedBy(pid int) *program {
	for _, p := range c.programs {
		if p.number == c.last[pid] {
			return p
		}
	}
	return nil
}

// allIn says whether all running programs are clients of the node.
func (c *cast) allIn(s *status.Node) bool {
	for _, p := range c.running() {
		if !p.paused && !p.remote && !slices.ContainsFunc(s.Clients, func(k status.Client) bool { return int(k.Pid) == p.cmd.Process.Pid }) {
			return false
		}
	}
	return true
}

// running are the programs that can be victims, in the order of their starts.
func (c *cast) running() []*program {
	return slices.DeleteFunc(slices.Clone(c.programs), func(p *program) bool { return p.ended() || p.killed != "" })
}

// maxHurt is how often a program may lose its worker or device without progress in between. A node
// gives up a client that it has rebuilt five times without progress.
const maxHurt = 2

type service struct {
	worker  *process
	program *program
}

// served are the workers that can be victims, with their programs, ordered by program and PID.
func (c *cast) served() []service {
	c.look()
	var all []service
	for _, w := range c.processes {
		if w.role != isWorker || c.spent[w.pid] {
			continue
		}
		number := owner(w, c.processes)
		for _, p := range c.running() {
			if p.number == number && p.hurt < maxHurt {
				all = append(all, service{w, p})
			}
		}
		// The worker of a remote program can be a victim if programs are expected to survive that.
		if number == 0 && len(w.shared) > 0 && c.in.spec.remote && c.in.o.Expect == Survive {
			all = append(all, service{w, &program{}})
		}
	}
	slices.SortFunc(all, func(a, b service) int {
		if a.program.number != b.program.number {
			return a.program.number - b.program.number
		}
		return a.worker.pid - b.worker.pid
	})
	return all
}

// client is the program that a fault chooses.
func (c *cast) client(f fault) (*program, error) {
	all := slices.DeleteFunc(c.running(), func(p *program) bool { return p.paused })
	if len(all) == 0 {
		return nil, errNobody
	}
	return all[pick(f.choice, len(all))], nil
}
