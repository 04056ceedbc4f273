package node

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"muster/device"
	"muster/node/vgpu"
	"muster/node/worker"
	"muster/wire"
	"muster/wire/control"

	"golang.org/x/sys/unix"
)

// A client outlives its worker. The ring, the data arena, the host copies of its memory
// and the journal are files, of which the daemon has descriptors too. When a worker ends
// and its client has not, another worker gets these files and rebuilds the client from
// them: its program waits a little longer for an answer, and does not notice.
//
// A device that is gone ends the workers that use it, in the same way. One worker's word
// is not enough to take the device from all clients: the daemon probes it first.

// maxRebuilds is how often a client is rebuilt without getting back to where it was:
// what the program does may be what ends its workers.
const maxRebuilds = 5

// recovery is what the daemon knows of a client's workers that have ended. Only the loop
// uses it.
type recovery struct {
	kept     []control.Held // descriptors that outlive a worker; nil: the client ends with its worker
	attached []byte         // what its program is told with its memory; the next worker tells it if the last one died before
	over     bool           // the worker has said that the client ends
	why      string         // why the worker cannot go on
	tries    int            // rebuilds since it last got back to where it was
	lostAt   time.Duration  // when its last worker ended
	rebuilds uint64
	suspects <-chan struct{} // closed when the probe of the worker's device has ended
	blames   int             // the device that the worker says is gone, counted from 1; 0: none
	pace     pace
	between  bool          // it has no worker
	renewing time.Duration // until then, a fault that it reports is the one that its worker was told of (renewTime)
}

// pace bounds how often a client is rebuilt that gets a little farther each time, which
// maxRebuilds does not catch. The first restless rebuilds are made at once, later ones
// on average once in restTime: a token bucket, in which due is when the bucket is full
// again.
type pace struct{ due time.Duration }

const (
	restTime = time.Second
	restless = 20 // rebuilds that are made at once
)

// rest counts a rebuild, and says how long to put it off.
func (p *pace) rest(now time.Duration) time.Duration {
	p.due = max(p.due, now) + restTime
	return max(0, p.due-now-restless*restTime)
}

// keptNames are the descriptors that are kept for recovery beside those of the ring and
// the arena, in the order in which workers get them.
var keptNames = []string{"host0", "host1", "journal"}

// makeKept makes the files that a client needs to outlive its worker.
func (d *daemon) makeKept(c *client) ([]control.Held, error) {
	var kept []control.Held
	for _, name := range keptNames {
		create := worker.CreateJournal
		if name != "journal" {
			create = func() (*os.File, error) { return worker.CreateHostFile(c.arena.Size, d.cfg.Swap.Dir, d.cfg.hasCUDA()) }
		}
		made, err := create()
		if err != nil {
			closeHeld(kept)
			return nil, refuse(resultSystemNotReady, "no worker can serve the program: %v", err)
		}
		kept = append(kept, control.Held{Name: name, File: made})
	}
	return kept, nil
}

// copyHeld duplicates descriptors. The caller owns the copies.
func copyHeld(held []control.Held) ([]control.Held, error) {
	var copies []control.Held
	for _, h := range held {
		fd, err := dup(h.File)
		if err != nil {
			closeHeld(copies)
			return nil, fmt.Errorf("the descriptor of the %s: %w", h.Name, err)
		}
		copies = append(copies, control.Held{Name: h.Name, File: os.NewFile(fd, h.Name)})
	}
	return copies, nil
}

func dup(f *os.File) (copied uintptr, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	failed := raw.Control(func(fd uintptr) {
		var number int
		number, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
		copied = uintptr(number)
	})
	return copied, errors.Join(failed, err)
}

// filesOf lists files in the order in which workers get them.
func filesOf(held []control.Held) []*os.File {
	files := make([]*os.File, len(held))
	for i, h := range held {
		files[i] = h.File
	}
	return files
}

// canOutlive says whether the files are all that a client needs to outlive its worker.
func canOutlive(held []control.Held) bool {
	return slices.EqualFunc(held, append([]string{"ring", "arena"}, keptNames...), func(h control.Held, name string) bool { return h.Name == name })
}

// keptOf selects the files that a client needs to outlive its worker.
func keptOf(files map[string]*os.File) []control.Held {
	var kept []control.Held
	for _, name := range append([]string{"ring", "arena"}, keptNames...) {
		if f := files[name]; f != nil {
			kept = append(kept, control.Held{Name: name, File: f})
		}
	}
	return kept
}

// serveOf is what a client's worker is told, apart from the devices.
func (d *daemon) serveOf(c *client) control.Serve {
	limit, by := d.kernelTimeOf(c)
	return control.Serve{
		KernelTime: limit, KernelTimeBy: by,
		Node: d.address(), OrphanGrace: d.orphanGrace(), Client: uint64(c.id), ArenaBase: c.arena.Base, ArenaSize: c.arena.Size, Memory: c.memory, MemoryBy: c.memoryBy,
		SwapDir: d.cfg.Swap.Dir, Defer: d.live().Defer, Share: c.under.memory(), Pace: d.paceOf(c), Guest: c.guest.is,
		Mapping: c.mapping, Explain: c.explain,
	}
}

// employWith finds a worker for a client, and gives it the files and the present
// devices. It returns the inventory that the worker knows, so that assign can tell it
// what has changed since.
func (d *daemon) employWith(c *client, serve control.Serve, kept []control.Held, left *legacy, with *spare) (*workerProcess, *inventory, error) {
	stock := d.stock.Load()
	serve.Devices = c.configs(stock)
	locks, err := stock.openLocks()
	if err != nil {
		return nil, nil, because(err, resultSystemNotReady, "no worker can serve the program: %v", err)
	}
	defer closeFiles(locks)
	files := append(filesOf(kept), locks...)
	if serve.Pace != nil {
		// A copy, since the daemon closes its own when it ends, which may be now.
		shared, err := copyHeld([]control.Held{{Name: "memory in which workers claim devices", File: d.precedence}})
		if err != nil {
			return nil, nil, because(err, resultSystemNotReady, "no worker can serve the program: %v", err)
		}
		defer closeHeld(shared)
		files = append(files, shared[0].File)
	}
	w, err := d.employ(c, serve, files, left, with)
	return w, stock, err
}

// workerEnded notes that a client has no worker any more, and has the client rebuilt or
// forgotten. Only the loop calls it.
func (d *daemon) workerEnded(c *client, w *workerProcess) {
	defer d.sweepQueues()
	if d.clients[c.id] == c && c.worker == w && d.mayRebuild(c) {
		d.rebuild(c)
		return
	}
	d.forget(c)
}

// mayRebuild says whether a client whose worker has ended can go on.
func (d *daemon) mayRebuild(c *client) bool {
	return !c.ending && c.kept != nil && c.conn != nil && !c.over && c.tries < maxRebuilds
}

// endWorker ends a worker that can no longer be trusted to answer, and with it the
// client if that cannot be rebuilt.
func (d *daemon) endWorker(c *client, reason string) {
	if !d.mayRebuild(c) {
		d.end(c, reason, true)
		return
	}
	c.why = reason
	c.worker.kill()
}

// rebuild gives a client another worker. The dispatcher hears at once that the client
// has lost its device (Faulted); a goroutine finds the worker, since that takes a while.
// If the client is rebuilt once more meanwhile, rebuilds has changed and the goroutine's
// outcome no longer counts.
func (d *daemon) rebuild(c *client) {
	why, suspects, blamed := c.whyNoWorker(), c.suspects, c.blames
	if c.tries++; c.tries == 1 {
		c.lostAt = d.now()
	}
	c.rebuilds++
	d.log.Warn("a client is rebuilt in another worker", "client", c.id, "user", c.peer.user.name, "reason", why, "try", c.tries)
	c.suspects, c.blames = nil, 0
	if suspects == nil {
		d.excuse(c, blamed)
	}
	c.why, c.worker, c.device, c.wanting, c.pulse = "", nil, vgpu.AnyDevice, false, pulse{}
	c.told, c.unsettled, c.renewing = vgpu.Usage{}, false, 0
	d.dropLoans(c)
	d.leaveSpare(c)
	d.step(d.now(), vgpu.Faulted{Client: c.id})
	serve := d.serveOf(c)
	serve.Recover, serve.Resume, serve.Tries, serve.Lease, serve.Committed = true, true, c.tries, c.lease, c.committed
	c.between = true
	number, rest := c.rebuilds, c.pace.rest(d.now())
	go func() {
		if suspects != nil { // wait for the probe's outcome, or the client might get the same dead device again
			select {
			case <-suspects:
			case <-c.gone:
			case <-d.ended:
			}
			d.ask(func() {
				if d.clients[c.id] == c && c.rebuilds == number {
					d.excuse(c, blamed)
				}
			})
		}
		d.awaitAnother(c)
		err := d.reemployAfter(rest, c, serve)
		d.do(func() {
			if d.clients[c.id] != c || c.rebuilds != number {
				return // another worker has followed this one
			}
			if c.between = false; err != nil {
				d.end(c, fmt.Sprintf("%s; and it cannot go on in another: %v", why, err), false)
			}
		})
	}()
}

// excuse takes back a try that failed because a device was lost: that is not the
// client's fault, however often it happens. The device is counted from 1.
func (d *daemon) excuse(c *client, blamed int) {
	entries := d.stock.Load().entries
	if blamed >= 1 && blamed <= len(entries) && !entries[blamed-1].here && c.tries > 0 {
		c.tries--
	}
}

// whyNoWorker says why the client's worker has ended.
func (c *client) whyNoWorker() string {
	why := c.why
	if why == "" {
		why = "its worker has ended: " + c.worker.ending()
	}
	if c.tries >= maxRebuilds {
		why += fmt.Sprintf(" (it was rebuilt in another %d times and came no further: start the program again)", c.tries)
	}
	return why
}

// patience is how often another worker is sought for a client while the machine lacks
// the means to start one: the client's files are whole, and other processes may give
// something back.
const patience = 30

// reemployAfter calls reemploy after a time, and again each restTime while the machine
// lacks descriptors, processes or memory.
func (d *daemon) reemployAfter(rest time.Duration, c *client, serve control.Serve) error {
	for try := 1; ; try++ {
		select {
		case <-time.After(rest):
		case <-c.gone:
			return nil
		}
		err := d.reemploy(c, serve)
		if try == patience || !isShortage(err) {
			return err
		}
		d.log.Warn("a client waits for another worker, for which something is lacking", "client", c.id, "user", c.peer.user.name, "error", err)
		rest = restTime
	}
}

// isShortage says whether an error may pass once other processes give something back.
func isShortage(err error) bool {
	for _, lack := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.EAGAIN, syscall.ENOMEM} {
		if errors.Is(err, lack) {
			return true
		}
	}
	return false
}

// reemploy finds another worker for a client, and lets it go on.
func (d *daemon) reemploy(c *client, serve control.Serve) error {
	var kept []control.Held
	var left *legacy
	var err error
	d.ask(func() {
		if d.clients[c.id] != c { // it has ended
			return
		}
		if kept, err = copyHeld(c.kept); err == nil {
			left, err = d.bequeath(c)
		}
	})
	defer closeHeld(kept)
	defer left.close()
	if err != nil || kept == nil {
		return err
	}
	w, stock, err := d.employWith(c, serve, kept, left, nil)
	if err != nil {
		return err
	}
	assigned := false
	if !d.ask(func() { assigned = d.clients[c.id] == c && d.assign(c, w, c.shared, stock) }) || !assigned {
		d.dismiss(w) // the client has ended
	}
	return nil
}

// --- devices that may be gone ----------------------------------------------------

const (
	probeTime = 10 * time.Second // for a device to answer
	lookAgain = 5 * time.Second  // at devices that are lost
)

// suspect has a device probed that a worker says is gone. If the probe fails, all
// clients lose the device. Only the loop calls it.
func (d *daemon) suspect(number int, why string) {
	stock := d.stock.Load()
	if number < 0 || number >= len(stock.entries) || !stock.entries[number].here || d.probing[number] != nil {
		return
	}
	known := make(chan struct{})
	d.probing[number] = known
	e := stock.entries[number]
	go func() {
		_, err := d.probe(e)
		d.do(func() {
			defer close(known)
			delete(d.probing, number)
			now := d.stock.Load().entries[number]
			switch {
			case errors.Is(err, errNotTried):
				d.log.Warn("a worker says that a device is gone, which cannot be tried", "device", number, "name", e.info.Name, "reason", why, "error", err)
			case err == nil:
				d.log.Warn("a worker says that a device is gone, which is there for others", "device", number, "name", e.info.Name, "reason", why)
			case now.here && now.change == e.change:
				d.lose(vgpu.DeviceID(number), fmt.Sprintf("%s; tried again: %v", why, err))
				d.lookFor(number)
			}
		})
	}()
}

// lookFor probes a lost device every lookAgain, until it is back or has been replaced.
func (d *daemon) lookFor(number int) {
	e := d.stock.Load().entries[number]
	if e.ticket != "" {
		return // its ticket has ended: what is borrowed next is another device
	}
	time.AfterFunc(lookAgain, func() {
		if e.here || d.closing.Load() {
			return
		}
		_, err := d.probe(e)
		var info device.Info
		if err == nil { // if it was missing when the daemon started, nothing is known of it yet
			info, err = d.examine(e.Device)
		}
		d.do(func() {
			now := d.stock.Load().entries[number]
			switch {
			case now.here || now.change != e.change: // it was resumed or replaced meanwhile
			case err != nil:
				d.lookFor(number)
			default:
				d.log.Info("a device that was lost is there again", "device", number, "name", e.info.Name)
				now.here, now.info = true, info
				d.setEntry(number, now, "")
				d.step(d.now(), vgpu.Returned{Device: vgpu.DeviceID(number), Is: dispatched(now.info, d.live().VGPUs)})
			}
		})
	})
}

// errNotTried says that a device could not be probed, which proves neither that it is
// gone nor that it is there.
var errNotTried = errors.New("it could not be tried")

// probe tries a device in a process of its own, since a call of a driver may never
// return. That process is killed after probeTime, and not even its end is waited for.
func (d *daemon) probe(e stocked) (found control.Probed, err error) {
	w, err := d.pool.start()
	if err != nil {
		return found, errors.Join(errNotTried, err)
	}
	defer func() { go d.dismiss(w) }()
	lock, err := wire.OpenLock(e.lock)
	if err != nil {
		return found, errors.Join(errNotTried, err)
	}
	defer lock.Close()
	late := time.AfterFunc(probeTime, w.kill)
	defer late.Stop()
	config := e.DeviceConfig
	config.Gone = false
	if err := w.control.Send(control.Probe{Device: config}, lock); err != nil {
		return found, errors.Join(errNotTried, err)
	}
	for {
		said, err := w.control.Receive()
		if err != nil {
			return found, errors.New("it does not answer")
		}
		switch m := said.(type) {
		case control.CannotServe:
			return found, errors.New(m.Reason)
		case control.Probed:
			return m, nil
		}
	}
}
