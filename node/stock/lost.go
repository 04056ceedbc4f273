package stock

import (
	"errors"
	"fmt"
	"time"

	"muster/device"
	"muster/node/refusal"
	"muster/node/vgpu"
	"muster/node/workers"
	"muster/wire"
)

const lookAgain = 5 * time.Second // at devices that are lost

// Lose notes that a device is gone, with everything that was on it, and looks for it until it is back or
// has been replaced.
func (s *Stock) Lose(id vgpu.DeviceID, why string) {
	e := s.Load().Entries[id]
	if !e.Here {
		return
	}
	s.Log.Error("a device is lost", s.about(id, "reason", why)...)
	e.Here = false
	s.set(id, e, why)
	s.dispatcher.Step(vgpu.Lost{Device: id})
	s.lookFor(id)
}

// Suspect has a device probed that a worker says is gone. If the probe fails, all
// clients lose the device.
func (s *Stock) Suspect(number int, why string) {
	stock := s.Load()
	if number < 0 || number >= len(stock.Entries) || !stock.Entries[number].Here || s.probing[number] != nil {
		return
	}
	known := make(chan struct{})
	s.probing[number] = known
	id, e := vgpu.DeviceID(number), stock.Entries[number]
	go func() {
		_, err := s.Probe(e.DeviceConfig, e.Lock)
		s.loop.Do(func() {
			defer close(known)
			delete(s.probing, number)
			now := s.Load().Entries[number]
			switch {
			case errors.Is(err, workers.ErrNotTried):
				s.Log.Warn("a worker says that a device is gone, which cannot be tried", s.about(id, "reason", why, "error", err)...)
			case err == nil:
				s.Log.Warn("a worker says that a device is gone, which is there for others", s.about(id, "reason", why)...)
			case now.Here && now.Change == e.Change:
				s.Lose(id, fmt.Sprintf("%s; tried again: %v", why, err))
			}
		})
	}()
}

// Suspected is closed when it is known whether a device is gone; nil if nobody says so.
func (s *Stock) Suspected(number int) <-chan struct{} { return s.probing[number] }

// lookFor probes a lost device every lookAgain, until it is back or has been replaced. If a lender says that a
// grant is over, programs that may run on its device alone are told.
func (s *Stock) lookFor(id vgpu.DeviceID) {
	e := s.Load().Entries[id]
	if e.IsLent() {
		return // its ticket has ended: what is borrowed next is another device
	}
	time.AfterFunc(lookAgain, func() {
		if s.Closing() {
			return
		}
		var err error
		if !e.Lender.Granted { // else there is no hardware of this node to try
			_, err = s.Probe(e.DeviceConfig, e.Lock)
		}
		var info device.Info
		if err == nil { // if it was missing when the daemon started, nothing is known of it yet
			info, err = s.Examine(e.Device)
		}
		s.loop.Do(func() {
			now := s.Load().Entries[id]
			switch {
			case now.Here || now.Change != e.Change || s.dispatcher.State(id) != vgpu.DeviceLost: // it was resumed, replaced or removed meanwhile
			case err != nil:
				if refused := (*wire.Refused)(nil); e.Lender.Granted && errors.As(err, &refused) && refused.Result == refusal.NotPermitted {
					s.programs.Refused(id, refused.Reason)
				}
				s.lookFor(id)
			default:
				s.Log.Info("a device that was lost is there again", s.about(id)...)
				now.Here, now.Info = true, info
				s.set(id, now, "")
				s.dispatcher.Step(vgpu.Returned{Device: id, Is: now.Dispatched(s.Slots())})
			}
		})
	})
}

// A node takes a GPU's memory for its own, less the reserve. It cannot know of processes that use
// the GPU without it, such as programs that reach the driver directly, or another node: what those
// hold, workers are refused by the driver, in the middle of a program. So a node that starts looks
// what each GPU has free, and warns its administrator.

// LookForNeighbours looks for memory of NVIDIA GPUs that processes hold which are not the node's.
// It returns at once: a context takes a while to open, and programs need not wait for that.
func (s *Stock) LookForNeighbours() {
	for i, e := range s.Load().Entries {
		if e.Kind != "cuda" || !e.Here { // other devices are this node's alone
			continue
		}
		go func() {
			found, err := s.Probe(e.DeviceConfig, e.Lock)
			if err != nil {
				return // if it is gone, the first worker that needs it says so
			}
			s.loop.Do(func() {
				v, ok := s.dispatcher.Device(vgpu.DeviceID(i))
				if !ok {
					return
				}
				own := v.Memory - min(v.Memory, v.Free) + e.Info.ContextCost
				if held := heldByOthers(found.Total, found.Free, own); held > e.Reserve+found.Total/neighbourly {
					s.Log.Warn("other processes hold memory of a device which this node takes for its own: programs may be refused memory there; end those processes, or leave them their part (reserve)",
						"device", i, "name", e.Info.Name, "held_bytes", held, "reserve_bytes", e.Reserve)
				}
			})
		}()
	}
}

// neighbourly is the part of a device's memory, as 1/n, that others may hold without a warning:
// what the driver takes for itself is not known exactly.
const neighbourly = 16

// heldByOthers is how much of a device's memory is neither free nor the node's own.
func heldByOthers(total, free, own uint64) uint64 {
	used := total - min(total, free)
	return used - min(used, own)
}
