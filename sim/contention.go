package sim

import (
	"math"
	"slices"

	"muster/model"
)

// sharedDevices models how jobs that share a device slow each other down. The device divides its
// time among them: if together they need more than all of its time, each computes longer by the
// factor by which the demand exceeds it. Jobs with whole devices are not recorded here.
type sharedDevices struct {
	// first is the index of each node's first device. first and devices are made when a job first
	// takes a share.
	first   []int32
	devices []sharedDevice
	changed []int32 // devices whose users changed since the last settlement
}

// sharedDevice is a device of which jobs have shares.
type sharedDevice struct {
	load    uint64  // sum over its users
	users   []int32 // slots of the network
	changed bool
}

// fullLoad is the load of a job that keeps its devices busy all the time. Loads are integers, so
// that their sums do not depend on the order of the jobs.
const fullLoad = 1_000_000

// hasShares says whether an allocation includes a share of a device.
func hasShares(a *model.Allocation) bool {
	for i := range a.Grants {
		if a.Grants[i].Memory > 0 {
			return true
		}
	}
	return false
}

// deviceShare is a device of which a job has a share, with the fraction of its time that the job
// needs.
type deviceShare struct {
	device int32 // where its programs are
	load   uint64
	bound  // of a job that nodes may bind elsewhere
}

// enter makes the job in slot s a user of the devices of which it has shares. loads are those of
// its grants; nil means the job's own load on all.
func (d *sharedDevices) enter(c *model.Cluster, s int32, u *sharer, a *model.Allocation, loads []float64) {
	d.prepare(c)
	load := u.job.GPULoad()
	for i, g := range a.Grants {
		if g.Memory == 0 {
			continue
		}
		if loads != nil {
			load = loads[i]
		}
		k, millionths := d.first[g.Node]+g.Device, uint64(max(1, math.Round(load*fullLoad)))
		u.shares = append(u.shares, deviceShare{device: k, load: millionths, bound: bound{home: k, memory: g.Memory, fresh: true}})
		d.devices[k].users = append(d.devices[k].users, s)
		d.devices[k].load += millionths
		d.touch(k)
	}
}

func (d *sharedDevices) prepare(c *model.Cluster) {
	if d.first != nil {
		return
	}
	d.first = make([]int32, len(c.Nodes))
	sum := int32(0)
	for i := range c.Nodes {
		d.first[i] = sum
		sum += int32(len(c.Nodes[i].GPUs))
	}
	d.devices = make([]sharedDevice, sum)
}

// leave ends the job's use of its devices.
func (d *sharedDevices) leave(s int32, u *sharer) {
	for _, share := range u.shares {
		d.quit(s, share.device, share.load)
	}
}

// quit ends the use of one device.
func (d *sharedDevices) quit(s, k int32, load uint64) {
	dev := &d.devices[k]
	dev.load -= load
	at := slices.Index(dev.users, s)
	last := len(dev.users) - 1
	dev.users[at] = dev.users[last]
	dev.users = dev.users[:last]
	d.touch(k)
}

func (d *sharedDevices) touch(k int32) {
	if !d.devices[k].changed {
		d.devices[k].changed = true
		d.changed = append(d.changed, k)
	}
}

// settle recomputes the crowding of the users of changed devices. It calls move for those whose
// crowding changed, and for those that have just entered.
func (d *sharedDevices) settle(users []sharer, move func(slot int32)) {
	for _, k := range d.changed {
		d.devices[k].changed = false
		for _, s := range d.devices[k].users {
			u := &users[s]
			crowding := uint64(fullLoad)
			if u.movable {
				crowding = d.slowness(u)
			} else {
				for _, own := range u.shares {
					crowding = max(crowding, d.devices[own.device].load)
				}
			}
			if crowding != u.crowding || u.total < 0 || u.owed > 0 {
				u.crowding = crowding
				move(s)
			}
		}
	}
	d.changed = d.changed[:0]
}
