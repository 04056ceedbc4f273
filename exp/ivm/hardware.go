package ivm

import (
	"fmt"

	"muster/exp/bench"
)

// hosts are the paper's three hosts of Table 5-2: Host-I, Host-II and Host-III.
var hosts = [][]bench.Card{{bench.K40c, bench.C2075, bench.C2070}, {bench.GTX480, bench.GTX480, bench.GTX480, bench.GTX480}, {bench.K20c, bench.C2050}}

var hostNames = []string{"Host-I", "Host-II", "Host-III"}

// speeds are the relative speeds of all GPUs.
func speeds() []float64 {
	var all []float64
	for _, h := range hosts {
		for _, c := range h {
			all = append(all, c.Power())
		}
	}
	return all
}

// bound is the largest possible speed-up over an even division. An even division takes as long as
// the slowest GPU; the best possible division uses the sum of all speeds.
func bound() float64 {
	sum, least := 0.0, bench.C2050.Power()
	for _, s := range speeds() {
		sum += s
		least = min(least, s)
	}
	return sum / (least * float64(len(speeds())))
}

// devices is the option --devices of a node with software GPUs that stand in for cards. rate is the
// C2050's, in operations per second.
func devices(cards []bench.Card, rate float64) string {
	return bench.Devices(cards, rate, 8, bench.Card.Power, func(bench.Card) string { return fmt.Sprintf("memory=%d", deviceMemory) })
}

const deviceMemory = 256 << 20 // more than the programs need
