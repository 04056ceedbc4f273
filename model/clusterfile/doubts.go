package clusterfile

import (
	"fmt"

	"muster/internal/units"
	"muster/model"
)

// Doubts are warnings about things that are valid but probably mistakes: sizes without a unit,
// which are bytes. There is one for GPU types and one for nodes, each about the first of them.
func Doubts(c *model.Cluster) (all []string) {
	for _, t := range c.GPUTypes {
		if units.LacksUnit(t.Memory) {
			all = append(all, doubt("GPUs of type "+t.Name+" have", t.Memory))
			break
		}
	}
	for _, n := range c.Nodes {
		if units.LacksUnit(n.Memory) {
			all = append(all, doubt("node "+n.Name+" has", n.Memory))
			break
		}
	}
	return all
}

func doubt(who string, bytes int64) string {
	return fmt.Sprintf("%s %d bytes of memory: a number without a unit is bytes, write %dGB for gigabytes", who, bytes, bytes)
}
