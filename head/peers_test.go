package head_test

import (
	"fmt"
	"slices"
	"testing"

	"muster/head"
	"muster/policy/catalog"
	"muster/wire/agent"
)

// A node that asks for peers is told of nodes that are connected and reachable, never of itself,
// and each node is named to as many others as any other.
func TestPeersOfNodes(t *testing.T) {
	p, err := catalog.New("fcfs")
	if err != nil {
		t.Fatal(err)
	}
	core := head.New(head.Config{Cluster: "test"}, p, "fcfs")
	const nodes, hidden, away = 100, 7, 8
	for n := range nodes {
		h := agent.Hello{Version: agent.Version, Node: fmt.Sprint("n", n), Incarnation: "x", Cores: 1, Memory: 1 << 30, Gateway: fmt.Sprintf("n%d:9421", n)}
		if n == hidden {
			h.Gateway = ""
		}
		core.Handle(0, head.Greeted{Session: head.Session(n + 1), Hello: h})
	}
	core.Handle(0, head.HungUp{Session: away + 1})
	core.Take()
	named := map[string]int{}
	for n := range nodes {
		if n == away {
			continue
		}
		core.Handle(0, head.Said{Session: head.Session(n + 1), Message: agent.AskPeers{}})
		effects := core.Take()
		if len(effects.Sends) != 1 {
			t.Fatalf("node %d is told %+v", n, effects.Sends)
		}
		told := effects.Sends[0].Message.(agent.Peers).Gateways
		if len(told) != agent.MaxPeers || slices.Contains(told, fmt.Sprintf("n%d:9421", n)) {
			t.Errorf("node %d is told of %v", n, told)
		}
		for _, g := range told {
			named[g]++
		}
	}
	if named[""] > 0 || named[fmt.Sprintf("n%d:9421", away)] > 0 || len(named) != nodes-2 {
		t.Errorf("nodes that cannot be reached are named, or others are not: %v", named)
	}
	for g, n := range named {
		if n < agent.MaxPeers-2 || n > agent.MaxPeers+2 {
			t.Errorf("%s is named to %d nodes", g, n)
		}
	}
}
