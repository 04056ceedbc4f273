package node

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"muster/node/held"
	"muster/node/inventory"
	"muster/node/survival"
	"muster/node/vgpu"
	"muster/node/workers"
	"muster/wire"
	"muster/wire/control"
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

// keep replaces the descriptors that outlive a worker.
func (r *recovery) keep(files []control.Held) {
	held.Close(r.kept)
	r.kept = files
}

// lost notes that the worker cannot go on, since a device is gone.
func (r *recovery) lost(why string, device int) { r.why, r.blames = why, device+1 }

// ends notes that the client ends with its worker, unless that is known: the first reason counts, since a
// worker that ends has several threads that may say why.
func (r *recovery) ends(why string) (first bool) {
	if first = !r.over; first {
		r.over, r.why = true, why
	}
	return first
}

// renews notes that the worker was told of another client's fault.
func (r *recovery) renews(now time.Duration) { r.renewing = now + renewTime }

// begin begins a rebuild, and returns its number. What was said of the last worker does not hold for the next.
func (r *recovery) begin(now time.Duration) (number uint64) {
	if r.tries++; r.tries == 1 {
		r.lostAt = now
	}
	r.rebuilds++
	r.why, r.suspects, r.blames, r.renewing, r.between = "", nil, 0, 0, true
	return r.rebuilds
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

// rebuilder sees to clients whose workers end, and ends workers that do not answer.
type rebuilder struct {
	common
	heart  heartbeat
	staff  *staff
	loans  *loans
	loads  *loads
	keeper *survival.Keeper

	awaitAnother func(*client) // device, if the node has none
	checkLenders func(fair bool)
	accompany    func(c *client, conn *net.UnixConn, said bool)
	assign       func(c *client, w *workers.Process, shared *wire.Shared, told *inventory.Inventory) bool
	forget       func(*client)
	end          func(c *client, reason string, kill bool)
}

// workerEnded notes that a client has no worker any more, and has the client rebuilt or
// forgotten. Only the loop calls it.
func (r *rebuilder) workerEnded(c *client, w *workers.Process) {
	defer r.loads.sweepQueues()
	if r.clients[c.id] == c && c.worker == w && r.mayRebuild(c) {
		r.rebuild(c)
		return
	}
	r.forget(c)
}

// mayRebuild says whether a client whose worker has ended can go on.
func (r *rebuilder) mayRebuild(c *client) bool {
	return !c.ending && c.kept != nil && c.conn != nil && !c.over && c.tries < maxRebuilds
}

// endWorker ends a worker that can no longer be trusted to answer, and with it the
// client if that cannot be rebuilt.
func (r *rebuilder) endWorker(c *client, reason string) {
	if !r.mayRebuild(c) {
		r.end(c, reason, true)
		return
	}
	c.why = reason
	c.worker.Kill()
}

// wished notes why a worker asks to be killed, and has the device probed that it finds gone.
func (r *rebuilder) wished(c *client, m control.Rebuild) {
	c.why = m.Reason
	if m.Lost {
		r.stock.Suspect(m.Device, m.Reason)
		c.lost(m.Reason, m.Device)
		c.suspects = r.stock.Suspected(m.Device)
	}
}

// rebuilt notes that a client has got back to where it was.
func (r *rebuilder) rebuilt(c *client) {
	r.log.Info("a client is what it was before its worker ended", "client", c.id, "user", c.peer.User.Name, "after", (r.loop.Now() - c.lostAt).String())
	c.tries = 0
}

// rebuild gives a client another worker. The dispatcher hears at once that the client
// has lost its device (Faulted); a goroutine finds the worker, since that takes a while.
// If the client is rebuilt once more meanwhile, rebuilds has changed and the goroutine's
// outcome no longer counts.
func (r *rebuilder) rebuild(c *client) {
	why, suspects, blamed := c.whyNoWorker(), c.suspects, c.blames
	number := c.begin(r.loop.Now())
	r.log.Warn("a client is rebuilt in another worker", "client", c.id, "user", c.peer.User.Name, "reason", why, "try", c.tries)
	if suspects == nil {
		r.excuse(c, blamed)
	}
	c.leaves()
	c.worker, c.wanting, c.pulse, c.told, c.unsettled = nil, false, pulse{}, vgpu.Usage{}, false
	r.loans.dropAll(c)
	r.staff.leaveSpare(c)
	r.dispatcher.Step(vgpu.Faulted{Client: c.id})
	serve := r.staff.serveOf(c)
	serve.Recover, serve.Resume, serve.Tries, serve.Lease, serve.Committed = true, true, c.tries, c.lease, c.committed
	rest := c.pace.rest(r.loop.Now())
	go func() {
		if suspects != nil { // wait for the probe's outcome, or the client might get the same dead device again
			select {
			case <-suspects:
			case <-c.gone:
			case <-r.loop.Ended():
			}
			r.loop.Ask(func() {
				if r.clients[c.id] == c && c.rebuilds == number {
					r.excuse(c, blamed)
				}
			})
		}
		r.awaitAnother(c)
		err := r.reemployAfter(rest, c, serve)
		r.loop.Do(func() {
			if r.clients[c.id] != c || c.rebuilds != number {
				return // another worker has followed this one
			}
			if c.between = false; err != nil {
				r.end(c, fmt.Sprintf("%s; and it cannot go on in another: %v", why, err), false)
			}
		})
	}()
}

// excuse takes back a try that failed because a device was lost: that is not the
// client's fault, however often it happens. The device is counted from 1.
func (r *rebuilder) excuse(c *client, blamed int) {
	entries := r.stock.Load().Entries
	if blamed >= 1 && blamed <= len(entries) && !entries[blamed-1].Here && c.tries > 0 {
		c.tries--
	}
}

// whyNoWorker says why the client's worker has ended.
func (c *client) whyNoWorker() string {
	why := c.why
	if why == "" {
		why = "its worker has ended: " + c.worker.Ending()
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
func (r *rebuilder) reemployAfter(rest time.Duration, c *client, serve control.Serve) error {
	for try := 1; ; try++ {
		select {
		case <-time.After(rest):
		case <-c.gone:
			return nil
		}
		err := r.reemploy(c, serve)
		if try == patience || !isShortage(err) {
			return err
		}
		r.log.Warn("a client waits for another worker, for which something is lacking", "client", c.id, "user", c.peer.User.Name, "error", err)
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
func (r *rebuilder) reemploy(c *client, serve control.Serve) error {
	var kept []control.Held
	var left *workers.Legacy
	var err error
	r.loop.Ask(func() {
		if r.clients[c.id] != c { // it has ended
			return
		}
		if kept, err = held.Copy(c.kept); err == nil {
			left, err = r.bequeath(c)
		}
	})
	defer held.Close(kept)
	defer left.Close()
	if err != nil || kept == nil {
		return err
	}
	w, stock, err := r.staff.employWith(c, serve, kept, left, nil)
	if err != nil {
		return err
	}
	assigned := false
	if !r.loop.Ask(func() { assigned = r.clients[c.id] == c && r.assign(c, w, c.shared, stock) }) || !assigned {
		r.staff.pool.Dismiss(w) // the client has ended
	}
	return nil
}

// rescue takes over what a worker holds that does not come. It returns false if that is
// not possible, or not enough to rebuild the client: then the client ends with the
// worker.
func (r *rebuilder) rescue(c *client) bool {
	files, err := held.Take(c.worker, c.held)
	if err != nil {
		r.log.Warn("what a worker holds that does not come cannot be had: its client ends", "client", c.id, "error", err)
		return false
	}
	defer held.Close(files)
	b, err := held.Open(files)
	if err != nil {
		r.log.Warn("what a worker holds that does not come is of no use: its client ends", "client", c.id, "error", err)
		return false
	}
	if b.Kept == nil {
		b.Close()
		return false
	}
	c.conn, c.shared = b.Program, b.Shared
	c.keep(b.Kept)
	r.loop.Go(func() { r.accompany(c, b.Program, false) })
	return true
}

// bequeath prepares what the next worker of a client gets; nil if the client ends with
// the daemon anyway. Only the loop calls it.
func (r *rebuilder) bequeath(c *client) (*workers.Legacy, error) {
	if r.keeper == nil {
		return nil, nil
	}
	program, ids, err := entrustable(c, c.kept)
	if err != nil {
		return nil, err
	}
	c.held = ids
	return &workers.Legacy{Attached: c.attached, Program: program}, nil
}
