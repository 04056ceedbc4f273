package wire

import "sync/atomic"

// The queues of programs whose launches are mapped lie behind the sections of Precedence: for each
// device so many places, each a process (u32) and how many launches of it are on the device (u32). Behind
// them is a word (u32) for each device: how many of its places, from the first, were ever used.
// Mappers read there what others have queued at this moment. A worker that lies can make others
// avoid a device, or crowd on one; so much is true of one that is busy. A place without a process
// counts as empty, so whoever buries a process clears that word alone: the place may be another
// process's by the time that a burier, who was stopped meanwhile, goes on.
const (
	queuePlaces = 32
	queueSize   = 8
	queuesAt    = sectionSize * MaxPrecedence
	everUsedAt  = queuesAt + queuePlaces*queueSize*MaxPrecedence
	queues      = (queuePlaces*queueSize + 4) * MaxPrecedence

	// maxQueued bounds what a process is believed to have on a device.
	maxQueued = 1 << 16
)

// Queue is the place of one process on one device. The process keeps the count itself and only writes
// it there, so that nothing that others write is left when it changes next.
type Queue struct {
	owner, queued *uint32
	pid           uint32
	count         int
}

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
				q := &Queue{owner: owner, queued: p.queued(device, i), pid: uint32(pid)}
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

// KeepQueues empties the places of all processes but those of which keep says so. The daemon calls it,
// which knows the workers: a number of a process that has ended may be that of another process by now,
// and a worker that lies may have taken every place, in the names of processes that never end.
func (p *Precedence) KeepQueues(keep func(pid int) bool) {
	for device := range MaxPrecedence {
		for i := range queuePlaces {
			owner := p.queueOwner(device, i)
			if pid := atomic.LoadUint32(owner); pid != 0 && !keep(int(pid)) {
				atomic.CompareAndSwapUint32(owner, pid, 0)
			}
		}
	}
}

// QueuedBy is how many launches other processes than one have on a device. It costs what the most
// processes were that had a place there at a time.
func (p *Precedence) QueuedBy(device, but int) int {
	sum := 0
	for i := range min(int(atomic.LoadUint32(p.everUsed(device))), queuePlaces) {
		n := atomic.LoadUint32(p.queued(device, i))
		if n == 0 {
			continue
		}
		if owner := atomic.LoadUint32(p.queueOwner(device, i)); owner != 0 && owner != uint32(but) {
			sum += int(min(n, maxQueued))
		}
	}
	return sum
}

// Add changes how many launches the process has on the device. The caller must not call it, or Leave,
// at the same time from several goroutines. A place that was taken for that of a dead process, since
// the system uses numbers of processes again, is taken back if nobody else has it.
func (q *Queue) Add(n int) {
	if q == nil {
		return
	}
	q.count = max(0, q.count+n)
	if owner := atomic.LoadUint32(q.owner); owner == q.pid || owner == 0 && atomic.CompareAndSwapUint32(q.owner, 0, q.pid) {
		atomic.StoreUint32(q.queued, uint32(min(q.count, maxQueued)))
	}
}

// Leave gives the place back.
func (q *Queue) Leave() {
	if q != nil {
		atomic.CompareAndSwapUint32(q.owner, q.pid, 0)
	}
}

func (p *Precedence) everUsed(device int) *uint32 { return p.u32(everUsedAt + 4*device) }

func (p *Precedence) queueOwner(device, place int) *uint32 {
	return p.u32(queuesAt + (device*queuePlaces+place)*queueSize)
}

func (p *Precedence) queued(device, place int) *uint32 {
	return p.u32(queuesAt + (device*queuePlaces+place)*queueSize + 4)
}
