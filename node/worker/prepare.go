package worker

import (
	"errors"
	"log/slog"
	"os"

	"muster/device"
	"muster/node/worker/ownprocess"
	"muster/vmm"
	"muster/wire"
	"muster/wire/control"
)

// A worker may be told to prepare before it has a client: it opens a device, makes a context there
// and pins the memory that it will share with the program, while nobody waits for that. The driver
// needs 0.15 s for the context and 0.02 s for the memory. All else is as for any worker: process and
// memory have served nobody, and the worker becomes the client's user when the client comes (become).

// prepared is a device that was opened before there was a client, with a context that nobody uses
// yet. Only the loop uses it, once there is a client; nil where the worker did not prepare.
type prepared struct {
	config control.DeviceConfig
	device device.Device
	lock   *os.File // the device uses it
	shared *wire.Shared
	ring   *os.File // of shared
	taken  bool     // the worker has the device among its own
	gone   bool     // the context was given up, or is the client's
	ending bool     // it was given up, and is being closed beside the loop
}

// prepare opens a device, and makes a context there if the device can do that in advance. The files
// are those that come with Prepare.
func prepare(m control.Prepare, files []*os.File, open Open, log *slog.Logger) (*prepared, error) {
	ownprocess.UseMPS(m.MPS, m.Pace)
	lock, ring, arena := files[0], files[1], files[2]
	d, err := open(m.Device, lock)
	if err != nil {
		return nil, err
	}
	shared, err := mapShared(ring, arena, m.ArenaBase, log)
	if err != nil {
		return nil, err
	}
	if prepare := d.Can().Prepare; prepare != nil {
		if err := prepare(staged(shared)); err != nil {
			return nil, err
		}
	}
	arena.Close()
	return &prepared{config: m.Device, device: d, lock: lock, shared: shared, ring: ring}, nil
}

// staged is the part of the shared memory that is pinned in every context: the device copies
// directly from and to it. Memory that the program itself pinned is not part of it, since it may be
// large and unused; pinProgram pins it at its first copy.
func staged(shared *wire.Shared) []byte {
	geometry := shared.Geometry()
	return shared.Arena()[:geometry.Staging+geometry.Bounce]
}

// share returns the memory that was mapped in advance, which must be that of the client's ring; nil
// if none was.
func (p *prepared) share(ring *os.File) (*wire.Shared, error) {
	if p == nil {
		return nil, nil
	}
	is, err := p.ring.Stat()
	if err != nil {
		return nil, err
	}
	should, err := ring.Stat()
	if err == nil && !os.SameFile(is, should) {
		err = errors.New("the worker was prepared for another client")
	}
	p.ring.Close()
	return p.shared, err
}

// opens returns the function by which the worker opens its devices: the one that is open already is
// not opened again.
func (p *prepared) opens(open Open) Open {
	if p == nil {
		return open
	}
	return func(c control.DeviceConfig, lock *os.File) (device.Device, error) {
		if c == p.config && !p.taken {
			p.taken = true // one that is added later may be another, and has another lock
			return p.device, nil
		}
		return open(c, lock)
	}
}

// giveUp notes that the prepared context is given up, and returns the function that closes it.
func (p *prepared) giveUp(log *slog.Logger) func() {
	if p == nil || p.gone {
		return func() {}
	}
	p.gone = true
	return func() {
		if discard := p.device.Can().Discard; discard != nil {
			if err := discard(); err != nil {
				log.Debug("closing a context that was prepared", "error", err)
			}
		}
	}
}

// used says that the client opens a context on a device. If it is another than the prepared one, the
// prepared context is of no use to this client any more, and only takes memory; nobody waits for its
// end.
func (c *opener) used(place vmm.Place) {
	p := c.prepared
	if p == nil || p.gone {
		return
	}
	if c.devices.opened[place.Index()] == p.device {
		p.gone = true
		return
	}
	discard := p.giveUp(c.log)
	p.ending = true
	c.others.Go(func() {
		discard()
		c.mail.put(discarded{})
	})
}

// discarded tells the loop that the prepared context was closed beside it.
type discarded struct{ control.Forgo }

// forgo gives the prepared context back because the daemon needs its memory. The daemon gives that
// memory to others as soon as it hears Forgone: if the context is still being closed, it hears so
// when that has ended (discarded).
func (c *opener) forgo() {
	if p := c.prepared; p != nil && p.ending {
		return
	}
	c.prepared.giveUp(c.log)()
	c.mail.say(control.Forgone{})
}
