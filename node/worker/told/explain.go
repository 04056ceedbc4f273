package told

import (
	"fmt"
	"strings"
	"time"

	"muster/internal/units"
	"muster/mapping"
	"muster/node/clientcore"
)

// Explained describes the choice of a device in lines of text.
func Explained(d *clientcore.Decision) []string {
	line := fmt.Sprintf("kernel %s: device %d", d.Kernel, d.Device)
	if d.Why != "" {
		return []string{line + ", where the program's memory is: " + d.Why}
	}
	if d.Moves > 0 {
		line += fmt.Sprintf(", for which %s must be copied there", units.BriefSize(d.Moves))
	}
	switch {
	case len(d.Devices) < 2:
		return []string{line + ": the program has no other at present"}
	case d.Account.Reason != "":
		return []string{line + ": " + d.Account.Reason}
	}
	lines := []string{line}
	for _, c := range d.Account.Choices {
		lines = append(lines, "  "+choice(d, &c))
	}
	return lines
}

// choice describes what a mapper knew of a device, and how it rated it.
func choice(d *clientcore.Decision, c *mapping.Choice) string {
	var b strings.Builder
	fmt.Fprintf(&b, "device %d: %d in its queue", d.Devices[c.Device], c.Queued)
	if c.Others > 0 {
		fmt.Fprintf(&b, " (%d of other programs)", c.Others)
	}
	if c.Held > 0 {
		fmt.Fprintf(&b, ", has %s of the data", units.BriefSize(uint64(c.Held)))
	}
	if d.Account.Drawn {
		fmt.Fprintf(&b, ", weight %.3g, drawn with probability %.3g", c.Weight, c.Chance)
		return b.String()
	}
	for _, part := range []struct {
		name string
		time time.Duration
	}{{"wait", c.Wait}, {"run", c.Run}, {"data", c.Transfer}, {"care", c.Care}} {
		if part.time > 0 {
			fmt.Fprintf(&b, ", %s %v", part.name, part.time.Round(time.Microsecond))
		}
	}
	fmt.Fprintf(&b, ", in all %v", c.Sum().Round(time.Microsecond))
	return b.String()
}
