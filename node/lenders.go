package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"

	"muster/node/vgpu"
)

// A lender that is stopped, or hangs, ends no connection: the programs on its device would wait for
// ever. So the daemon greets the lenders whose devices are used, as often as it pings workers. If a
// lender stays silent for as many intervals as a worker may, its device is lost and the programs
// are rebuilt elsewhere. Only silence counts: a lender that refuses a greeting is alive, and broken
// connections are noticed by the workers.

// greeting is a greeting that a lender has not answered yet.
type greeting struct {
	change uint64 // of the inventory entry that it is for
	asked  bool   // it is under way
	missed int    // fair intervals since it began
}

// checkLenders greets the lenders of devices that are used, and gives up those that are silent. It
// is called when an interval has just ended; fair says whether that interval counts
// (heartbeat.tick).
func (d *daemon) checkLenders(fair bool) {
	maps.DeleteFunc(d.greetings, func(id vgpu.DeviceID, g *greeting) bool {
		e := &d.stock.Load().entries[id]
		return !e.here || e.change != g.change
	})
	for i := range d.stock.Load().entries {
		id, e := vgpu.DeviceID(i), d.stock.Load().entries[i]
		if e.Kind != KindRemote || !e.here {
			continue
		}
		g := d.greetings[id]
		if g == nil {
			if v, ok := d.core.Device(id); !ok || v.Used == 0 {
				continue
			}
			g = &greeting{change: e.change}
			d.greetings[id] = g
		} else if fair {
			g.missed++
		}
		if g.missed >= maxMissed {
			delete(d.greetings, id)
			d.loseSilent(id, fmt.Sprintf("its node has not answered for %v: it has stopped, or hangs", d.live().WorkerTimeout))
			continue
		}
		d.greet(id, g, e)
	}
}

// loseSilent takes away a device whose lender is silent. The workers that use it may be waiting for
// an answer of the lender, and would not read a message: they are killed, and their clients
// rebuilt.
func (d *daemon) loseSilent(id vgpu.DeviceID, why string) {
	var there []*client
	for _, c := range d.clients {
		if c.worker != nil && !c.ending && (c.device == id || c.loans[id] != nil) {
			there = append(there, c)
		}
	}
	d.lose(id, why)
	d.lookFor(int(id))
	for _, c := range there {
		c.why, c.blames = fmt.Sprintf("device %d is gone: %s", id, why), int(id)+1
		c.worker.kill()
	}
}

// greet asks a lender for a sign of life.
func (d *daemon) greet(id vgpu.DeviceID, g *greeting, e stocked) {
	if g.asked {
		return
	}
	g.asked = true
	go func() { // not in handlers: a shutdown need not wait for it
		opened, err := d.opts.Open(e.DeviceConfig)
		d.do(func() {
			if now := &d.stock.Load().entries[id]; err == nil && now.here && now.change == e.change {
				d.heardLoad(id, opened)
			}
			if g.asked = false; !isSilence(err) && d.greetings[id] == g {
				delete(d.greetings, id)
			}
		})
	}()
}

// isSilence says whether an error is that nothing was heard for too long.
func isSilence(err error) bool {
	var network net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) && network.Timeout()
}
