package clusterfile

import (
	"maps"
	"math"
	"slices"

	"muster/model"
	"muster/model/strictyaml"
)

// decoder turns the syntax tree of one file into a cluster.
type decoder struct {
	strictyaml.File
	cluster model.Cluster
	types   map[string]int // the numbers of GPU types
	links   map[string]model.Link
	// lineOf is the line in which a node was first described.
	lineOf map[string]int
}

func decode(text []byte, file string) (*model.Cluster, error) {
	d := &decoder{
		File: strictyaml.File{
			Name: file, What: "a cluster description",
			Empty: "describe the nodes, as nodes: [{name: n1, cores: 8, memory: 64GB}]",
		},
		types: map[string]int{}, links: map[string]model.Link{}, lineOf: map[string]int{},
	}
	root, err := d.Parse(text)
	if err != nil {
		return nil, err
	}
	if err := d.document(root); err != nil {
		return nil, err
	}
	return &d.cluster, nil
}

func above0(x float64) bool { return x > 0 }

// isFactor: factors are at least 1, and at most what a model.Cluster accepts.
func isFactor(x float64) bool { return x >= 1 && x <= 1_000_000 }

// document reads the whole file. The keys may be in any order, but nodes refer to types and links,
// so they are read last.
func (d *decoder) document(root strictyaml.Node) error {
	var types, links, nodes, partitions strictyaml.Node
	keep := func(into *strictyaml.Node) func(strictyaml.Node) error {
		return func(n strictyaml.Node) error { *into = n; return nil }
	}
	d.cluster.Remote.Overhead = 1
	given, err := d.Fields(root, "a cluster description",
		strictyaml.Key("name", d.Identifier("name", &d.cluster.Name)),
		strictyaml.Key("gpu_types", keep(&types)),
		strictyaml.Key("links", keep(&links)),
		strictyaml.Key("remote_gpus", d.remote),
		strictyaml.Key("nodes", keep(&nodes)),
		strictyaml.Key("partitions", keep(&partitions)),
	)
	if err != nil {
		return err
	}
	if given["gpu_types"] {
		if err := d.gpuTypes(types); err != nil {
			return err
		}
	}
	if given["links"] {
		if err := d.linkTypes(links); err != nil {
			return err
		}
	}
	if !given["nodes"] {
		return d.Errorf(strictyaml.Start(root), "there are no nodes: add nodes: [{name: n1, cores: 8, memory: 64GB}]")
	}
	if err := d.nodes(nodes); err != nil || !given["partitions"] {
		return err
	}
	if d.cluster.Partitions, err = Partitions(&d.File, partitions); err != nil {
		return err
	}
	if err := d.cluster.Validate(); err != nil { // a partition names a node that is not there
		return d.Errorf(strictyaml.Start(partitions), "%v", err)
	}
	return nil
}

func (d *decoder) gpuTypes(n strictyaml.Node) error {
	entries, err := d.Entries(n, "gpu_types")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := strictyaml.CheckName(e.Key.Text); err != nil {
			return d.Errorf(e.Key.Place, "the name of a GPU type %v", err)
		}
		t := model.GPUType{Name: e.Key.Text, Speed: 1}
		if _, err := d.Fields(e.Value, "GPU type "+t.Name,
			strictyaml.Key("memory", d.Size("memory", &t.Memory)),
			strictyaml.Key("speed", d.Number("speed", "above 0", above0, &t.Speed)),
			strictyaml.Key("peer_bandwidth", d.Bandwidth("peer_bandwidth", &t.PeerBandwidth)),
		); err != nil {
			return err
		}
		d.types[t.Name] = len(d.cluster.GPUTypes)
		d.cluster.GPUTypes = append(d.cluster.GPUTypes, t)
	}
	return nil
}

func (d *decoder) linkTypes(n strictyaml.Node) error {
	entries, err := d.Entries(n, "links")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := strictyaml.CheckName(e.Key.Text); err != nil {
			return d.Errorf(e.Key.Place, "the name of a link %v", err)
		}
		var l model.Link
		if _, err := d.Fields(e.Value, "link "+e.Key.Text,
			strictyaml.Key("bandwidth", d.Bandwidth("bandwidth", &l.Bandwidth)),
			strictyaml.Key("latency", d.Duration("latency", &l.Latency)),
		); err != nil {
			return err
		}
		if l.Bandwidth == 0 {
			return d.Errorf(e.Key.Place, "link %s has no bandwidth: add bandwidth: 10GB/s", e.Key.Text)
		}
		d.links[e.Key.Text] = l
	}
	return nil
}

func (d *decoder) remote(n strictyaml.Node) error {
	r := &d.cluster.Remote
	_, err := d.Fields(n, "remote_gpus",
		strictyaml.Key("latency", d.Duration("latency", &r.Latency)),
		strictyaml.Key("overhead", d.Number("overhead", "from 1 to 1000000", isFactor, &r.Overhead)),
		strictyaml.Key("far", d.Number("far", "from 1 to 1000000", isFactor, &r.Far)),
		strictyaml.Key("driver_memory", d.Size("driver_memory", &r.DriverMemory)),
		strictyaml.Key("client_memory", d.Size("client_memory", &r.ClientMemory)),
	)
	return err
}

func (d *decoder) nodes(n strictyaml.Node) error {
	list, ok := strictyaml.Items(n)
	if !ok {
		return d.Errorf(strictyaml.Start(n), "nodes must be a list, not %s: write - {name: n1, cores: 8, memory: 64GB}", strictyaml.Kind(n))
	}
	for _, v := range list {
		if err := d.node(v); err != nil {
			return err
		}
	}
	if len(d.cluster.Nodes) == 0 {
		return d.Errorf(strictyaml.Start(n), "there are no nodes: add - {name: n1, cores: 8, memory: 64GB}")
	}
	return nil
}

// node reads one entry, which may describe a range of equal nodes.
func (d *decoder) node(n strictyaml.Node) error {
	var node model.Node
	var names []string
	var nameToken strictyaml.Word
	given, err := d.Fields(n, "a node",
		strictyaml.Key("name", func(n strictyaml.Node) (err error) {
			if nameToken, err = d.Scalar(n, "name"); err != nil {
				return err
			}
			if names, err = model.ExpandNodes(nameToken.Text); err != nil {
				return d.Errorf(nameToken.Place, "%v", err)
			}
			return nil
		}),
		strictyaml.Key("cores", d.Count("cores", 1, math.MaxInt32, &node.Cores)),
		strictyaml.Key("memory", d.Size("memory", &node.Memory)),
		strictyaml.Key("gpus", func(n strictyaml.Node) (err error) {
			node.GPUs, err = d.gpus(n)
			return err
		}),
		strictyaml.Key("link", func(n strictyaml.Node) error {
			tok, err := d.Scalar(n, "link")
			if err != nil {
				return err
			}
			link, ok := d.links[tok.Text]
			if !ok {
				return d.Unknown(tok, "link", slices.Sorted(maps.Keys(d.links)))
			}
			node.Link = link
			return nil
		}),
		strictyaml.Key("switch", d.Identifier("switch", &node.Switch)),
		strictyaml.Key("weight", d.Count("weight", 1, model.MaxNodeWeight, &node.Weight)),
	)
	if err != nil {
		return err
	}
	for _, need := range []struct{ key, example string }{{"name", "n[1-8]"}, {"cores", "8"}, {"memory", "64GB"}} {
		if !given[need.key] {
			return d.Errorf(strictyaml.Start(n), "this node has no %s: add %s: %s", need.key, need.key, need.example)
		}
	}
	if len(names)+len(d.cluster.Nodes) > model.MaxNodeNames {
		return d.Errorf(nameToken.Place, "the cluster has more than %d nodes", model.MaxNodeNames)
	}
	for _, name := range names {
		if line, twice := d.lineOf[name]; twice {
			return d.Errorf(nameToken.Place, "node %q is described twice, first on line %d: give each node one name", name, line)
		}
		d.lineOf[name] = nameToken.Line
		node.Name = name
		d.cluster.Nodes = append(d.cluster.Nodes, node)
	}
	return nil
}

// gpus reads {k20x: 2, p100: 1}, or [k20x, p100, k20x] if their order in the node matters.
func (d *decoder) gpus(n strictyaml.Node) ([]int, error) {
	var devices []int
	add := func(tok strictyaml.Word, count int) error {
		t, known := d.types[tok.Text]
		if !known {
			return d.Unknown(tok, "GPU type", d.gpuTypeNames())
		}
		if len(devices)+count > model.MaxGPUsPerNode {
			return d.Errorf(tok.Place, "%d GPUs in a node: at most %d are supported", len(devices)+count, model.MaxGPUsPerNode)
		}
		devices = append(devices, slices.Repeat([]int{t}, count)...)
		return nil
	}
	if list, ok := strictyaml.Items(n); ok {
		for _, v := range list {
			tok, err := d.Scalar(v, "a GPU type")
			if err != nil {
				return nil, err
			}
			if err := add(tok, 1); err != nil {
				return nil, err
			}
		}
		return devices, nil
	}
	entries, err := d.Entries(n, "gpus")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		var count int
		if err := d.Count("the number of GPUs", 0, math.MaxInt32, &count)(e.Value); err != nil {
			return nil, err
		}
		if err := add(e.Key, count); err != nil {
			return nil, err
		}
	}
	return devices, nil
}

func (d *decoder) gpuTypeNames() []string {
	names := make([]string, len(d.cluster.GPUTypes))
	for i, t := range d.cluster.GPUTypes {
		names[i] = t.Name
	}
	return names
}
