package clusterfile

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"muster/internal/proportion"
	"muster/model"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const sample = `name: sample
gpu_types:
  k20x: {memory: 6GB, speed: 1.0, peer_bandwidth: 171GB/s}
  p100:
    memory: 16GiB
    speed: 2.5
links:
  qdr: {bandwidth: 10GB/s, latency: 1.2ms}
remote_gpus: {latency: 3.47ms, overhead: 1.09, far: 1.5, driver_memory: 10M, client_memory: 63MB}     # optional
nodes:
  - {name: "n[1-2]", cores: 8, memory: 22GB, gpus: {k20x: 2, p100: 1}, link: qdr, switch: rack-1}
  - name: mixed
    cores: 4
    memory: 512M
    gpus: [p100, k20x, p100]
    switch: "2"
  - {name: login, cores: 2, memory: 1024}
`

func TestRead(t *testing.T) {
	qdr := model.Link{Bandwidth: 10e9, Latency: 1200 * time.Microsecond}
	want := &model.Cluster{
		Name: "sample",
		GPUTypes: []model.GPUType{
			{Name: "k20x", Memory: 6e9, Speed: 1, PeerBandwidth: 171e9},
			{Name: "p100", Memory: 16 << 30, Speed: 2.5},
		},
		Remote: model.Remote{Latency: 3470 * time.Microsecond, Overhead: 1.09, Far: 1.5, DriverMemory: 10 << 20, ClientMemory: 63e6},
		Nodes: []model.Node{
			{Name: "n1", Cores: 8, Memory: 22e9, GPUs: []int{0, 0, 1}, Link: qdr, Switch: "rack-1"},
			{Name: "n2", Cores: 8, Memory: 22e9, GPUs: []int{0, 0, 1}, Link: qdr, Switch: "rack-1"},
			{Name: "mixed", Cores: 4, Memory: 512 << 20, GPUs: []int{1, 0, 1}, Switch: "2"},
			{Name: "login", Cores: 2, Memory: 1024},
		},
	}
	got, err := Read(strings.NewReader(sample), "sample.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestReadOrderOfKeysIsFree(t *testing.T) {
	got, err := Read(strings.NewReader("nodes: [{name: a, cores: 1, memory: 1G, gpus: {g: 1}, link: l}]\nlinks: {l: {bandwidth: 1}}\ngpu_types: {g: {}}\n"), "f")
	if err != nil {
		t.Fatal(err)
	}
	if n := got.Nodes[0]; len(n.GPUs) != 1 || n.Link.Bandwidth != 1 || got.Remote.Overhead != 1 || got.GPUTypes[0].Speed != 1 {
		t.Errorf("got %+v", got)
	}
}

// Each bad file has one fault; the error is expected to the letter.
func TestReadRefuses(t *testing.T) {
	const node = "nodes: [{name: a, cores: 1, memory: 1G}]\n"
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", `f:1:1: the file is empty: describe the nodes, as nodes: [{name: n1, cores: 8, memory: 64GB}]`},
		{"only a comment", "# nothing\n", `f:1:1: the file is empty: describe the nodes, as nodes: [{name: n1, cores: 8, memory: 64GB}]`},
		{"not text", "\xff\xfe", `f:1:1: the file is not UTF-8 text: a cluster description is YAML`},
		{"a list", "- a\n", `f:1:1: a cluster description must be a mapping of keys to values, not a list`},
		{"a word", "hello\n", `f:1:1: a cluster description must be a mapping of keys to values, not a plain value`},
		{"broken", "name: a\nnodes: [\n", `f:2:8: not valid YAML: the bracket that opens here is not closed: add ']'`},
		{"two documents", node + "---\n" + node, `f:3:1: a second document: write a cluster description into a file of its own`},
		{"too deep", "nodes: " + strings.Repeat("[", 99), `f:1:39: nested too deeply for a cluster description: at most 32 levels are read`},
		{"no nodes", "name: a\n", `f:1:1: there are no nodes: add nodes: [{name: n1, cores: 8, memory: 64GB}]`},
		{"no nodes in the list", "nodes: []\n", `f:1:8: there are no nodes: add - {name: n1, cores: 8, memory: 64GB}`},
		{"nodes no list", "nodes: {name: a}\n", `f:1:8: nodes must be a list, not a mapping: write - {name: n1, cores: 8, memory: 64GB}`},
		{"unknown key", node + "gpu_type: {}\n", `f:2:1: "gpu_type" is no key of a cluster description: did you mean gpu_types?`},
		{"far unknown key", node + "colour: red\n", `f:2:1: "colour" is no key of a cluster description: it is one of name, gpu_types, links, remote_gpus, nodes, partitions`},
		{"unknown key of a node", "nodes:\n  - name: a\n    core: 1\n", `f:3:5: "core" is no key of a node: did you mean cores?`},
		{"unknown key of a GPU type", node + "gpu_types:\n  k: {mem: 6GB}\n", `f:3:7: "mem" is no key of GPU type k: did you mean memory?`},
		{"unknown key of a link", node + "links:\n  l: {latncy: 1ms}\n", `f:3:7: "latncy" is no key of link l: did you mean latency?`},
		{"unknown key of remote GPUs", node + "remote_gpus: {overheads: 2}\n", `f:2:15: "overheads" is no key of remote_gpus: did you mean overhead?`},
		{"key twice", "name: a\nname: b\n", `f:2:1: "name" is given twice, first on line 1: remove one`},
		{"GPU type twice", node + "gpu_types:\n  k: {}\n  k: {}\n", `f:4:3: "k" is given twice, first on line 3: remove one`},
		{"no name", "nodes:\n  - {cores: 1, memory: 1G}\n", `f:2:5: this node has no name: add name: n[1-8]`},
		{"no name in block style", "nodes:\n  - cores: 1\n    memory: 1G\n", `f:2:5: this node has no name: add name: n[1-8]`},
		{"no cores", "nodes:\n  - {name: a, memory: 1G}\n", `f:2:5: this node has no cores: add cores: 8`},
		{"no memory", "nodes:\n  - {name: a, cores: 1}\n", `f:2:5: this node has no memory: add memory: 64GB`},
		{"node twice", "nodes:\n  - {name: \"n[1-3]\", cores: 1, memory: 1G}\n  - {name: n2, cores: 1, memory: 1G}\n",
			`f:3:12: node "n2" is described twice, first on line 2: give each node one name`},
		{"node twice in one list", "nodes:\n  - {name: \"n[1-3],n2\", cores: 1, memory: 1G}\n",
			`f:2:12: node "n2" is described twice, first on line 2: give each node one name`},
		{"bad range", "nodes:\n  - {name: \"n[3-1]\", cores: 1, memory: 1G}\n", `f:2:12: node list "n[3-1]": [3-1] runs backwards: write [1-3]`},
		{"range without quotes", "nodes:\n  - {name: n[1-3], cores: 1, memory: 1G}\n", `f:2:13: not valid YAML: a bracket in the middle of a value: put a name with brackets in quotes`},
		{"huge range", "nodes:\n  - {name: \"n[1-9999999]\", cores: 1, memory: 1G}\n", `f:2:12: node list "n[1-9999999]": it stands for more than 1000000 names`},
		{"too many nodes", "nodes:\n  - {name: \"a[1-600000]\", cores: 1, memory: 1G}\n  - {name: \"b[1-600000]\", cores: 1, memory: 1G}\n", `f:3:12: the cluster has more than 1000000 nodes`},
		{"negative cores", "nodes: [{name: a, cores: -1, memory: 1G}]", `f:1:26: cores: must be a whole number from 1 to 2147483647, not "-1"`},
		{"half a core", "nodes: [{name: a, cores: 1.5, memory: 1G}]", `f:1:26: cores: must be a whole number from 1 to 2147483647, not "1.5"`},
		{"cores as a list", "nodes: [{name: a, cores: [1], memory: 1G}]", `f:1:26: cores must be a plain value, not a list`},
		{"cores missing", "nodes: [{name: a, cores: , memory: 1G}]", `f:1:26: cores must be a plain value, not nothing`},
		{"negative size", "nodes: [{name: a, cores: 1, memory: -1G}]", `f:1:37: memory: size "-1G": it is negative: write it as 4GiB, 22GB, 512M or plain bytes`},
		{"wrong unit", "nodes: [{name: a, cores: 1, memory: 22Gb}]", `f:1:37: memory: size "22Gb": Gb may mean bits or bytes: write GB for bytes`},
		{"size overflows", "nodes: [{name: a, cores: 1, memory: 9EiB}]", `f:1:37: memory: size "9EiB": it is too large: write it as 4GiB, 22GB, 512M or plain bytes`},
		{"wrong unit of bandwidth", node + "links: {l: {bandwidth: 10GB}}\n", `f:2:24: bandwidth: bandwidth "10GB": write it as 10GB/s, 1GiB/s, 100Gbit/s or plain bytes per second`},
		{"link without bandwidth", node + "links: {l: {latency: 1ms}}\n", `f:2:9: link l has no bandwidth: add bandwidth: 10GB/s`},
		{"wrong unit of time", node + "links: {l: {bandwidth: 1, latency: 10GB}}\n", `f:2:36: latency: time "10GB": "GB" is no unit of time: write it as 90 (seconds), 1:30:00, 2-12:00:00, 90m, 1d12h or 1.2ms`},
		{"endless time", node + "remote_gpus: {latency: INFINITE}\n", `f:2:24: latency: time "INFINITE": no limit is allowed here: give a time`},
		{"unknown link", "links: {qdr: {bandwidth: 1}}\nnodes: [{name: a, cores: 1, memory: 1, link: qrd}]", `f:2:46: "qrd" is no link: did you mean qdr?`},
		{"no link described", "nodes: [{name: a, cores: 1, memory: 1, link: qdr}]", `f:1:46: "qdr" is no link: none is described`},
		{"unknown GPU type", "gpu_types: {k20x: {}}\nnodes: [{name: a, cores: 1, memory: 1, gpus: {k20: 1}}]", `f:2:47: "k20" is no GPU type: did you mean k20x?`},
		{"unknown GPU type in a list", "gpu_types: {k20x: {}}\nnodes: [{name: a, cores: 1, memory: 1, gpus: [k20x, h100]}]", `f:2:53: "h100" is no GPU type: it is one of k20x`},
		{"too many GPUs", "gpu_types: {k: {}, l: {}}\nnodes: [{name: a, cores: 1, memory: 1, gpus: {k: 64, l: 1}}]", `f:2:54: 65 GPUs in a node: at most 64 are supported`},
		{"negative GPUs", "gpu_types: {k: {}}\nnodes: [{name: a, cores: 1, memory: 1, gpus: {k: -1}}]", `f:2:50: the number of GPUs: must be a whole number from 0 to 2147483647, not "-1"`},
		{"GPUs as a number", "nodes: [{name: a, cores: 1, memory: 1, gpus: 3}]", `f:1:46: gpus must be a mapping of keys to values, not a plain value`},
		{"speed 0", node + "gpu_types: {k: {speed: 0}}\n", `f:2:24: speed: must be a number above 0, not "0"`},
		{"speed not a number", node + "gpu_types: {k: {speed: .nan}}\n", `f:2:24: speed: must be a number above 0, not ".nan"`},
		{"small overhead", node + "remote_gpus: {overhead: 0.9}\n", `f:2:25: overhead: must be a number from 1 to 1000000, not "0.9"`},
		{"huge overhead", node + "remote_gpus: {overhead: 1e7}\n", `f:2:25: overhead: must be a number from 1 to 1000000, not "1e7"`},
		{"near is farther", node + "remote_gpus: {far: 0.5}\n", `f:2:20: far: must be a number from 1 to 1000000, not "0.5"`},
		{"negative driver memory", node + "remote_gpus: {driver_memory: -1}\n", `f:2:30: driver_memory: size "-1": it is negative: write it as 4GiB, 22GB, 512M or plain bytes`},
		{"switch without a name", "nodes: [{name: a, cores: 1, memory: 1G, switch: 'a b'}]\n", `f:1:49: switch: must be made of letters, digits and ._-+, not "a b"`},
		{"bad name", "name: \"a b\"\n", `f:1:7: name: must be made of letters, digits and ._-+, not "a b"`},
		{"bad GPU name", "gpu_types: {\"a b\": {}}\n" + node, `f:1:13: the name of a GPU type must be made of letters, digits and ._-+, not "a b"`},
		{"anchor", "name: &x a\n", `f:1:7: an anchor or alias, which are not read: write the value out`},
		{"tag", "name: !!str a\n", `f:1:7: a tag, which is not read: leave it out`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Read(strings.NewReader(c.text), "f")
			if err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestReadHugeFile(t *testing.T) {
	_, err := Read(strings.NewReader(strings.Repeat("#", 32<<20+1)), "f")
	if want := "f: larger than 32MiB: describe equal nodes in one entry, as n[0001-1024]"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestWriteGolden(t *testing.T) {
	c, err := Read(strings.NewReader(sample), "sample.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Write(&out, c); err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/sample.golden.yaml", out.Bytes())
	again, err := Read(&out, "again")
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(again, c) {
		t.Errorf("round trip: got %+v\nwant %+v", again, c)
	}
}

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (go test -update rewrites it): got\n%s", path, got)
	}
}

func TestWriteQuotesNamesThatYAMLWouldMisread(t *testing.T) {
	c := &model.Cluster{
		Name:     "true",
		GPUTypes: []model.GPUType{{Name: "100", Speed: 1e-7}, {Name: "no", Speed: 1e30}},
		Nodes:    []model.Node{{Name: "0x10", Cores: 1, GPUs: []int{0, 1}}, {Name: "ä:#", Cores: 2}, {Name: "\"'\\", Cores: 3}},
		Remote:   model.Remote{Overhead: 1},
	}
	var out bytes.Buffer
	if err := Write(&out, c); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	again, err := Read(&out, "again")
	if err != nil || !reflect.DeepEqual(again, c) {
		t.Errorf("%s\ncame back as %+v, %v", text, again, err)
	}
}

func TestWriteRefuses(t *testing.T) {
	node := func(n model.Node) model.Cluster { n.Cores = 1; return model.Cluster{Nodes: []model.Node{n}} }
	for _, c := range []struct {
		cluster model.Cluster
		want    string
	}{
		{model.Cluster{}, "the cluster has no nodes: describe at least one"},
		{node(model.Node{Name: "a b"}), `node "a b": a name has no brackets, commas, spaces or broken characters`},
		{node(model.Node{Name: "a[1-2]"}), `node "a[1-2]": a name has no brackets, commas, spaces or broken characters`},
		{node(model.Node{Name: "\xff"}), `node "\xff": a name has no brackets, commas, spaces or broken characters`},
		{node(model.Node{Name: "a", Link: model.Link{Latency: 1}}), `node a: a link without bandwidth cannot be written`},
		{node(model.Node{Name: "a", Switch: "x y"}), `node a: the name of its switch must be made of letters, digits and ._-+, not "x y"`},
		{model.Cluster{Nodes: []model.Node{{Name: "a", Cores: 1}}, Remote: model.Remote{Far: 0.5}}, `the factor for GPUs on another switch must be at least 1, not 0.5`},
	} {
		if err := Write(&bytes.Buffer{}, &c.cluster); err == nil || err.Error() != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

func TestPresets(t *testing.T) {
	files, err := presetFiles.ReadDir("presets")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != len(Presets()) {
		t.Errorf("%d files but %d presets are listed", len(files), len(Presets()))
	}
	totals := map[string]string{
		"small": "8 nodes, 64 cores, 16 GPUs", "tsubame": "480 nodes, 3840 cores, 1440 GPUs", "rgpu": "8 nodes, 96 cores, 8 GPUs",
		"aucsched-s": "128 nodes, 1024 cores, 256 GPUs", "aucsched-m": "256 nodes, 2048 cores, 512 GPUs", "aucsched-l": "1024 nodes, 8192 cores, 2048 GPUs",
		"gremm": "24 nodes, 288 cores, 72 GPUs", "gremm-ib": "24 nodes, 288 cores, 72 GPUs",
	}
	for _, p := range Presets() {
		c, err := Load(p.Name)
		if err != nil {
			t.Errorf("%s: %v", p.Name, err)
			continue
		}
		if err := c.Validate(); err != nil || c.Name != p.Name {
			t.Errorf("%s: is called %q, %v", p.Name, c.Name, err)
		}
		if got := fmt.Sprintf("%d nodes, %d cores, %d GPUs", len(c.Nodes), c.TotalCores(), c.TotalGPUs()); got != totals[p.Name] {
			t.Errorf("%s: has %s, want %s", p.Name, got, totals[p.Name])
		}
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte(sample), 0o644); err != nil {
		t.Fatal(err)
	}
	if c, err := Load(path); err != nil || c.Name != "sample" {
		t.Errorf("Load(%s) = %v, %v", path, c, err)
	}
	for name, want := range map[string]string{
		"tsubme": `there is no file and no preset called "tsubme": did you mean tsubame?`,
		"zebra":  `there is no file and no preset called "zebra": the presets are listed by: muster cluster list`,
	} {
		if _, err := Load(name); err == nil || err.Error() != want {
			t.Errorf("Load(%q) = %v, want %s", name, err, want)
		}
	}
}

func TestFromOpenb(t *testing.T) {
	c, err := FromOpenb(strings.NewReader("sn,cpu_milli,memory_mib,gpu,model\na,32000,262144,0,\nb,96000,393216,2,T4\nc,82500,1024,1,P100\nd,8000,1024,1,T4\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := &model.Cluster{
		Name:     "openb",
		GPUTypes: []model.GPUType{{Name: "T4", Memory: 1000 << 20, Speed: 1}, {Name: "P100", Memory: 1000 << 20, Speed: 1}},
		Nodes: []model.Node{
			{Name: "a", Cores: 32, Memory: 256 << 30},
			{Name: "b", Cores: 96, Memory: 384 << 30, GPUs: []int{0, 0}},
			{Name: "c", Cores: 82, Memory: 1 << 30, GPUs: []int{1}},
			{Name: "d", Cores: 8, Memory: 1 << 30, GPUs: []int{0}},
		},
		Remote: model.Remote{Overhead: 1},
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
}

func TestFromOpenbRefuses(t *testing.T) {
	const header = "sn,cpu_milli,memory_mib,gpu,model\n"
	for text, want := range map[string]string{
		"":                                    "openb node list: line 1 must be sn,cpu_milli,memory_mib,gpu,model",
		"a,b\n":                               "openb node list: line 1 must be sn,cpu_milli,memory_mib,gpu,model",
		header:                                "openb node list: there are no nodes after the header",
		header + "a,1000\n":                   "openb node list: record on line 2: wrong number of fields",
		header + "a,x,1,0,\n":                 `openb node list: line 2, column 3: cpu_milli must be a whole number from 0 to 2147483647, not "x"`,
		header + "a,999,1,0,\n":               "openb node list: line 2, column 3: cpu_milli must be at least 1000, one core, not 999",
		header + "a,1000,-1,0,\n":             `openb node list: line 2, column 8: memory_mib must be a whole number from 0 to 8796093022207, not "-1"`,
		header + "a,1000,1,65,T4\n":           `openb node list: line 2, column 10: gpu must be a whole number from 0 to 64, not "65"`,
		header + "a,1000,1,1,\n":              `openb node list: line 2, column 12: model must be made of letters, digits and ._-+, not ""`,
		header + "a b,1000,1,0,\n":            `openb node list: line 2, column 1: sn "a b" is no node name`,
		header + "a,1000,1,0,\na,1000,1,0,\n": `openb node list: line 3, column 1: node "a" is described twice: remove one`,
	} {
		if _, err := FromOpenb(strings.NewReader(text)); err == nil || err.Error() != want {
			t.Errorf("FromOpenb(%q):\ngot  %v\nwant %s", text, err, want)
		}
	}
}

// manyNodes describes n nodes, each in its own entry.
func manyNodes(n int) string {
	var b strings.Builder
	b.WriteString("gpu_types: {k: {memory: 6GB}}\nlinks: {l: {bandwidth: 1GB/s}}\nnodes:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - {name: n%06d, cores: 8, memory: 22GB, gpus: {k: 3}, link: l}\n", i)
	}
	return b.String()
}

func TestReadManyEntries(t *testing.T) {
	c, err := Read(strings.NewReader(manyNodes(20_000)), "many")
	if err != nil || len(c.Nodes) != 20_000 {
		t.Fatalf("got %v", err)
	}
	var out bytes.Buffer
	if err := Write(&out, c); err != nil || !strings.Contains(out.String(), `name: "n[000000-019999]"`) || out.Len() > 300 {
		t.Errorf("%v: %s", err, out.String())
	}
}

// manyTypes describes n nodes, each with a GPU type and a link of its own.
func manyTypes(n int) string {
	var types, links, nodes strings.Builder
	for i := range n {
		fmt.Fprintf(&types, "  k%06d: {memory: 6GB}\n", i)
		fmt.Fprintf(&links, "  l%06d: {bandwidth: %d}\n", i, i+1)
		fmt.Fprintf(&nodes, "  - {name: n%06d, cores: 8, memory: 22GB, gpus: {k%06d: 3}, link: l%06d}\n", i, i, i)
	}
	return "gpu_types:\n" + types.String() + "links:\n" + links.String() + "nodes:\n" + nodes.String()
}

// Sixteen times the cluster takes about sixteen times as long to read, check and
// write. Where each node looks for its type among all, it takes more than a
// hundred times as long.
func TestReadTakesTimeInProportion(t *testing.T) {
	if testing.Short() {
		t.Skip("tens of thousands of nodes")
	}
	const n = 3000
	read := func(text string) func() {
		return func() {
			c, err := Read(strings.NewReader(text), "many")
			if err == nil {
				err = Write(io.Discard, c)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	proportion.Hold(t, "types", 50, read(manyTypes(n)), read(manyTypes(16*n)))
	var nodes strings.Builder
	nodes.WriteString("sn,cpu_milli,memory_mib,gpu,model\n")
	for i := range 60_000 {
		fmt.Fprintf(&nodes, "n%d,1000,1,1,m%d\n", i, i)
	}
	if c, err := FromOpenb(strings.NewReader(nodes.String())); err != nil || len(c.GPUTypes) != 60_000 {
		t.Error(err)
	}
}

func BenchmarkRead(b *testing.B) {
	for _, c := range []struct{ name, text string }{
		{"1024-in-a-range", `nodes: [{name: "n[0001-1024]", cores: 8, memory: 22GB}]`},
		{"100000-in-a-range", `nodes: [{name: "n[000001-100000]", cores: 8, memory: 22GB}]`},
		{"1024-entries", manyNodes(1024)},
		{"100000-entries", manyNodes(100_000)},
		{"100000-types-and-links", manyTypes(100_000)},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Read(strings.NewReader(c.text), "bench"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(sample))
	f.Add([]byte("nodes: [{name: \"n[1-3]\", cores: 1, memory: 1G}]"))
	f.Add([]byte("? a\n: - - - b\n"))
	f.Add([]byte("a: &x {b: *x}\n<<: *x\n"))
	f.Add([]byte("nodes: !!seq |\n  text\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Read(bytes.NewReader(text), "fuzz")
		if err != nil || len(c.Nodes) > 1000 {
			return
		}
		if err := c.Validate(); err != nil {
			t.Fatalf("a cluster was read that makes no sense: %v", err)
		}
		var out bytes.Buffer
		if err := Write(&out, c); err != nil {
			t.Fatal(err)
		}
		again, err := Read(&out, "again")
		if err != nil || !reflect.DeepEqual(again, c) {
			t.Fatalf("round trip: got %+v, %v\nwant %+v", again, err, c)
		}
	})
}

func FuzzFromOpenb(f *testing.F) {
	f.Add("sn,cpu_milli,memory_mib,gpu,model\na,32000,262144,0,\nb,96000,393216,2,T4\n")
	f.Fuzz(func(t *testing.T, text string) {
		if c, err := FromOpenb(strings.NewReader(text)); err == nil {
			if err := c.Validate(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
