package kernelpage

import (
	"fmt"

	"muster/internal/units"
	"muster/model"
)

// network tells of the ports that all nodes have, if all have the same.
func network(c *model.Cluster) string {
	link, same := c.SameLink()
	if !same {
		return "ports as the cluster's nodes have them"
	}
	ports := "ports without limit"
	if link.Bandwidth > 0 {
		ports = "ports of " + units.FormatBandwidth(link.Bandwidth) + " each way"
	}
	return fmt.Sprintf("%s, %s for each call to another node", ports, c.Remote.Latency+link.Latency)
}
