package noderuntime

import (
	"fmt"
	"strings"
	"time"
)

// card is a GPU of the paper.
type card struct {
	name   string
	cores  int
	clock  float64 // GHz; only the C2050's is in the text, the others' are the cards' own
	memory float64 // GiB
}

var (
	c2050      = card{"C2050", 14 * 32, 1.15, 3}
	c1060      = card{"C1060", 30 * 8, 1.30, 4}
	quadro2000 = card{"Quadro 2000", 4 * 48, 1.25, 1}
	gtx480     = card{"GTX 480", 15 * 32, 1.40, 1}
)

// power is how fast a card is, relative to the C2050.
func (c card) power() float64 {
	return float64(c.cores) * c.clock / (float64(c2050.cores) * c2050.clock)
}

// pcie is bytes a second over PCI Express 2.0 with 16 lanes, as programs get it.
const pcie = 5e9

// scale is by how much an experiment is smaller than the paper's.
type scale struct {
	// rate is how many operations a second a C2050 does. It is far below what a
	// processor of this machine does, so that all devices together take a part of the
	// machine and each of them really is what its users wait for.
	rate   float64
	time   float64 // a second of the paper's takes about so long
	memory float64 // bytes here for a byte of the paper's
	copies float64 // bytes a second
}

// The scales. The time follows from what the programs compute and from the rate. Memory
// shrinks more than time where it moves, since moving it costs real time; the bandwidth
// follows from both.
var (
	short = proportional(2e8, 1.0/20, 1.0/48)    // short programs
	long  = proportional(3e8, 1.0/150, 1.0/256)  // long ones whose memory is in conflict
	moved = proportional(2e8, 1.0/50, 1.0/64)    // long ones whose memory is not
	multi = scale{1e8, 1.0 / 10, 1.0 / 16, pcie} // of several processes; their memory is small and stays as it is
)

func proportional(rate, time, memory float64) scale {
	return scale{rate, time, memory, pcie * memory / time}
}

const granule = 2 << 20 // of device memory

// bytes is the memory that stands for a card's.
func (s scale) bytes(c card) uint64 {
	return max(2, uint64(c.memory*(1<<30)*s.memory/granule)) * granule
}

func (s scale) rateOf(c card) float64 { return s.rate * c.power() }

// devices is what a node is told to stand for cards. Of their speeds it only matters
// how they compare.
func (s scale) devices(cards ...card) string {
	var list []string
	for i, c := range cards {
		list = append(list, fmt.Sprintf("soft:name=%s #%d,memory=%d,speed=%.6f,rate=%.0f,copy_bandwidth=%.0f,workers=1", c.name, i, s.bytes(c), c.power()/2, s.rateOf(c), s.copies))
	}
	return strings.Join(list, ";")
}

// duration scales a time of the paper's.
func (s scale) duration(seconds float64) time.Duration {
	return time.Duration(seconds * s.time * float64(time.Second))
}
