package sim

import (
	"math"
	"slices"

	"muster/model"
)

// sharedDevices tells how much the jobs that share a device slow each other
// down. The device divides its time among them: while they need more of it than
// there is, each computes as many times longer as they need too much. Whole
// devices are not here.
type sharedDevices struct {
	// first is the number of each node's first device. It is made, and so are the
	// devices, when a job first takes a share.
	first   []int32
	devices []sharedDevice
	changed []int32 // devices that a user has joined or left since the last settlement
}

// sharedDevice is a device of which jobs have shares.
type sharedDevice struct {
	load    uint64  // of all its users
	users   []int32 // slots of the network
	changed bool
}

// fullLoad is the load of a job that keeps its devices busy all the time.
// Loads are integers, so that sums do not depend on the order of the jobs.
const fullLoad = 1_000_000

// hasShares says whether an allocation has a part of a device.
func hasShares(a *model.Allocation) bool {
	for i := range a.Grants {
		if a.Grants[i].Memory > 0 {
			return true
		}
	}
	return false
}

// deviceShare is a device of which a job has a share, and how much of its time the job needs.
type deviceShare struct {
	device int32
	load   uint64
}

// enter makes the job in slot s a user of the devices that it has shares of. loads are
// those of its grants; nil for that of the job.
func (d *sharedDevices) enter(c *model.Cluster, s int32, u *sharer, a *model.Allocation, loads []float64) {
	if d.first == nil {
		d.first = make([]int32, len(c.Nodes))
		sum := int32(0)
		for i := range c.Nodes {
			d.first[i] = sum
			sum += int32(len(c.Nodes[i].GPUs))
		}
		d.devices = make([]sharedDevice, sum)
	}
	load := u.job.GPULoad()
	for i, g := range a.Grants {
		if g.Memory == 0 {
			continue
		}
		if loads != nil {
			load = loads[i]
		}
		k, millionths := d.first[g.Node]+g.Device, uint64(max(1, math.Round(load*fullLoad)))
		u.shares = append(u.shares, deviceShare{k, millionths})
		d.devices[k].users = append(d.devices[k].users, s)
		d.devices[k].load += millionths
		d.touch(k)
	}
}

// leave ends the job's use of its devices.
func (d *sharedDevices) leave(s int32, u *sharer) {
	for _, share := range u.shares {
		k := share.device
		dev := &d.devices[k]
		dev.load -= share.load
		at := slices.Index(dev.users, s)
		last := len(dev.users) - 1
		dev.users[at] = dev.users[last]
		dev.users = dev.users[:last]
		d.touch(k)
	}
}

func (d *sharedDevices) touch(k int32) {
	if !d.devices[k].changed {
		d.devices[k].changed = true
		d.changed = append(d.changed, k)
	}
}

// settle works out anew how crowded the users of changed devices are, and calls
// move for those that are slower or faster for it, and for those that have just come.
func (d *sharedDevices) settle(users []sharer, move func(slot int32)) {
	for _, k := range d.changed {
		d.devices[k].changed = false
		for _, s := range d.devices[k].users {
			u := &users[s]
			crowding := uint64(fullLoad)
			for _, own := range u.shares {
				crowding = max(crowding, d.devices[own.device].load)
			}
			if crowding != u.crowding || u.total < 0 {
				u.crowding = crowding
				move(s)
			}
		}
	}
	d.changed = d.changed[:0]
}
