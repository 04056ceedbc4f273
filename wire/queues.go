package wire

import "sync/atomic"

// The queues of programs whose launches are mapped lie behind the sections of Precedence: for each
// device so many places, each a process (u32) and how many launches of it are on the device (u32). Behind
// them is a word (u32) for each device: how many of its places, from the first, were ever used.
// Mappers read there what others have queued at this moment. A worker that lies can make others
// avoid a device, or crowd on one; so much is true of one that is busy.
const (
	queuePlaces = 32
	queueSize   = 8
	queuesAt    = sectionSize * MaxPrecedence
	everUsedAt  = queuesAt + queuePlaces*queueSize*MaxPrecedence
	queues      = (queuePlaces*queueSize + 4) * MaxPrecedence

	// maxQueued bounds what a process is believed to have on a device.
	maxQueued = 1 << 16
)

// Queue is the place of one process on one device.
type Queue struct{ owner, queued *uint32 }

// Queue gives a process a place on a device; nil if there is none left: then others do not know what it
// has there.
func (p *Precedence) Queue(device, pid int) *Queue {
	if device < 0 || device >= MaxPrecedence {
		return nil
	}
	for _, bury := range []bool{false, true} {
		for i := range queuePlaces {
			owner := p.queueOwner(device, i)
			if bury {
				p.buryQueue(device, i)
			}
			if atomic.CompareAndSwapUint32(owner, 0, uint32(pid)) {
				p.use(device, i+1)
				q := &Queue{owner, p.queued(device, i)}
				atomic.StoreUint32(q.queued, 0)
				return q
			}
		}
	}
	return nil
}

// use notes that so many places of a device have been used.
func (p *Precedence) use(device, places int) {
	for most := p.everUsed(device); ; {
		was := atomic.LoadUint32(most)
		if was >= uint32(places) || atomic.CompareAndSwapUint32(most, was, uint32(places)) {
			return
		}
	}
}

// buryQueue empties the place of a process that no longer exists.
func (p *Precedence) buryQueue(device, place int) {
	owner := p.queueOwner(device, place)
	if pid := atomic.LoadUint32(owner); pid != 0 && isDead(pid) {
		atomic.StoreUint32(p.queued(device, place), 0)
		atomic.CompareAndSwapUint32(owner, pid, 0)
	}
}

// BuryQueues empties the places of processes that no longer exist, on all devices.
func (p *Precedence) BuryQueues() {
	for device := range MaxPrecedence {
		for i := range queuePlaces {
			p.buryQueue(device, i)
		}
	}
}

// QueuedBy is how many launches other processes than one have on a device. It costs what the most
// processes were that had a place there at a time.
func (p *Precedence) QueuedBy(device, but int) int {
	sum := 0
	for i := range min(int(atomic.LoadUint32(p.everUsed(device))), queuePlaces) {
		if n := atomic.LoadUint32(p.queued(device, i)); n != 0 && atomic.LoadUint32(p.queueOwner(device, i)) != uint32(but) {
			sum += int(min(n, maxQueued))
		}
	}
	return sum
}

// Add changes how many launches the process has on the device. Several goroutines may call it.
func (q *Queue) Add(n int) {
	if q != nil {
		atomic.AddUint32(q.queued, uint32(int32(n)))
	}
}

// Leave gives the place back.
func (q *Queue) Leave() {
	if q != nil {
		atomic.StoreUint32(q.queued, 0)
		atomic.StoreUint32(q.owner, 0)
	}
}

func (p *Precedence) everUsed(device int) *uint32 { return p.u32(everUsedAt + 4*device) }

func (p *Precedence) queueOwner(device, place int) *uint32 {
	return p.u32(queuesAt + (device*queuePlaces+place)*queueSize)
}

func (p *Precedence) queued(device, place int) *uint32 {
	return p.u32(queuesAt + (device*queuePlaces+place)*queueSize + 4)
}
