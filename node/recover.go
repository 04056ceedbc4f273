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
)

// A client outlives its worker. The ring, the data arena, the host copies of its memory
// and the journal are files, of which the daemon has descriptors too. When a worker
// ends and its client has not, another worker gets them, and rebuilds the client from
// them: its program waits a little longer for an answer, and knows nothing of it.
//
// A device that is gone ends the workers that use it, in the same way. One worker's word
// for it is not enough to take it from all others: the device is tried first (probe).

// maxRebuilds is how often a client is rebuilt without coming as far as it was before:
// what it does may be what ends its workers.
const maxRebuilds = 5

// recovery is what the daemon knows of a client's workers that have ended. It is the
// loop's.
type recovery struct {
	kept     []control.Held // descriptors that outlive a worker; nil: the client does not
	attached []byte         // what its program was told with its memory, or was not when the worker died
	over     bool           // the worker has said that the client ends
	why      string         // the worker cannot go on
	tries    int            // since it was last what it was before
	lostAt   time.Duration  // when its last worker ended
	rebuilds uint64
	suspects <-chan struct{} // closed when it is known whether the worker's device is gone
	blames   int             // the device that is gone, says the worker, counted from 1; 0: it has said nothing
	pace     pace
	between  bool          // it has no worker
	renewing time.Duration // until then it may come with a fault that another saw, and its worker was told of
}

// pace bounds how often a client is rebuilt that comes a little farther each time. The
// first rebuilds are made at once, later ones on average one in each restTime.
type pace struct{ due time.Duration }

const (
	restTime = time.Second
	restless = 20 // rebuilds that are made at once
)

// rest notes a rebuild, and says how long it is put off.
func (p *pace) rest(now time.Duration) time.Duration {
	p.due = max(p.due, now) + restTime
	return max(0, p.due-now-restless*restTime)
}

// names of the descriptors that are kept for recovery beside those of the ring and the
// arena, in the order in which workers get them.
var keptNames = []string{"host0", "host1", "journal"}

// makeKept makes the files that a client needs to outlive its worker.
func (d *daemon) makeKept(c *client) ([]control.Held, error) {
	var kept []control.Held
	for _, name := range keptNames {
		create := worker.CreateJournal
		if name != "journal" {
			create = func() (*os.File, error) { return worker.CreateHostFile(c.arena.Size, d.cfg.Swap.Dir) }
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

// copyHeld makes descriptors of their own for the same files.
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
		const dupCloseOnExec = 1030
		number, _, errno := syscall.Syscall(syscall.SYS_FCNTL, fd, dupCloseOnExec, 0)
		if errno != 0 {
			err = errno
		}
		copied = number
	})
	return copied, errors.Join(failed, err)
}

// filesOf are files in the order in which workers get them.
func filesOf(held []control.Held) []*os.File {
	files := make([]*os.File, len(held))
	for i, h := range held {
		files[i] = h.File
	}
	return files
}

// canOutlive says whether files are all that a client needs to outlive its worker.
func canOutlive(held []control.Held) bool {
	return slices.EqualFunc(held, append([]string{"ring", "arena"}, keptNames...), func(h control.Held, name string) bool { return h.Name == name })
}

// keptOf are those of some files that a client needs to outlive its worker.
func keptOf(files map[string]*os.File) []control.Held {
	var kept []control.Held
	for _, name := range append([]string{"ring", "arena"}, keptNames...) {
		if f := files[name]; f != nil {
			kept = append(kept, control.Held{Name: name, File: f})
		}
	}
	return kept
}

// serveOf is what a client's worker is told, beside the devices.
func (d *daemon) serveOf(c *client) control.Serve {
	return control.Serve{
		Node: d.address(), OrphanGrace: d.orphanGrace(), Client: uint64(c.id), ArenaBase: c.arena.Base, ArenaSize: c.arena.Size, Memory: c.memory, MemoryBy: c.memoryBy,
		SwapDir: d.cfg.Swap.Dir, Defer: d.live().Defer, Share: c.under.memory(), Pace: d.paceOf(c), Guest: c.guest.is,
	}
}

// employWith finds a worker for a client, which gets the files and the devices that
// there are.
func (d *daemon) employWith(c *client, serve control.Serve, kept []control.Held, left *legacy) (*workerProcess, *inventory, error) {
	stock := d.stock.Load()
	serve.Devices = c.configs(stock)
	locks, err := stock.openLocks()
	if err != nil {
		return nil, nil, because(err, resultSystemNotReady, "no worker can serve the program: %v", err)
	}
	defer closeFiles(locks)
	files := append(filesOf(kept), locks...)
	if serve.Pace != nil {
		files = append(files, d.precedence)
	}
	w, err := d.employ(c, serve, files, left)
	return w, stock, err
}

// workerEnded takes note that a client has no worker any more.
func (d *daemon) workerEnded(c *client, w *workerProcess) {
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

// endWorker ends a worker that cannot be trusted to answer any more, and its client if
// that cannot go on without it.
func (d *daemon) endWorker(c *client, reason string) {
	if !d.mayRebuild(c) {
		d.end(c, reason, true)
		return
	}
	c.why = reason
	c.worker.kill()
}

// rebuild gives a client another worker.
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
	d.step(d.now(), vgpu.Faulted{Client: c.id})
	serve := d.serveOf(c)
	serve.Recover, serve.Resume, serve.Lease, serve.Committed = true, true, c.lease, c.committed
	c.between = true
	number, rest := c.rebuilds, c.pace.rest(d.now())
	go func() {
		if suspects != nil { // or it would be given the same device again
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

// excuse does not count a try that failed because a device is lost: that is not the
// client's doing, however often it happens. The device is counted from 1.
func (d *daemon) excuse(c *client, blamed int) {
	entries := d.stock.Load().entries
	if blamed >= 1 && blamed <= len(entries) && !entries[blamed-1].here && c.tries > 0 {
		c.tries--
	}
}

// whyNoWorker says why the client's worker is no more.
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

// patience is how often another worker is sought for a client while the machine has
// nothing to start one with: the client is whole, and others may give something back.
const patience = 30

// reemployAfter is reemploy after a time, and again where the machine lacks descriptors,
// processes or memory.
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

// isShortage says whether an error may pass when others give something back.
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
	w, stock, err := d.employWith(c, serve, kept, left)
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

// suspect has a device tried that a worker says is gone. If it is, it is taken from
// all.
func (d *daemon) suspect(number int, why string) {
	stock := d.stock.Load()
	if number < 0 || number >= len(stock.entries) || !stock.entries[number].here || d.probing[number] != nil {
		return
	}
	known := make(chan struct{})
	d.probing[number] = known
	e := stock.entries[number]
	go func() {
		err := d.probe(e)
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

// lookFor waits for a device that is lost to come back.
func (d *daemon) lookFor(number int) {
	e := d.stock.Load().entries[number]
	if e.ticket != "" {
		return // what is borrowed next is another device
	}
	time.AfterFunc(lookAgain, func() {
		if e.here || d.closing.Load() {
			return
		}
		err := d.probe(e)
		var info device.Info
		if err == nil { // it may not have been there when the daemon was started
			info, err = d.examine(e.Device)
		}
		d.do(func() {
			now := d.stock.Load().entries[number]
			switch {
			case now.here || now.change != e.change: // somebody else has seen to it
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

// errNotTried says that a device could not be tried, which is no fault of its own, and
// no sign that it is there.
var errNotTried = errors.New("it could not be tried")

// probe tries a device, in a process of its own: a driver may not return from a call,
// and not even the end of that process is waited for.
func (d *daemon) probe(e stocked) error {
	w, err := d.pool.start()
	if err != nil {
		return errors.Join(errNotTried, err)
	}
	defer func() { go d.dismiss(w) }()
	lock, err := wire.OpenLock(e.lock)
	if err != nil {
		return errors.Join(errNotTried, err)
	}
	defer lock.Close()
	late := time.AfterFunc(probeTime, w.kill)
	defer late.Stop()
	config := e.DeviceConfig
	config.Gone = false
	if err := w.control.Send(control.Probe{Device: config}, lock); err != nil {
		return errors.Join(errNotTried, err)
	}
	for {
		said, err := w.control.Receive()
		if err != nil {
			return errors.New("it does not answer")
		}
		switch m := said.(type) {
		case control.CannotServe:
			return errors.New(m.Reason)
		case control.Pong:
			return nil
		}
	}
}
