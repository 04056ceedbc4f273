package daemon

import (
	"fmt"
	"time"

	"muster/internal/units"
	"muster/wire/agent"
)

// The bounds of what a node reports at which the head's log has a notice. A notice is over at half of its
// bound, so that a node which stands at it does not fill the log.
const (
	fullNotice = 95          // percent of a device's memory
	waitNotice = time.Minute // for a device
	swapNotice = 1 << 30     // bytes a second, to devices and from them
)

// notices are the bounds that a node has crossed, as its agent reports. One goroutine uses them.
type notices struct {
	memory []int64 // of the node's devices
	given  map[string]bool
}

// devices takes in what devices the node has.
func (n *notices) devices(list []agent.Device) {
	n.memory = n.memory[:0]
	for i := range list {
		n.memory = append(n.memory, list[i].Memory)
	}
}

// of says which bounds a report crosses, and which notices are over: for each whether, and a sentence.
func (n *notices) of(l *agent.Load, say func(over bool, notice string)) {
	for i := range min(len(l.Used), len(n.memory)) {
		percent := int(int64(l.Used[i]) << 20 / max(1, n.memory[i]/100))
		n.cross(say, fmt.Sprintf("device %d is full", i), percent, fullNotice, fmt.Sprintf("%d %% of its memory is used", percent))
	}
	n.cross(say, "programs wait long for a device", int(l.Longest), int(waitNotice), fmt.Sprintf("%d wait, the first for %s or more", l.Waiting, units.FormatDuration(l.Longest)))
	moved := l.SwapIn + l.SwapOut
	n.cross(say, "programs displace each other", int(moved), swapNotice, units.BriefSize(moved)+" of their memory is moved a second")
}

func (n *notices) cross(say func(bool, string), what string, is, bound int, how string) {
	switch {
	case !n.given[what] && is >= bound:
		if n.given == nil {
			n.given = map[string]bool{}
		}
		n.given[what] = true
		say(false, what+": "+how)
	case n.given[what] && is < bound/2:
		delete(n.given, what)
		say(true, what)
	}
}
