package model

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"muster/internal/seeds"
)

func fourNodes() *Cluster {
	return &Cluster{
		GPUTypes: []GPUType{{Name: "g", Speed: 1}},
		Nodes: []Node{
			{Name: "node0", Cores: 4, GPUs: []int{0, 0}}, {Name: "node1", Cores: 4, GPUs: []int{0}},
			{Name: "node2", Cores: 4}, {Name: "node3", Cores: 4, GPUs: []int{0, 0, 0}},
		},
	}
}

func TestDeviceEnvironment(t *testing.T) {
	for _, c := range []struct {
		name string
		a    Allocation
		part int
		want string
	}{
		{"none", Allocation{Parts: []Part{{Node: 2, Cores: 1}}}, 0, "RCUDA_DEVICE_COUNT=0"},
		{"local", Allocation{Parts: []Part{{Node: 3, GPUs: 0b101}}}, 0,
			"RCUDA_DEVICE_COUNT=2 RCUDA_DEVICE_0=node3:0 RCUDA_DEVICE_1=node3:2"},
		{"own node first, then as granted", Allocation{
			Parts:  []Part{{Node: 1}},
			Grants: []Grant{{Node: 3, Device: 2}, {Node: 0, Device: 1}, {Node: 1, Device: 0, Memory: 5}},
		}, 0, "RCUDA_DEVICE_COUNT=3 RCUDA_DEVICE_0=node1:0 RCUDA_DEVICE_1=node3:2 RCUDA_DEVICE_2=node0:1"},
		{"one part", Allocation{
			Parts:  []Part{{Node: 0, GPUs: 1}, {Node: 2}},
			Grants: []Grant{{For: 1, Node: 3, Device: 0}, {For: 0, Node: 0, Device: 1, Memory: 5}},
		}, 1, "RCUDA_DEVICE_COUNT=1 RCUDA_DEVICE_0=node3:0"},
		{"whole job", Allocation{
			Parts: []Part{{Node: 0, GPUs: 1}, {Node: 3}},
			Grants: []Grant{
				{For: 0, Node: 3, Device: 2, Memory: 5}, {For: 1, Node: 3, Device: 2, Memory: 5},
				{For: 1, Node: 1, Device: 0}, {For: 1, Node: 0, Device: 1},
			},
		}, -1, "RCUDA_DEVICE_COUNT=4 RCUDA_DEVICE_0=node0:0 RCUDA_DEVICE_1=node0:1 RCUDA_DEVICE_2=node3:2 RCUDA_DEVICE_3=node1:0"},
	} {
		if got := strings.Join(c.a.DeviceEnvironment(fourNodes(), c.part), " "); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, got, c.want)
		}
	}
}

// TestDeviceEnvironmentHoldsTogether: every device of every part is named once in
// that of the job, the parts' own come first, and the count is right.
func TestDeviceEnvironmentHoldsTogether(t *testing.T) {
	c := fourNodes()
	seeds.Check(t, func(t *rapid.T) {
		var a Allocation
		for n := range c.Nodes {
			if rapid.Bool().Draw(t, "hosts") {
				mask := uint64(1)<<len(c.Nodes[n].GPUs) - 1
				a.Parts = append(a.Parts, Part{Node: int32(n), GPUs: rapid.Uint64().Draw(t, "gpus") & mask})
			}
		}
		for n := range c.Nodes {
			for d := range c.Nodes[n].GPUs {
				for p := range a.Parts {
					whole := a.Parts[p].Node == int32(n) && a.Parts[p].GPUs>>d&1 == 1
					if !whole && rapid.Bool().Draw(t, "grant") {
						a.Grants = append(a.Grants, Grant{For: int32(p), Node: int32(n), Device: int32(d), Memory: 1})
					}
				}
			}
		}
		want := map[string]bool{}
		for p := range a.Parts {
			env := a.DeviceEnvironment(c, p)
			if env[0] != "RCUDA_DEVICE_COUNT="+strconv.Itoa(len(env)-1) {
				t.Fatalf("got %q", env)
			}
			borrowing := false
			for i, line := range env[1:] {
				name, device, _ := strings.Cut(line, "=")
				if name != "RCUDA_DEVICE_"+strconv.Itoa(i) {
					t.Fatalf("got %q", env)
				}
				own := strings.HasPrefix(device, c.Nodes[a.Parts[p].Node].Name+":")
				if own && borrowing {
					t.Fatalf("its own come after others: %q", env)
				}
				borrowing = !own
				want[device] = true
			}
		}
		all := a.DeviceEnvironment(c, -1)
		var got []string
		for _, line := range all[1:] {
			_, device, _ := strings.Cut(line, "=")
			got = append(got, device)
		}
		slices.Sort(got)
		if n := len(slices.Compact(got)); n != len(all)-1 || n != len(want) {
			t.Fatalf("%q names %d devices, the parts have %d", all, n, len(want))
		}
		for _, device := range got[:len(want)] {
			if !want[device] {
				t.Fatalf("%s serves no part", device)
			}
		}
	})
}
