package soft

import (
	"fmt"
	"strings"

	"muster/device"
	"muster/ptx/simt/memcheck"
)

// know replaces the checker's list of allocations. A new allocation counts as uninitialised:
// a read before a write is a defect. So is any use of an allocation that is gone.
func (c *Context) know(allocated []device.Arena) {
	known := map[device.Arena]bool{}
	for _, a := range allocated {
		known[a] = true
		if !c.allocated[a] {
			c.checker.Allocate(a.Base, a.Size, fmt.Sprintf("the %d bytes allocated at %#x", a.Size, a.Base), false)
		}
	}
	for a := range c.allocated {
		if !known[a] && !overlaps(a, allocated) {
			c.checker.Free(a.Base)
		}
	}
	c.allocated = known
}

// overlaps says whether another allocation covers memory of one that is gone. Allocate has then
// already replaced the old one in the checker, and Free would remove the new one with it.
func overlaps(gone device.Arena, allocated []device.Arena) bool {
	for _, a := range allocated {
		if a.Base < gone.Base+gone.Size && gone.Base < a.Base+a.Size {
			return true
		}
	}
	return false
}

// written tells the checker that a copy or a fill writes memory.
func (c *Context) written(addr, size uint64) {
	if c.checker != nil {
		c.checker.Written(addr, size)
	}
}

// report shows a defect to the program, through Config.Complain, and to Options.Found.
func (c *Context) report(d *memcheck.Defect) {
	var text strings.Builder
	for line := range strings.Lines(d.String()) {
		fmt.Fprintf(&text, "muster check: %s\n", strings.TrimSuffix(line, "\n"))
	}
	if c.complain != nil {
		c.complain([]byte(text.String()))
	}
	if c.dev.found != nil {
		c.dev.found(text.String())
	}
}
