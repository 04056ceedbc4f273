package clusterfile

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"muster/model"
)

const parted = `nodes:
  - {name: "g[1-2]", cores: 8, memory: 22GB}
  - {name: "c[1-4]", cores: 4, memory: 8GB}
partitions:
`

func TestPartitions(t *testing.T) {
	text := parted + `  gpu: {Nodes: "g[1-2]", Default: YES, DefaultTime: 30, MaxTime: 2-00:00:00, MinNodes: 1, MaxNodes: 2, MaxCPUsPerJob: 16, MaxGPUsPerJob: 4, PriorityTier: 3, PriorityJobFactor: 10}
  cpu: {Nodes: "c[1-4]", Lenders: "g[1-2]", State: DRAIN, MaxTime: UNLIMITED, PreemptMode: Requeue, AllowUsers: [alice], AllowAccounts: [physics, maths], AllowQos: [high], DenyAccounts: [art], DenyQos: [low]}
  all: {}
`
	want := []model.Partition{
		{Name: "gpu", Nodes: []string{"g1", "g2"}, Default: true, DefaultTime: 30 * time.Minute, MaxTime: 48 * time.Hour, MinNodes: 1, MaxNodes: 2, MaxCores: 16, MaxGPUs: 4, PriorityTier: 3, PriorityJobFactor: 10},
		{Name: "cpu", Nodes: []string{"c1", "c2", "c3", "c4"}, Lenders: []string{"g1", "g2"}, State: model.PartitionDrain, PriorityTier: 1, PreemptMode: "requeue",
			AllowUsers: []string{"alice"}, AllowAccounts: []string{"physics", "maths"}, AllowQOS: []string{"high"}, DenyAccounts: []string{"art"}, DenyQOS: []string{"low"}},
		{Name: "all", PriorityTier: 1},
	}
	c, err := Read(strings.NewReader(text), "c.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(c.Partitions, want) {
		t.Errorf("read as %+v", c.Partitions)
	}
	var again bytes.Buffer
	if err := Write(&again, c); err != nil {
		t.Fatal(err)
	}
	back, err := Read(&again, "again.yaml")
	if err != nil || !reflect.DeepEqual(back, c) {
		t.Errorf("written and read again: %v, %+v", err, back)
	}
}

func TestPartitionsThatMakeNoSense(t *testing.T) {
	for text, want := range map[string]string{
		"  a: {Nodes: x9}\n":                         `c.yaml:5:3: partition a: there is no node "x9" in the cluster`,
		"  a: {nodes: g1}\n":                         `Nodes`,
		"  a: {Default: YES}\n  b: {Default: YES}\n": `c.yaml:6:3: partitions a and b are both the default: only one can be`,
		"  a: {MaxTime: 60, DefaultTime: 120}\n":     `DefaultTime 2h0m0s is longer than MaxTime 1h0m0s`,
		"  a: {MinNodes: 3, MaxNodes: 2}\n":          `MinNodes 3 is more than MaxNodes 2`,
		"  a: {State: open}\n":                       `must be up, down, drain or inactive, not "open"`,
		"  a: {MaxNodes: 0}\n":                       `must be a whole number from 1 to 2147483647, or UNLIMITED, not "0"`,
		"  a: {MaxTime: 0}\n":                        `must be above 0, or UNLIMITED`,
		"  a: {AllowUsers: alice}\n":                 `AllowUsers must be a list of names`,
		"  a: {PreemptMode: kill}\n":                 `must be off, suspend, move, requeue or cancel, not "kill"`,
		"  a: {Lenders: g1}\n":                       `has all nodes: leave Lenders out`,
		"  a: {PriorityTier: 70000}\n":               `must be a whole number from 0 to 65533`,
		"  \"a b\": {}\n":                            `the name of a partition`,
	} {
		_, err := Read(strings.NewReader(parted+text), "c.yaml")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
