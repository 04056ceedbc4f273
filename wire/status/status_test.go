package status

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares with a file. Scripts read these documents: a name that changes
// here breaks them.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s (go test ./wire/status -update rewrites it): got\n%s", path, got)
	}
}

// full is a node with something in every field.
func full() Node {
	device := 1
	client := Client{
		ID: 1, Pid: 2, User: "ann", Program: "/bin/<a>", Address: "10.0.0.7:40112", Virtual: 3, Device: &device, State: "assigned", Busy: true, Limit: 4, Allocated: 5, Peak: 6,
		Resident: 7, Swapped: 8, Kernels: 9, BusyTime: 1.5, Waits: 10, WaitTime: 2.5, Preemptions: 11, Rebuilds: 26, Moves: Moves{Auto: 23, ByHand: 24, Drain: 25}, Swaps: 12, SwapIn: 13, SwapOut: 14,
		CopiedIn: 15, CopiedOut: 16, Since: 3.5,
		Ran:   []RanOn{{Device: 0, Kernels: 4, BusyTime: 0.5}, {Device: 1, Kernels: 5, BusyTime: 1}},
		Links: []Link{{From: End{"n1", 0}, To: End{"n1", 1}, Bytes: 4096}},
	}
	ended := client
	ended.ID, ended.Device, ended.State, ended.Busy = 17, nil, "ended", false
	parked := client
	parked.ID, parked.Device, parked.State, parked.Parked, parked.Away = 26, nil, "ready", true, true
	return Node{
		Node: "n1", Pid: 18, Up: 4.5, Policy: "fcfs", SwapSize: 19, Committed: 20,
		Devices: []Device{
			{Name: "Big", Kind: "soft", State: "draining", Removing: true, Speed: 1, Memory: 1 << 40, Free: 21, Slots: 4, Assigned: 1, Busy: 1, BusyTime: 5.5},
			{Number: 1, Name: "Gone", Kind: "cuda", State: "lost", Speed: 0.5, Memory: 22, Lost: true},
			{Number: 2, Name: "Far", Kind: "remote", State: "up", Speed: 1, Memory: 23, Slots: 2, Assigned: 1, Lender: "n\"2"},
		},
		Clients: []Client{client, parked}, Ended: []Client{ended},
		Lent:   []Lent{{Node: "n3", Device: 0, Slots: 2, Recalled: true, Clients: 1}},
		Served: []Served{{Node: "n3", Device: 0, Kernels: 27, CopiedIn: 28, CopiedOut: 29}, {Node: "n4", Device: 1, Kernels: 1}},
		Links:  []Link{{From: End{"n1", -1}, To: End{"n1", 0}, Bytes: 30}, {From: End{"n1", -1}, To: End{"n\"2", 0}, Bytes: 31}, {From: End{"n\"2", 0}, To: End{"n1", -1}, Bytes: 32}},
	}
}

func TestDocuments(t *testing.T) {
	n := full()
	number := 1
	for path, v := range map[string]any{
		"testdata/changed.json": Changed{Number: &number, Device: &n.Devices[1], Client: &n.Clients[0]},
		"testdata/node.json":    n, "testdata/devices.json": Devices{Devices: n.Devices, Node: n.Node}, "testdata/empty.json": Node{Devices: []Device{}, Clients: []Client{}, Ended: []Client{}},
	} {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetIndent("", "  ")
		if err := enc.Encode(v); err != nil {
			t.Fatal(err)
		}
		golden(t, path, b.String())
		// What is written is read: nothing is lost on the way.
		back := reflect.New(reflect.TypeOf(v))
		dec := json.NewDecoder(&b)
		dec.DisallowUnknownFields()
		if err := dec.Decode(back.Interface()); err != nil || !reflect.DeepEqual(back.Elem().Interface(), v) {
			t.Errorf("%s: %+v, %v", path, back.Elem().Interface(), err)
		}
	}
}

// The list of devices says which numbers they have, since those that were removed are left out of it
// unless they are asked for.
func TestDevicesOf(t *testing.T) {
	n := &Node{Node: "n1", Devices: []Device{{Number: 0, State: "removed"}, {Number: 1, State: "up"}}, MPS: &MPS{}}
	if few := DevicesOf(n, false); len(few.Devices) != 1 || few.Devices[0].Number != 1 || few.Node != "n1" || few.MPS != n.MPS {
		t.Errorf("%+v", few)
	}
	if all := DevicesOf(n, true); !reflect.DeepEqual(all.Devices, n.Devices) {
		t.Errorf("%+v", all)
	}
	if none := DevicesOf(&Node{}, false); none.Devices == nil {
		t.Error("a node without devices has no list of them")
	}
}

func TestMetrics(t *testing.T) {
	m := Metrics{
		Node: Node{
			SwapSize: 1 << 30, Committed: 1 << 20,
			Devices: []Device{
				{Name: "Big", State: "up", Memory: 256 << 20, Free: 256 << 20, Slots: 4}, {Name: `a "b\c`, State: "drained", Memory: 128 << 20, Free: 128 << 20, Slots: 4, BusyTime: 1.5},
				{Name: "Out", State: "removed", Memory: 1 << 20},
			},
			Clients: []Client{
				{State: "unqueued"},
				{ID: 7, State: "assigned", User: `al"ice`, Program: "/bin/p", Allocated: 3, Swapped: 4, Kernels: 5, BusyTime: 0.5, WaitTime: 0.25, CopiedIn: 1, CopiedOut: 2, SwapIn: 3, SwapOut: 4},
			},
			IVM: &IVM{
				Programs: []IVMProgram{{Program: "/bin/p", Elements: []IVMElement{{Element: 1}, {Element: 2}}, Masters: 3, Mirrors: 4}},
				Memory:   5 << 20, Started: 6, Puts: 7, Gets: 8, PutBytes: 9, GotBytes: 10,
			},
		},
		States:  []string{"unqueued", "ready", "assigned", "waiting", "failed"},
		Clients: 13, Refused: 13, Kernels: 1<<60 + 3, BusyTime: 1.5, Grants: 2, Denials: 9, Faults: 10, Swaps: 4, SwapIn: 7, SwapOut: 8, CopiedIn: 5, CopiedOut: 6,
		Moves:       Moves{Auto: 14, ByHand: 15, Drain: 16},
		Preemptions: map[string]uint64{"credit": 0, "idle": 3, "memory": 0, "sync": 0},
		Users:       map[string]UserUse{"bob": {Clients: 2, Kernels: 10, BusyTime: 2}, `al"ice`: {Clients: 1, Kernels: 1, BusyTime: 1}},
	}
	from := full()
	m.Node.Node, m.Node.Devices = from.Node, append(m.Node.Devices, from.Devices[2])
	m.Node.Lent, m.Node.Served, m.Node.Links = from.Lent, from.Served, from.Links
	m.Waits.Observe(time.Millisecond)
	m.Waits.Observe(time.Minute)
	var b strings.Builder
	m.WriteText(&b)
	golden(t, "testdata/metrics.txt", b.String())
}

func TestLabels(t *testing.T) {
	for name, want := range map[string]string{"a": `"a"`, "a\"b\\c\nd": `"a\"b\\c\nd"`, "ü\t": "\"ü\t\""} {
		if got := label(name); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
}
