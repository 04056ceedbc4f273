package ivm

import (
	"fmt"
	"strings"
)

// card is a GPU of Table 5-2.
type card struct {
	name  string
	cores int
	clock float64 // GHz
}

var (
	k40c   = card{"Tesla K40c", 15 * 192, 0.876}
	c2075  = card{"Tesla C2075", 14 * 32, 1.147}
	c2070  = card{"Tesla C2070", 14 * 32, 1.147}
	gtx480 = card{"GTX 480", 15 * 32, 1.401}
	k20c   = card{"Tesla K20c", 13 * 192, 0.706}
	c2050  = card{"Tesla C2050", 14 * 32, 1.147}
)

// speed is the speed of a card relative to the C2050, by its cores and clock in Table 5-2. It
// ignores how well a particular program uses them.
func (c card) speed() float64 {
	return float64(c.cores) * c.clock / (float64(c2050.cores) * c2050.clock)
}

// hosts are the paper's three hosts: Host-I, Host-II and Host-III.
var hosts = [][]card{{k40c, c2075, c2070}, {gtx480, gtx480, gtx480, gtx480}, {k20c, c2050}}

var hostNames = []string{"Host-I", "Host-II", "Host-III"}

// speeds are the relative speeds of all GPUs.
func speeds() []float64 {
	var all []float64
	for _, h := range hosts {
		for _, c := range h {
			all = append(all, c.speed())
		}
	}
	return all
}

// bound is the largest possible speed-up over an even division. An even division takes as long as
// the slowest GPU; the best possible division uses the sum of all speeds.
func bound() float64 {
	sum, least := 0.0, c2050.speed()
	for _, s := range speeds() {
		sum += s
		least = min(least, s)
	}
	return sum / (least * float64(len(speeds())))
}

// devices is the option --devices of a node with software GPUs that stand in for cards. rate is the
// C2050's, in operations per second.
func devices(cards []card, rate float64) string {
	var list []string
	for i, c := range cards {
		list = append(list, fmt.Sprintf("soft:name=%s #%d,memory=%d,speed=%.6f,rate=%.0f,workers=1", c.name, i, deviceMemory, c.speed()/8, rate*c.speed()))
	}
	return strings.Join(list, ";")
}

const deviceMemory = 256 << 20 // more than the programs need
