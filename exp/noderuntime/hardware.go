package noderuntime

import (
	"fmt"
	"time"

	"muster/exp/bench"
)

type card = bench.Card

// The chapter's text gives the clock of the C2050, rounded; the others are from the cards' specifications. They are not
// those of the tables of later chapters, because the recorded measurements were made with these.
var (
	c2050      = bench.C2050.As("C2050", 1.15)
	c1060      = bench.C1060
	quadro2000 = bench.Quadro2000.As("Quadro 2000", 1.25)
	gtx480     = bench.GTX480.As("GTX 480", 1.40)
)

// power is the speed of a card relative to the chapter's C2050.
func power(c card) float64 { return c.Over(c2050) }

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
	return max(2, uint64(c.Memory*(1<<30)*s.memory/granule)) * granule
}

func (s scale) rateOf(c card) float64 { return s.rate * power(c) }

// devices is the option --devices of a node with software GPUs that stand in for cards.
func (s scale) devices(cards ...card) string {
	return bench.Devices(cards, s.rate, 2, power, func(c card) string { return fmt.Sprintf("memory=%d,copy_bandwidth=%.0f", s.bytes(c), s.copies) })
}

// duration converts a time of the paper to the scaled time.
func (s scale) duration(seconds float64) time.Duration {
	return time.Duration(seconds * s.time * float64(time.Second))
}
