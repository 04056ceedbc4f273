package clusterfile

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"muster/internal/units"
	"muster/model"
	"muster/model/strictyaml"
)

// Write writes a cluster in the form that Read reads, and combines adjacent equal nodes into one
// entry. Links get new names, because a model.Cluster does not keep theirs.
func Write(w io.Writer, c *model.Cluster) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if err := checkWritable(c); err != nil {
		return err
	}
	links, numbers := linksOf(c)
	b := bufio.NewWriter(w)
	if c.Name != "" {
		fmt.Fprintf(b, "name: %s\n", strictyaml.Quote(c.Name))
	}
	if len(c.GPUTypes) > 0 {
		fmt.Fprintln(b, "gpu_types:")
	}
	for _, t := range c.GPUTypes {
		fmt.Fprintf(b, "  %s: {memory: %s, speed: %s", strictyaml.Quote(t.Name), units.FormatSize(t.Memory), formatFloat(t.Speed))
		if t.PeerBandwidth > 0 {
			fmt.Fprintf(b, ", peer_bandwidth: %s", units.FormatBandwidth(t.PeerBandwidth))
		}
		fmt.Fprintln(b, "}")
	}
	if len(links) > 0 {
		fmt.Fprintln(b, "links:")
	}
	for i, l := range links {
		fmt.Fprintf(b, "  %s: {bandwidth: %s", linkName(i), units.FormatBandwidth(l.Bandwidth))
		if l.Latency > 0 {
			fmt.Fprintf(b, ", latency: %s", l.Latency)
		}
		fmt.Fprintln(b, "}")
	}
	writeRemote(b, &c.Remote)
	fmt.Fprintln(b, "nodes:")
	for first := 0; first < len(c.Nodes); {
		end := first + 1
		for end < len(c.Nodes) && equalNodes(&c.Nodes[first], &c.Nodes[end]) {
			end++
		}
		writeNodes(b, c, numbers, c.Nodes[first:end])
		first = end
	}
	writePartitions(b, c.Partitions)
	return b.Flush()
}

// writeRemote writes the costs of remote GPUs, if there are any.
func writeRemote(b *bufio.Writer, r *model.Remote) {
	if r.Latency == 0 && r.Overhead <= 1 && r.Far == 0 && r.DriverMemory == 0 && r.ClientMemory == 0 {
		return
	}
	fmt.Fprintf(b, "remote_gpus: {latency: %s, overhead: %s", r.Latency, formatFloat(max(1, r.Overhead)))
	if r.Far > 0 {
		fmt.Fprintf(b, ", far: %s", formatFloat(r.Far))
	}
	if r.DriverMemory > 0 {
		fmt.Fprintf(b, ", driver_memory: %s", units.FormatSize(r.DriverMemory))
	}
	if r.ClientMemory > 0 {
		fmt.Fprintf(b, ", client_memory: %s", units.FormatSize(r.ClientMemory))
	}
	fmt.Fprintln(b, "}")
}

// checkWritable refuses values that a file cannot represent.
func checkWritable(c *model.Cluster) error {
	if c.Name != "" {
		if err := strictyaml.CheckName(c.Name); err != nil {
			return fmt.Errorf("the name of a cluster %w", err)
		}
	}
	if 0 < c.Remote.Overhead && c.Remote.Overhead < 1 {
		return fmt.Errorf("the overhead of remote GPUs must be at least 1, not %v", c.Remote.Overhead)
	}
	if 0 < c.Remote.Far && c.Remote.Far < 1 {
		return fmt.Errorf("the factor for GPUs on another switch must be at least 1, not %v", c.Remote.Far)
	}
	for _, t := range c.GPUTypes {
		if err := strictyaml.CheckName(t.Name); err != nil {
			return fmt.Errorf("the name of a GPU type %w", err)
		}
	}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if one, err := model.ExpandNodes(n.Name); err != nil || len(one) != 1 || one[0] != n.Name || !validName(n.Name) {
			return fmt.Errorf("node %q: a name has no brackets, commas, spaces or broken characters", n.Name)
		}
		if n.Switch != "" {
			if err := strictyaml.CheckName(n.Switch); err != nil {
				return fmt.Errorf("node %s: the name of its switch %w", n.Name, err)
			}
		}
		if n.Link.Bandwidth == 0 && n.Link.Latency != 0 {
			return fmt.Errorf("node %s: a link without bandwidth cannot be written", n.Name)
		}
	}
	return nil
}

func validName(s string) bool { return strings.ToValidUTF8(s, "") == s }

// linksOf lists the distinct links of the nodes, and numbers them.
func linksOf(c *model.Cluster) (links []model.Link, numbers map[model.Link]int) {
	numbers = map[model.Link]int{}
	for i := range c.Nodes {
		l := c.Nodes[i].Link
		if _, seen := numbers[l]; !seen && l != (model.Link{}) {
			numbers[l] = len(links)
			links = append(links, l)
		}
	}
	return links, numbers
}

func linkName(i int) string { return fmt.Sprintf("link%d", i+1) }

func equalNodes(a, b *model.Node) bool {
	return a.Cores == b.Cores && a.Memory == b.Memory && a.Link == b.Link && a.Switch == b.Switch && a.Weight == b.Weight && slices.Equal(a.GPUs, b.GPUs)
}

// writeNodes writes equal nodes as one entry.
func writeNodes(b *bufio.Writer, c *model.Cluster, links map[model.Link]int, nodes []model.Node) {
	names := make([]string, len(nodes))
	for i := range nodes {
		names[i] = nodes[i].Name
	}
	n := &nodes[0]
	fmt.Fprintf(b, "  - {name: %s, cores: %d, memory: %s", strictyaml.Quote(model.CompressNodes(names)), n.Cores, units.FormatSize(n.Memory))
	if len(n.GPUs) > 0 {
		fmt.Fprintf(b, ", gpus: %s", formatGPUs(c, n.GPUs))
	}
	if i, linked := links[n.Link]; linked {
		fmt.Fprintf(b, ", link: %s", linkName(i))
	}
	if n.Switch != "" {
		fmt.Fprintf(b, ", switch: %s", strictyaml.Quote(n.Switch))
	}
	if n.Weight != 0 {
		fmt.Fprintf(b, ", weight: %d", n.Weight)
	}
	fmt.Fprintln(b, "}")
}

// formatGPUs writes {a: 2, b: 1}, or a list if the types alternate.
func formatGPUs(c *model.Cluster, devices []int) string {
	var types []int
	var counts, list []string
	for first := 0; first < len(devices); {
		end := first
		for end < len(devices) && devices[end] == devices[first] {
			list = append(list, strictyaml.Quote(c.GPUTypes[devices[first]].Name))
			end++
		}
		if slices.Contains(types, devices[first]) {
			counts = nil
		}
		types = append(types, devices[first])
		counts = append(counts, fmt.Sprintf("%s: %d", strictyaml.Quote(c.GPUTypes[devices[first]].Name), end-first))
		first = end
	}
	if len(counts) < len(types) {
		return "[" + strings.Join(list, ", ") + "]"
	}
	return "{" + strings.Join(counts, ", ") + "}"
}

func formatFloat(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
