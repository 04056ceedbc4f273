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

// speed is how fast a card is, relative to the C2050: by cores and clock, as Table 5-2 has them. What a program
// makes of them depends on the program, which this leaves out.
func (c card) speed() float64 {
	return float64(c.cores) * c.clock / (float64(c2050.cores) * c2050.clock)
}

// hosts are the three of the paper: Host-I, Host-II and Host-III.
var hosts = [][]card{{k40c, c2075, c2070}, {gtx480, gtx480, gtx480, gtx480}, {k20c, c2050}}

var hostNames = []string{"Host-I", "Host-II", "Host-III"}

// speeds are those of all GPUs.
func speeds() []float64 {
	var all []float64
	for _, h := range hosts {
		for _, c := range h {
			all = append(all, c.speed())
		}
	}
	return all
}

// bound is how many times as fast as an even division any other can be: the slowest GPU decides how long an even
// one takes, and all speeds together how long the best does.
func bound() float64 {
	sum, least := 0.0, c2050.speed()
	for _, s := range speeds() {
		sum += s
		least = min(least, s)
	}
	return sum / (least * float64(len(speeds())))
}

// devices is what a node is told to stand for cards, of which a C2050 does rate operations a second.
func devices(cards []card, rate float64) string {
	var list []string
	for i, c := range cards {
		list = append(list, fmt.Sprintf("soft:name=%s #%d,memory=%d,speed=%.6f,rate=%.0f,workers=1", c.name, i, deviceMemory, c.speed()/8, rate*c.speed()))
	}
	return strings.Join(list, ";")
}

const deviceMemory = 256 << 20 // never short here
