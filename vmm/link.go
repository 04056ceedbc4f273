package vmm

import (
	"cmp"
	"slices"
)

// Link is how many bytes go from one place to another.
type Link struct {
	From, To Place
	Bytes    uint64
}

// Links returns how many bytes a plan copies between which places, each pair once, in the order of
// the plan. Bytes that the plan copies out of one device and into another count as going between
// the two devices, also if they pass through the host.
func (p Plan) Links() []Link {
	var outs []Step // each chunk is copied out once
	for _, step := range p {
		if step.Op == CopyOut {
			outs = append(outs, step)
		}
	}
	slices.SortFunc(outs, func(a, b Step) int { return cmp.Compare(a.Range.Addr, b.Range.Addr) })
	left := make([]uint64, len(outs)) // bytes of each that stay on the host
	for i := range outs {
		left[i] = outs[i].Range.Size
	}
	var links []Link
	for _, step := range p {
		if step.Op == CopyAcross {
			links = addLink(links, Link{step.From, step.Device, step.Range.Size})
		}
		if step.Op != CopyIn {
			continue
		}
		fromHost, end := step.Range.Size, step.Range.end()
		i, _ := slices.BinarySearchFunc(outs, step.Range.Addr, func(s Step, addr uint64) int {
			if s.Range.end() <= addr {
				return -1
			}
			return 1
		})
		for ; i < len(outs) && outs[i].Range.Addr < end; i++ {
			both := min(end, outs[i].Range.end()) - max(step.Range.Addr, outs[i].Range.Addr)
			fromHost -= both
			left[i] -= min(left[i], both)
			links = addLink(links, Link{outs[i].Device, step.Device, both})
		}
		links = addLink(links, Link{Host, step.Device, fromHost})
	}
	for i := range outs {
		links = addLink(links, Link{outs[i].Device, Host, left[i]})
	}
	return links
}

// addLink adds bytes to the link between two places.
func addLink(links []Link, more Link) []Link {
	if more.Bytes == 0 {
		return links
	}
	for i := range links {
		if links[i].From == more.From && links[i].To == more.To {
			links[i].Bytes += more.Bytes
			return links
		}
	}
	return append(links, more)
}
