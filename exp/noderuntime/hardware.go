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
	clock  float64 // GHz; the text gives only the C2050's, the others are from the cards' specifications
	memory float64 // GiB
}

var (
	c2050      = card{"C2050", 14 * 32, 1.15, 3}
	c1060      = card{"C1060", 30 * 8, 1.30, 4}
	quadro2000 = card{"Quadro 2000", 4 * 48, 1.25, 1}
	gtx480     = card{"GTX 480", 15 * 32, 1.40, 1}
)

// power is the speed of a card relative to the C2050.
func (c card) power() float64 {
	return float64(c.cores) * c.clock / (float64(c2050.cores) * c2050.clock)
}

// pcie is the bandwidth of PCI Express 2.0 with 16 lanes that programs reach, in bytes per second.
const pcie = 5e9

// scale is the reduction of an experiment relative to the paper's.
type scale struct {
	// rate is how many operations per second a C2050 executes. It is far below the speed of a
	// processor of this machine, so that all devices together use only a part of the machine and
	// programs really wait for devices.
	rate   float64
	time   float64 // about how many seconds a second of the paper takes here
	memory float64 // bytes here per byte in the paper
	copies float64 // bandwidth of copies, in bytes per second
}

// The scales. The time follows from the programs' work and the rate. Where memory is swapped it
// shrinks more than time, because moving it costs real time on this machine. The bandwidth follows
// from both.
var (
	short = proportional(2e8, 1.0/20, 1.0/48)    // short programs
	long  = proportional(3e8, 1.0/150, 1.0/256)  // long programs that compete for memory
	moved = proportional(2e8, 1.0/50, 1.0/64)    // long programs that do not
	multi = scale{1e8, 1.0 / 10, 1.0 / 16, pcie} // multi-process programs, whose memory is small and stays where it is
)

func proportional(rate, time, memory float64) scale {
	return scale{rate, time, memory, pcie * memory / time}
}

const granule = 2 << 20 // of device memory

// bytes is the scaled memory of a card, in whole granules.
func (s scale) bytes(c card) uint64 {
	return max(2, uint64(c.memory*(1<<30)*s.memory/granule)) * granule
}

func (s scale) rateOf(c card) float64 { return s.rate * c.power() }

// devices is the option --devices of a node with software GPUs that stand in for cards. Only the
// ratios of their speeds matter.
func (s scale) devices(cards ...card) string {
	var list []string
	for i, c := range cards {
		list = append(list, fmt.Sprintf("soft:name=%s #%d,memory=%d,speed=%.6f,rate=%.0f,copy_bandwidth=%.0f,workers=1", c.name, i, s.bytes(c), c.power()/2, s.rateOf(c), s.copies))
	}
	return strings.Join(list, ";")
}

// duration converts a time of the paper to the scaled time.
func (s scale) duration(seconds float64) time.Duration {
	return time.Duration(seconds * s.time * float64(time.Second))
}
