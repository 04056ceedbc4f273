package auction

import (
	"math"
	"math/bits"

	"muster/policy/winner"
)

// Class is how a bid's nodes were chosen.
type Class uint8

// The classes of bids. A, B and C are the paper's.
const (
	Aligned   Class = iota // A: one block, at the beginning or the end of a nodeset
	Inside                 // B: one block elsewhere in a nodeset
	Joined                 // C: several blocks, from nodesets that follow each other
	Slurm                  // the nodes that Slurm's own selection would take
	Placed                 // a first fit, for requests that the classes do not cover
	AnyOfThem              // any count of all suitable nodes: IPSCHED
)

func (c Class) String() string {
	return [...]string{"A", "B", "C", "slurm", "place", "any"}[c]
}

// weights are the constants of Table 3 of the paper, in quarters: of the class,
// of the nodes, and of the nodesets.
type weights struct{ class, nodes, sets int64 }

// tableThree has a row for jobs that ask for cores only (type 1), and one for
// those that name their nodes (types 2 and 3).
var tableThree = [2][3]weights{
	{{0, 1, 0}, {1, 1, 0}, {2, 1, 1}},
	{{0, 0, 0}, {2, 0, 0}, {2, 0, 2}},
}

// preferences computes eq. 12 in integers, in units of 1/whole.
type preferences struct {
	nodes, sets int64 // the number of nodes, and of nodesets, each plus 1
	whole       int64
}

func preferencesOf(nodes, sets int) preferences {
	p := preferences{nodes: int64(nodes) + 1, sets: int64(sets) + 1}
	p.whole = 4 * p.nodes * p.sets
	return p
}

// of is the preference of a bid on this number of nodes from this number of
// nodesets. It is above 0.
func (p *preferences) of(c Class, spread bool, nodes, sets int) int64 {
	row := 1
	if spread {
		row = 0
	}
	var w weights
	switch c {
	case Aligned, Inside, Joined:
		w = tableThree[row][c]
	case Placed:
		// As much as a bid of the paper on the same nodes.
		w = tableThree[row][Inside]
		if sets > 1 {
			w = tableThree[row][Joined]
		}
		sets = min(sets, int(p.sets)-1)
	case AnyOfThem:
		w = tableThree[row][Aligned]
	case Slurm:
	}
	return p.whole - w.class*p.nodes*p.sets - w.nodes*int64(nodes)*p.sets - w.sets*int64(sets)*p.nodes
}

// mostValue is the solver's limit for the sum of all values that can win
// together.
const mostValue = float64(winner.MaxTotal)

// scale turns priorities and preferences into integer values such that no sum
// of preferences outweighs a difference of priorities.
type scale struct {
	factor int64  // the value of one unit of priority
	whole  int64  // the value of a preference of 1
	from   int64  // the unit in which preferences are given
	shift  uint   // the number of low bits dropped from priorities that are too large
	base   uint64 // subtracted from priorities, so that all count at least 1
}

// scaleFor finds the scale for these jobs. priorities is in the order of the
// queue, largest first; whole is a preference of 1. While the values are too
// large for the solver, it makes preferences coarser, but not below fineEnough;
// then it drops bits of priorities; then it makes preferences coarser again. It
// always ends: in the extreme every bid is worth 1.
func scaleFor(priorities []int64, whole int64) scale {
	n := int64(len(priorities))
	least := priorities[n-1]
	s := scale{from: whole, whole: whole}
	if least <= 0 {
		s.base = uint64(least) - 1 // so that the least counts 1
	}
	for {
		sum := 0.0
		for _, p := range priorities {
			sum += float64(s.weight(p))
		}
		s.factor = n*s.whole + 1
		switch {
		case (sum+1)*float64(s.factor) < mostValue: // the +1 covers the preferences, whose sum is below one factor
			return s
		case s.whole > fineEnough:
			s.whole = max(fineEnough, s.whole/8)
		case sum > float64(n)*float64(s.whole):
			s.shift++
		default: // priorities are coarser than preferences: make these coarser
			s.whole /= 2
		}
	}
}

// fineEnough is the resolution that preferences keep as long as priorities have
// bits to drop.
const fineEnough = 1000

// weight is what a priority counts: at least 1.
func (s *scale) weight(priority int64) uint64 {
	above := uint64(priority) - s.base
	if above == 0 {
		above = math.MaxUint64 // it wrapped around: the difference is 1<<64
	}
	return max(1, above>>s.shift)
}

// value is the value of a bid with this preference.
func (s *scale) value(priority, preference int64) int64 {
	f := preference
	if s.whole != s.from {
		high, low := bits.Mul64(uint64(preference), uint64(s.whole))
		f64, _ := bits.Div64(high, low, uint64(s.from))
		f = int64(f64)
	}
	return int64(s.weight(priority))*s.factor + f
}
