package nodetable

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"muster/head/jobtable"
	"muster/model"
	"muster/report/jsontable"
	"muster/wire/api"
	"muster/wire/status"
)

var update = flag.Bool("update", false, "write the golden files, and docs/columns.md, anew")

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is not what comes out now (-update writes it; read the difference):\n%s", file, got)
	}
}

// rich is a node of which much can be said.
func rich() *status.Node {
	at := func(n int) *int { return &n }
	return &status.Node{
		Node: "n1", Up: 100, Policy: "fcfs", SwapSize: 8 << 30, Committed: 3 << 30,
		Problems: []status.Problem{{Part: "device 1", What: "is lost"}},
		Devices: []status.Device{
			{Name: "A", Kind: "soft", State: "up", Speed: 1, Memory: 8 << 30, Free: 5 << 30, Slots: 4, Assigned: 2, Busy: 1, BusyTime: 12.5},
			{Name: "B", Kind: "cuda", State: "draining", Removing: true, Speed: 0.5, Memory: 2 << 30, Free: 2 << 30, Slots: 4},
			{Name: "C", Kind: "soft", State: "removed"},
			{Name: "D", Kind: "remote", State: "up", Speed: 2, Memory: 16 << 30, Free: 15 << 30, Slots: 2, Assigned: 1, Lender: "n2"},
		},
		Clients: []status.Client{
			{ID: 1, Pid: 4711, Worker: 4712, User: "alice", Program: "/usr/bin/train", Arguments: []string{"--epochs", "3"}, Device: at(0), State: "assigned", Busy: true, Limit: 4 << 30,
				Allocated: 3 << 30, Resident: 2 << 30, Swapped: 1 << 30, Kernels: 50, BusyTime: 9.5, Waits: 3, WaitTime: 0.0125, LongestWait: 0.01, Class: "batch", Weight: 2, Priority: -1,
				Turn: 2, TurnUsed: 0.5, Turns: 7, Preemptions: 2, Swaps: 1, MoveTime: 0.25, Moves: status.Moves{Auto: 1, Drain: 1}, Since: 303, HeldTime: 0.1, MPS: "shared", Share: 50, Rebuilds: 1,
				Further: []status.Further{{Device: 3, Lent: true, Kernels: 20}}, Ran: []status.RanOn{{Device: 0, Kernels: 30}, {Device: 3, Kernels: 20}}},
			{ID: 2, Pid: 12, User: "bob", Program: "far", Address: "10.0.0.9:4000", Device: at(3), State: "waiting"},
			{ID: 3, Pid: 13, User: "bob", Program: "idle\x1b[2J", State: "ready", Parked: true, Away: true},
			{ID: 4, Pid: 14, User: "bob", Program: "wild", Device: at(99), State: "assigned"},
		},
		Ended: []status.Client{{ID: 9, Pid: 99, User: "carol", Program: "done", State: "unqueued", Kernels: 4}},
		Peers: []status.Peer{{Address: "n2:9421", Node: "n2", Heard: 0.5, Slots: 8, Free: 3, Waiting: 1, Unused: 0.5, Borrowed: 2, Clients: 1}, {Address: "n3:9421", Heard: -1}, {Address: "n1:9421", Node: "n1", Self: true, Heard: -1}},
		Lent:  []status.Lent{{Node: "n4", Device: 0, Slots: 1, Clients: 1, Recalled: true}, {Node: "n5", Device: 1}},
		Served: []status.Served{
			{Node: "n4", Device: 0, Kernels: 17, CopiedIn: 1 << 20, CopiedOut: 1 << 10},
		},
		IVM: &status.IVM{Programs: []status.IVMProgram{{Program: "/opt/dmm", User: "alice", Number: 1, Nodes: 2, Masters: 3, MasterBytes: 3 << 20, Mirrors: 1, MirrorBytes: 1 << 20, PutBytes: 5 << 20, GotBytes: 7 << 20,
			Elements: []status.IVMElement{{Element: 1}, {Element: 2, GPU: at(0)}, {Element: 3}, {Element: 4}, {Element: 5}, {Element: 6}, {Element: 7}}}}},
	}
}

// Each table, as commands print it.
func TestTables(t *testing.T) {
	earlier := rich()
	earlier.Up = 90
	earlier.Devices[0].BusyTime = 10
	all := func() *Cluster {
		return &Cluster{Nodes: []NodeStatus{{Node: "n1", State: api.NodeMixed, Status: rich()}, {Node: "n2", State: api.NodeDown, Error: "it is away"}, {Node: "n3", State: api.NodeIdle, Error: "it did not answer within 5s"}}}
	}
	before := all()
	before.Nodes[0].Status = earlier
	nodes := []api.Node{
		{Name: "n1", State: api.NodeMixed, Connected: true, Cores: 16, CoresUsed: 3, Memory: 64 << 30, MemoryUsed: 8 << 30, Jobs: []uint64{1, 2},
			Load:   &api.NodeLoad{Assigned: 3, Waiting: 2, Longest: 5},
			Reason: "being drained", Notices: []api.Notice{{Name: "gpu-memory", Text: "97 % of the memory of GPU 0 is used"}, {Name: "swap", Text: "2 GiB of programs' memory is swapped per second"}},
			Devices: []api.NodeDevice{{Name: "Big One", Memory: 8 << 30, Speed: 1, Up: true, Used: 2 << 30, Jobs: []uint64{1, 2}, Load: &api.DeviceLoad{Use: 85, Used: 3 << 30, Guaranteed: 2 << 30}}, {Name: "Big One", Memory: 4 << 30, Speed: 1}, {Name: "Big One", Memory: 8 << 30, Speed: 1, Up: true, Load: &api.DeviceLoad{}}}},
		{Name: "n2", State: api.NodeDown, Reason: "power", Cores: 4},
		// The head waits for this one, and has it as it was heard of last.
		{Name: "n3", State: api.NodeIdle, Cores: 4, Devices: []api.NodeDevice{{Name: "Small One", Memory: 1 << 30, Speed: 1, Up: true}}},
	}
	grants := &status.Grants{Node: "n1", Grants: []status.Grant{
		{ID: "17.1.0", User: "alice", Limit: -1, Devices: []status.GrantedDevice{{Device: 0, Name: "A", Clients: 2, Allocated: 1 << 30}, {Device: 1, Name: "B", Memory: 1 << 30}}},
		{ID: "hand", User: "bob", Limit: 0, Devices: []status.GrantedDevice{{Device: 1, Name: "B", Memory: 1 << 20}}},
		{ID: "home", User: "bob", Limit: -1, Devices: []status.GrantedDevice{{Device: 2, Name: "C", Lender: "n2", Reach: model.ReachNode}}},
	}}
	for name, write := range map[string]func(w io.Writer) error{
		"devices":               func(w io.Writer) error { return Devices(rich(), nil, false).WriteText(w) },
		"devices_all":           func(w io.Writer) error { return Devices(rich(), nil, true).WriteText(w) },
		"devices_on_a_terminal": func(w io.Writer) error { return WriteDevices(w, rich(), true, 80) },
		"devices_now":           func(w io.Writer) error { return Devices(rich(), earlier, false).WriteText(w) },
		"clients":               func(w io.Writer) error { return (&ClientView{Device: -1}).Write(w, rich(), 0) },
		"clients_long": func(w io.Writer) error {
			return (&ClientView{Device: -1, Long: true}).Write(w, rich(), 0)
		},
		"clients_long_on_a_terminal": func(w io.Writer) error {
			return (&ClientView{Device: -1, Long: true}).Write(w, rich(), 120)
		},
		"clients_long_of_a_cluster": func(w io.Writer) error {
			return (&ClientView{Device: -1, Long: true}).WriteCluster(w, all(), 80)
		},
		"clients_ended": func(w io.Writer) error { return (&ClientView{Device: -1, Ended: true}).Write(w, rich(), 0) },
		"clients_of_a_cluster": func(w io.Writer) error {
			all().WriteMissing(w)
			return (&ClientView{Device: -1}).WriteCluster(w, all(), 100)
		},
		"top": func(w io.Writer) error {
			p := Picture{}
			if err := p.WriteNode(io.Discard, earlier); err != nil {
				return err
			}
			return p.WriteNode(w, rich())
		},
		"top_of_a_cluster": func(w io.Writer) error {
			p := Picture{Columns: 100}
			if err := p.WriteCluster(w, before); err != nil {
				return err
			}
			fmt.Fprintln(w, "--- and later")
			return p.WriteCluster(w, all())
		},
		"peers":           func(w io.Writer) error { return WritePeers(w, rich(), 0) },
		"no_peers":        func(w io.Writer) error { return WritePeers(w, &status.Node{Node: "n9"}, 0) },
		"grants":          func(w io.Writer) error { return Grants(grants).WriteText(w) },
		"nodes":           func(w io.Writer) error { return WriteNodes(w, nodes, 0) },
		"cluster_devices": func(w io.Writer) error { return DevicesOf(nodes).Write(w, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := write(&b); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(b.String(), "\x1b") {
				t.Errorf("what a program is called reaches the terminal as it is: %q", b.String())
			}
			golden(t, filepath.Join("testdata", name+".txt"), b.String())
		})
	}
}

// A column that says it is a field of the JSON document is one, and no two columns of a table are the
// same. docs/columns.md lists them for people who write scripts.
func TestColumnsAreFields(t *testing.T) {
	var page strings.Builder
	page.WriteString(columnsPage)
	describe(t, &page, "`muster devices`, in `devices`", said(deviceColumns), status.Device{})
	describe(t, &page, "`muster nodes`, in `nodes`", nodeColumns.Said(), api.Node{})
	describe(t, &page, "`muster partitions`, in `partitions`", jobtable.PartitionColumns.Said(), api.Partition{})
	describe(t, &page, "`muster devices --cluster`, in `devices` of each node", clusterDeviceColumns.Said(), ClusterDevice{})
	describe(t, &page, "`muster ps` and `muster top`, in `clients` and `ended`", said(clientColumns), status.Client{})
	describe(t, &page, "`muster ps`, programs with elements, in `ivm.programs`", said(elementColumns), status.IVMProgram{})
	describe(t, &page, "`muster peers`, in `peers`", said(peerColumns), status.Peer{})
	describe(t, &page, "`muster peers`, in `lent`", said(lentColumns), status.Lent{})
	describe(t, &page, "`muster grant list`, in `devices` of each grant", said(grantColumns), status.GrantedDevice{})
	describe(t, &page, "`muster usage`, in `usage`", jobtable.UsageColumns.Said(), api.UsageLine{})
	describe(t, &page, "`muster priorities`, in `jobs`; FACTOR stands for each of a job's factors", jobtable.PriorityColumns([]string{"factor"}).Said(), api.JobPriority{})
	golden(t, "../../docs/columns.md", page.String())
}

const columnsPage = `# Columns and JSON fields

Commands that print tables of nodes, and of what users have used, print the same with ` + "`--json`" + `,
as one document. This page says which field has what a column shows. Tables write sizes and times
for people, as 1.5 GiB or 5m3s; JSON has bytes and seconds. A dash means that the table alone says
it, or says it of another part of the document. The page is made by ` + "`go test ./node/nodetable -update`" + `.
`

func describe(t *testing.T, page *strings.Builder, title string, columns []jsontable.Said, of any) {
	t.Helper()
	fields := map[string]bool{}
	for _, f := range reflect.VisibleFields(reflect.TypeOf(of)) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		fields[name] = true
	}
	fmt.Fprintf(page, "\n## %s\n| column | field |\n|---|---|\n", title)
	seen := map[string]bool{}
	for i := range columns {
		name, shown := columns[i].Name, "–"
		if columns[i].Field != "" {
			parts := strings.Split(columns[i].Field, "/")
			for _, part := range parts {
				if first, _, _ := strings.Cut(part, "."); !fields[first] {
					t.Errorf("%s: column %s is said to be the field %s, which %T does not have", title, name, part, of)
				}
			}
			shown = "`" + strings.Join(parts, "`/`") + "`"
		}
		if seen[name] {
			t.Errorf("%s: there are two columns %s", title, name)
		}
		seen[name] = true
		fmt.Fprintf(page, "| %s | %s |\n", name, shown)
	}
}

// A list without anything in it is an empty list in JSON, so that scripts need not look for null.
func TestNoListIsNull(t *testing.T) {
	nothing := &ClientView{Users: []string{"nobody"}, Device: -1}
	for _, document := range []any{
		DevicesOf([]api.Node{{Name: "n1"}}), DevicesOf(nil), nothing.Of(&status.Node{Devices: []status.Device{}, Clients: []status.Client{{User: "alice"}}, Ended: []status.Client{}}),
	} {
		text, err := json.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "null") {
			t.Errorf("%T: %s", document, text)
		}
	}
}

// JSON says as the table does that the devices of a node of which nothing is heard are away, and has
// their numbers.
func TestDevicesThatAreAway(t *testing.T) {
	all := DevicesOf([]api.Node{{Name: "n1", Devices: []api.NodeDevice{{Up: true}, {Up: false}}}, {Name: "n2", Connected: true, Devices: []api.NodeDevice{{Up: true}, {Up: false}}}})
	var said []string
	for _, n := range all.Nodes {
		for _, d := range n.Devices {
			said = append(said, fmt.Sprintf("%s %v #%d %s %v", n.Node, n.Connected, d.Number, d.State, d.Up))
		}
	}
	want := []string{"n1 false #0 away false", "n1 false #1 away false", "n2 true #0 up true", "n2 true #1 down false"}
	if !slices.Equal(said, want) {
		t.Errorf("%q, want %q", said, want)
	}
}

func TestModelOfNodes(t *testing.T) {
	c := ModelOf([]api.Node{
		{Name: "n1", Cores: 4, Memory: 1 << 30, Devices: []api.NodeDevice{{Name: "Big One", Memory: 1 << 30, Speed: 1}, {Name: "Big One", Memory: 2 << 30, Speed: 1}}},
		{Name: "n2", Cores: 2, Devices: []api.NodeDevice{{Name: "big one", Memory: 2 << 30, Speed: 1}}},
	})
	if got := fmt.Sprint(c.GPUTypes[0].Name, c.GPUTypes[1].Name, c.Nodes[0].GPUs, c.Nodes[1].GPUs, len(c.GPUTypes)); got != "big-onebig-one-2[0 1] [1] 2" {
		t.Error(got)
	}
}
