package bench

import (
	"fmt"
	"strings"
)

// Card is a GPU of the papers.
type Card struct {
	Name   string
	Cores  int
	Clock  float64 // GHz
	Memory float64 // GiB; 0 where no experiment runs out of it
}

// The cards of the dissertation's chapters, which are three experiments here. Names, cores and clocks are those of
// Tables 4-3, 4-4 and 5-2; of cards and memory that no table has, from the cards' specifications. Chapters do not agree
// on every clock: an experiment that needs another one says so (As).
var (
	K40c       = Card{"Tesla K40c", 15 * 192, 0.876, 0}
	K20c       = Card{"Tesla K20c", 13 * 192, 0.706, 0}
	C2075      = Card{"Tesla C2075", 14 * 32, 1.147, 0}
	C2070      = Card{"Tesla C2070", 14 * 32, 1.147, 0}
	C2050      = Card{"Tesla C2050", 14 * 32, 1.147, 3}
	C1060      = Card{"C1060", 30 * 8, 1.30, 4}
	Quadro2000 = Card{"Quadro 2000", 4 * 48, 1.2, 1}
	GTX480     = Card{"GTX 480", 15 * 32, 1.401, 1}
	GTX460     = Card{"GTX 460", 336, 1.4, 0}
)

// As is the card as a chapter names it, with the clock in GHz that it has there.
func (c Card) As(name string, clock float64) Card {
	c.Name, c.Clock = name, clock
	return c
}

// Over is the speed of a card relative to another, by cores and clock. It ignores how well a particular program uses
// them.
func (c Card) Over(other Card) float64 {
	return float64(c.Cores) * c.Clock / (float64(other.Cores) * other.Clock)
}

// Power is the speed of a card relative to the C2050.
func (c Card) Power() float64 { return c.Over(C2050) }

// Devices is the option --devices of a node with software GPUs that stand in for cards. Only the ratios of their speeds
// matter: power is that of a card relative to one that executes rate operations a second. It is at most fastest, since
// the speed of a device is at most 1. more has the other settings of a card's device.
func Devices(cards []Card, rate, fastest float64, power func(Card) float64, more func(Card) string) string {
	var list []string
	for i, c := range cards {
		list = append(list, fmt.Sprintf("soft:name=%s #%d,speed=%.6f,rate=%.0f,workers=1,%s", c.Name, i, power(c)/fastest, rate*power(c), more(c)))
	}
	return strings.Join(list, ";")
}
