package model

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
)

// The environment variables that tell a program which devices it has, as rCUDA reads them.
const (
	deviceCount  = "RCUDA_DEVICE_COUNT"
	devicePrefix = "RCUDA_DEVICE_"
)

// Device identifies a GPU of a cluster.
type Device struct {
	Node, Device int32
}

// DevicesOf lists the devices that serve one part of the allocation: those of its own node first,
// by index, then the others in the order of the grants.
func (a *Allocation) DevicesOf(part int) []Device {
	p := &a.Parts[part]
	var list []Device
	own := p.GPUs
	for _, g := range a.Grants {
		if int(g.For) == part && g.Node == p.Node {
			own |= 1 << g.Device
		}
	}
	for ; own != 0; own &= own - 1 {
		list = append(list, Device{p.Node, int32(bits.TrailingZeros64(own))})
	}
	for _, g := range a.Grants {
		if int(g.For) == part && g.Node != p.Node {
			list = append(list, Device{g.Node, g.Device})
		}
	}
	return list
}

// Devices lists the devices of the whole allocation: those of its own nodes first, in node order,
// then the others in the order of the grants. A device that serves two parts is listed once.
func (a *Allocation) Devices() []Device {
	var own, others []Device
	seen := map[Device]bool{}
	hosts := make(map[int32]bool, len(a.Parts))
	for i := range a.Parts {
		hosts[a.Parts[i].Node] = true
	}
	for i := range a.Parts {
		for _, d := range a.DevicesOf(i) {
			switch {
			case seen[d]:
				continue
			case hosts[d.Node]:
				own = append(own, d)
			default:
				others = append(others, d)
			}
			seen[d] = true
		}
	}
	slices.SortStableFunc(own, func(a, b Device) int { return cmp.Compare(a.Node, b.Node) })
	return append(own, others...)
}

// DeviceEnvironment is the part of a process's environment that describes its devices:
// RCUDA_DEVICE_COUNT, and RCUDA_DEVICE_0 and so on as NODE:DEVICE. It is for the processes on one
// part or, if part is -1, for the whole job, as a batch script sees it. A part without devices gets
// a count of 0.
func (a *Allocation) DeviceEnvironment(c *Cluster, part int) []string {
	devices := a.Devices()
	if part >= 0 {
		devices = a.DevicesOf(part)
	}
	return c.DeviceEnvironment(devices)
}

// DeviceEnvironment is the part of a process's environment that describes these devices.
func (c *Cluster) DeviceEnvironment(devices []Device) []string {
	env := make([]string, 0, 1+len(devices))
	env = append(env, fmt.Sprintf("%s=%d", deviceCount, len(devices)))
	for i, d := range devices {
		env = append(env, fmt.Sprintf("%s%d=%s:%d", devicePrefix, i, c.Nodes[d.Node].Name, d.Device))
	}
	return env
}
