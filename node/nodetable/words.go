package nodetable

import (
	"fmt"
	"strings"

	"muster/internal/units"
	"muster/wire/status"
)

// Sharing is why a program with this many devices has some of them twice; "" if it need not.
func Sharing(s *status.Node, gpus int) string {
	own, free := 0, 0
	for i := range s.Devices {
		if d := &s.Devices[i]; d.State == "up" && !d.Borrowed {
			own++
		}
	}
	for i := range s.Peers {
		if p := &s.Peers[i]; !p.Self && p.Heard >= 0 && p.Free > 0 {
			free++
		}
	}
	has := fmt.Sprintf("the program sees %d devices, and the node has %d", gpus, own)
	switch {
	case own >= gpus || own+free >= gpus:
		return ""
	case free > 0:
		return fmt.Sprintf("%s and %d of its peers can lend one now: some are the same GPU until others lend", has, free)
	case len(s.Peers) > 0:
		return has + " and its peers have none to lend at present (muster peers): some are the same GPU until one lends"
	}
	return has + " and no peers to borrow of (docs/offload.md): some are the same GPU"
}

// InWords says in a few words what devices a node has.
func InWords(devices []status.Device) string {
	var parts []string
	for _, d := range devices {
		kind := d.Name
		if d.Kind == "soft" {
			kind = "a software GPU"
		}
		parts = append(parts, fmt.Sprintf("%s (%s of memory)", kind, units.BriefSize(d.Memory)))
	}
	return strings.Join(parts, ", ")
}
