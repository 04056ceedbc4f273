package node

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"muster/internal/door"
	"muster/node/vgpu"
)

// Health is how a node is, as a document.
type Health struct {
	Node     string    `json:"node"`
	Healthy  bool      `json:"healthy"`
	Problems []Problem `json:"problems"`
}

// Problem is what is wrong with a part of the node.
type Problem struct {
	Part string `json:"part"` // node, socket, gateway, http, swap, workers, or device N
	What string `json:"what"`
}

func (p Problem) String() string { return p.Part + ": " + p.What }

// Check is how a part of the node can be asked how it is.
type Check struct {
	Part string
	// Trouble says what is wrong with it; nil if nothing is.
	Trouble func() error
}

// problems asks all parts of the node how they are.
func (d *daemon) problems() []Problem {
	list := []Problem{}
	add := func(part string, trouble error) {
		if trouble != nil {
			list = append(list, Problem{part, trouble.Error()})
		}
	}
	now := d.opts.Now()
	promised, silent := uint64(0), []string(nil)
	running := d.ask(func() {
		if d.draining {
			add("node", errShuttingDown)
		}
		for i, v := range d.core.View().Devices {
			if v.Lost {
				add(fmt.Sprintf("device %d", i), errors.New("it is lost"))
			}
		}
		promised, silent = d.promised(), d.silentWorkers(now)
	})
	if !running {
		return append(list, Problem{"node", errShuttingDown.Reason})
	}
	add("socket", cannotAccept(d.socket))
	if d.web != nil {
		add("http", d.web.trouble())
	}
	for _, c := range d.opts.Checks {
		add(c.Part, c.Trouble())
	}
	if d.cfg.Swap.Dir != "" {
		add("swap", checkSwap(d.cfg.Swap.Dir, promised))
	}
	add("workers", d.pool.trouble())
	if len(silent) > 0 {
		add("workers", fmt.Errorf("%d do not answer: %s", len(silent), strings.Join(silent, ", ")))
	}
	return list
}

// cannotAccept says why a listener accepts no connections; nil if it does.
func cannotAccept(l *door.Listener) error {
	if trouble := l.Trouble(); trouble != nil {
		return fmt.Errorf("no connection can be accepted: %w", trouble)
	}
	return nil
}

// promised is how many bytes clients may still write into the swap area. The loop
// calls it.
func (d *daemon) promised() uint64 {
	sum := uint64(0)
	for _, c := range d.clients {
		sum += c.committed - min(c.committed, c.memoryNow.Swapped)
	}
	return sum
}

// leastRoom is what a file system must have left for anything to work.
const leastRoom = 16 << 20

// checkSwap says what is wrong with the folder of the swap area, where so many
// bytes may still have to be written; nil if nothing is.
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

// unreadTime is how long a worker may leave a message unread. What it does with a
// message may take longer.
const unreadTime = 5 * time.Second

// silentWorkers names the workers that do not answer: processes that somebody
// stopped, and those that have left a message unread for unreadTime. The loop calls
// it.
func (d *daemon) silentWorkers(now time.Time) []string {
	var silent []string
	for _, id := range sortedIDs(d.clients) {
		c := d.clients[id]
		if c.worker == nil || c.ending {
			continue
		}
		if why := c.silence(now); why != "" {
			silent = append(silent, fmt.Sprintf("client %d's (process %d) %s", c.id, c.worker.cmd.Process.Pid, why))
		}
	}
	return silent
}

// silence says why a client's worker does not answer; "" if it does, as far as can
// be seen without asking it.
func (c *client) silence(now time.Time) string {
	unread, err := c.worker.control.Unread()
	switch {
	case err != nil || unread == 0:
		c.unread = time.Time{}
	case c.unread.IsZero():
		c.unread = now
	case now.Sub(c.unread) >= unreadTime:
		return "has not read its messages for " + now.Sub(c.unread).Round(time.Second).String()
	}
	if isStopped(c.worker.cmd.Process.Pid) {
		return "is stopped"
	}
	return ""
}

func sortedIDs(clients map[vgpu.ClientID]*client) []vgpu.ClientID {
	ids := make([]vgpu.ClientID, 0, len(clients))
	for id := range clients {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// isStopped says whether a process was stopped by a signal or a debugger.
func isStopped(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	// The name in brackets may have any character in it.
	at := bytes.LastIndexByte(text, ')')
	return at >= 0 && len(text) > at+2 && (text[at+2] == 'T' || text[at+2] == 't')
}
