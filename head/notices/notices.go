// Package notices says what of a node's reports people should know: it has the bounds of what nodes report,
// and keeps which of them each node has crossed. It knows neither the head nor its log.
package notices

import (
	"fmt"
	"slices"
	"time"

	"muster/internal/units"
	"muster/wire/agent"
)

// bound is a value of a report at which a node gets a notice. The notice ends below half of it, so that a node
// which stands at the bound does not come and go.
type bound struct {
	name string
	at   int64
	// is is the value, and text what it means. Device is 0 unless the bound is each device's own.
	is   func(l *agent.Load, memory []int64, device int) int64
	text func(l *agent.Load, device int, is int64) string
	each bool
}

// bounds are all there are.
var bounds = []bound{
	{
		name: "gpu-memory", at: 95, each: true,
		is: func(l *agent.Load, memory []int64, device int) int64 { return percent(l.Used[device], memory[device]) },
		text: func(_ *agent.Load, device int, is int64) string {
			return fmt.Sprintf("%d %% of the memory of GPU %d is used", is, device)
		},
	},
	{
		name: "wait", at: int64(time.Minute),
		is: func(l *agent.Load, _ []int64, _ int) int64 { return int64(l.Longest) },
		text: func(l *agent.Load, _ int, is int64) string {
			return fmt.Sprintf("%d waiting for a GPU, the first for %s or more", l.Waiting, units.FormatDuration(time.Duration(is)))
		},
	},
	{
		name: "swap", at: 1 << 30, // bytes a second, to devices and from them
		is: func(l *agent.Load, _ []int64, _ int) int64 { return int64(l.SwapIn + l.SwapOut) },
		text: func(_ *agent.Load, _ int, is int64) string {
			return units.BriefSize(uint64(is)) + " of programs' memory is swapped per second"
		},
	},
}

// percent is how much of a device's memory some MiB are.
func percent(mebibytes int, memory int64) int64 { return int64(mebibytes) << 20 / max(1, memory/100) }

// Notice is a bound that a node has crossed.
type Notice struct {
	Name   string // of the bound
	Device int    // whose bound it is, unless it is the node's
	Text   string // the value now, in words
	Since  time.Duration
}

// Change is a notice that a node has from now on, or has no more.
type Change struct {
	Node string
	Over bool
	Notice
}

// Standing are the notices of a node. The zero value has none.
type Standing struct{ list []standing }

type standing struct {
	bound, device int
	since         time.Duration
}

// Heard takes in a report of a node, whose devices have so much memory, and returns the notices that begin and end.
func (s *Standing) Heard(now time.Duration, node string, l *agent.Load, memory []int64) (changes []Change) {
	for b := range bounds {
		for device := range reported(&bounds[b], l, memory) {
			is := bounds[b].is(l, memory, device)
			at := slices.IndexFunc(s.list, func(o standing) bool { return o.bound == b && o.device == device })
			var one standing
			switch {
			case at < 0 && is >= bounds[b].at:
				one = standing{b, device, now}
				s.list = append(s.list, one)
			case at >= 0 && is < bounds[b].at/2:
				one = s.list[at]
				s.list = slices.Delete(s.list, at, at+1)
			default:
				continue
			}
			changes = append(changes, Change{Node: node, Over: at >= 0, Notice: one.notice(l, memory)})
		}
	}
	return changes
}

// reported is how many values of a bound a report has.
func reported(b *bound, l *agent.Load, memory []int64) int {
	if b.each {
		return min(len(l.Used), len(memory))
	}
	return 1
}

func (o standing) notice(l *agent.Load, memory []int64) Notice {
	b := &bounds[o.bound]
	return Notice{Name: b.name, Device: o.device, Text: b.text(l, o.device, b.is(l, memory, o.device)), Since: o.since}
}

// List is the notices of a node whose last report is given.
func (s *Standing) List(l *agent.Load, memory []int64) (list []Notice) {
	for _, o := range s.list {
		if o.device < reported(&bounds[o.bound], l, memory) {
			list = append(list, o.notice(l, memory))
		}
	}
	return list
}
