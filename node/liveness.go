package node

import (
	"fmt"
	"time"

	"muster/wire/control"
)

// maxMissed is how many intervals in a row a worker may let pass without
// answering a ping.
const maxMissed = 3

// heartbeat says when the daemon pings its workers. It has no clock: the loop tells it
// the time, which never goes back.
//
// A worker that stops answering is killed, because it may hold what other clients wait
// for: a slot, device memory, or the turn on a software device. Only pings tell whether
// a worker is alive. That it does not let go of its device is no sign: a kernel on a
// real GPU may take minutes to end, and cannot be interrupted.
type heartbeat struct {
	interval time.Duration // 0: workers are never pinged
	due      time.Duration
}

// newHeartbeat begins with a ping at once.
func newHeartbeat(timeout time.Duration) (h heartbeat) {
	h.setTimeout(timeout)
	return h
}

// setTimeout chooses the interval such that a worker which stops is dead at the
// latest after the timeout: at worst it stops just after an answer, and then misses the
// pings of the next maxMissed intervals.
func (h *heartbeat) setTimeout(timeout time.Duration) { h.interval = timeout / (maxMissed + 1) }

// next is when tick has something to do.
func (h *heartbeat) next() (at time.Duration, ok bool) { return h.due, h.interval > 0 }

// tick says whether it is time for pings, and whether the last ones have had a fair
// chance to be answered. They have not if the tick comes late: then the machine slept,
// or the daemon did not get a processor, and probably the workers did not either. The
// next interval begins now, so that a daemon which was stopped for an hour does not
// tick for the whole hour at once.
func (h *heartbeat) tick(now time.Duration) (due, fair bool) {
	if h.interval == 0 || now < h.due {
		return false, false
	}
	fair = now-h.due < h.interval/2
	h.due = now + h.interval
	return true, fair
}

// pulse is what is known of whether one worker is alive.
type pulse struct {
	pinged uint64 // the number of the last ping to the worker
	ponged uint64 // the number of the last ping that it answered
	asked  uint64 // pinged as it was after the last beat
	heard  uint64 // ponged as it was after the last beat
	missed int    // fair intervals in a row without an answer
}

// beat ends an interval and begins the next, with a ping of the number that it returns.
// Any answer during the interval is a sign of life, even one to an earlier ping.
func (p *pulse) beat(fair bool) (ping uint64, alive bool) {
	switch {
	case p.ponged > p.heard || p.ponged >= p.asked:
		p.missed = 0
	case fair:
		p.missed++
	}
	p.pinged++
	p.asked, p.heard = p.pinged, p.ponged
	return p.pinged, p.missed < maxMissed
}

// nextBeat is when workers are pinged, if there are any.
func (r *rebuilder) nextBeat() (at time.Duration, ok bool) {
	at, ok = r.heart.next()
	return at, ok && len(r.clients) > 0
}

// checkWorkers pings the workers that have a client, if it is time, and kills
// those that have not answered for too long.
func (r *rebuilder) checkWorkers() {
	due, fair := r.heart.tick(r.loop.Now())
	if !due {
		return
	}
	r.checkLenders(fair)
	for _, c := range r.clients {
		if c.worker == nil || c.ending {
			continue
		}
		ping, alive := c.beat(fair)
		if !alive && c.isAway() && c.kept != nil {
			continue // it was killed (below), and is not quite gone
		}
		if !alive && c.isAway() && r.rescue(c) {
			c.why = "its worker did not come to the node that was started again"
			c.worker.Kill()
			continue
		}
		if !alive && c.isAway() {
			r.end(c, fmt.Sprintf("its worker has not come to the node within %v after the node was started again, and was killed: it had been stopped, or hung", r.settings.Load().WorkerTimeout), true)
			continue
		}
		if !alive {
			r.endWorker(c, fmt.Sprintf("its worker has not answered for %v and was killed: it had been stopped, or hung", r.settings.Load().WorkerTimeout))
			continue
		}
		c.worker.Post(control.Ping{Number: ping})
	}
}
