package node

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"muster/internal/door"
	"muster/node/vgpu"
	"muster/wire/status"
)

// Check is a part of the node that can be asked how it is.
type Check struct {
	Part string
	// Trouble says what is wrong with it; nil if nothing is.
	Trouble func() error
}

// freshTime is how old the findings about swap folder and workers may be: they are
// looked at no more often, however often the status is asked for.
const freshTime = 100 * time.Millisecond

// examination caches what was found of the parts that take some time to look at. Any
// handler may ask; mu also makes them wait for one examination instead of each making
// its own.
type examination struct {
	mu       sync.Mutex
	at       time.Time
	problems []status.Problem
}

// problems asks all parts of the node how they are.
func (d *daemon) problems() []status.Problem {
	list := []status.Problem{}
	add := func(part string, trouble error) {
		if trouble != nil {
			list = append(list, status.Problem{Part: part, What: trouble.Error()})
		}
	}
	var promised uint64
	var workers []servingWorker
	running := d.ask(func() {
		if d.draining {
			add("node", errShuttingDown)
		}
		for i, v := range d.core.View().Devices {
			if v.State == vgpu.DeviceLost {
				add(fmt.Sprintf("device %d", i), errors.New("it is lost"))
			}
		}
		promised, workers = d.promised(), d.servingWorkers()
		if d.books.trouble != nil {
			add("state", fmt.Errorf("it cannot be written, so programs may not survive the daemon: %w", d.books.trouble))
		}
	})
	if !running {
		return []status.Problem{{Part: "node", What: errShuttingDown.Reason}}
	}
	add("socket", cannotAccept(d.socket))
	if d.web != nil {
		add("http", d.web.trouble())
	}
	for _, c := range d.opts.Checks {
		add(c.Part, c.Trouble())
	}
	add("workers", d.pool.trouble())
	return append(list, d.examined.problemsOf(d.opts.Now(), d.cfg.Swap.Dir, promised, workers)...)
}

// problemsOf looks at the swap folder and at workers, unless that was just done.
func (e *examination) problemsOf(now time.Time, swap string, promised uint64, workers []servingWorker) []status.Problem {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.at.IsZero() && now.Sub(e.at) < freshTime {
		return e.problems
	}
	e.at, e.problems = now, nil
	if swap != "" {
		if err := checkSwap(swap, promised); err != nil {
			e.problems = append(e.problems, status.Problem{Part: "swap", What: err.Error()})
		}
	}
	if silent := silentOf(workers); len(silent) > 0 {
		e.problems = append(e.problems, status.Problem{Part: "workers", What: fmt.Sprintf("%d do not answer: %s", len(silent), strings.Join(silent, ", "))})
	}
	return e.problems
}

// cannotAccept says why a listener accepts no connections; nil if it does.
func cannotAccept(l *door.Listener) error {
	if trouble := l.Trouble(); trouble != nil {
		return fmt.Errorf("no connection can be accepted: %w", trouble)
	}
	return nil
}

// promised is how many more bytes clients may write into the swap area. Only the loop
// calls it.
func (d *daemon) promised() uint64 {
	sum := uint64(0)
	for _, c := range d.clients {
		sum += c.committed - min(c.committed, c.memoryNow.Swapped)
	}
	return sum
}

// leastRoom is what a file system must have left for anything to work at all.
const leastRoom = 16 << 20

// checkSwap says what is wrong with the folder of the swap area, into which promised
// more bytes may have to be written; nil if nothing is.
func checkSwap(dir string, promised uint64) error {
	f, err := os.CreateTemp(dir, "muster-health-*")
	if err != nil {
		return fmt.Errorf("no file can be made: %w", err)
	}
	defer f.Close()
	if err := os.Remove(f.Name()); err != nil {
		return fmt.Errorf("no file can be removed: %w", err)
	}
	if _, err := f.Write(make([]byte, 4096)); err != nil {
		return fmt.Errorf("nothing can be written: %w", err)
	}
	var fs syscall.Statfs_t
	if err := syscall.Fstatfs(int(f.Fd()), &fs); err != nil {
		return fmt.Errorf("it cannot be looked at: %w", err)
	}
	if free, need := fs.Bavail*uint64(fs.Bsize), max(promised, leastRoom); free < need {
		return fmt.Errorf("%s has room for %d bytes, and %d may be needed: make room", dir, free, need)
	}
	return nil
}

// servingWorker is a worker that has a client.
type servingWorker struct {
	client vgpu.ClientID
	pid    int
	missed int // pings in a row that it has not answered
}

// servingWorkers lists the workers that have clients, in the order of the clients. Only
// the loop calls it.
func (d *daemon) servingWorkers() []servingWorker {
	var list []servingWorker
	for _, c := range d.clients {
		if c.worker != nil && !c.ending {
			list = append(list, servingWorker{c.id, c.worker.pid(), c.missed})
		}
	}
	slices.SortFunc(list, func(a, b servingWorker) int { return cmp.Compare(a.client, b.client) })
	return list
}

// silentOf names the workers that do not answer.
func silentOf(workers []servingWorker) []string {
	var silent []string
	for _, w := range workers {
		switch {
		case isStopped(w.pid):
			silent = append(silent, fmt.Sprintf("client %d's (process %d) is stopped", w.client, w.pid))
		case w.missed > 1:
			silent = append(silent, fmt.Sprintf("client %d's (process %d) has missed %d pings", w.client, w.pid, w.missed))
		}
	}
	return silent
}
