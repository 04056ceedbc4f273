package daemon

import (
	"testing"
	"time"

	"muster/internal/await"
	"muster/wire/agent"
	"muster/wire/api"
)

// What the head has heard of a node is clearly less than a second old, when the node's next report comes.
func TestReportsAreLessThanASecondOld(t *testing.T) {
	if sum := agent.LoadPeriod + loadsTime; sum > 9*time.Second/10 {
		t.Errorf("up to %v, and what messages take", sum)
	}
}

// What agents say of their nodes' load is shown, the last of each, also if they say much of it at once.
func TestLoadsAreGathered(t *testing.T) {
	c := start(t, nil)
	for n := range 3 {
		a := c.greet(c.as("", ""), hello(nodeName(n)))
		heard[agent.Welcome](a)
		for waiting := range 10 {
			a.say(agent.Load{Waiting: waiting + n})
		}
	}
	await.Until(t, "the last load of each node is shown", func() bool {
		var nodes api.Nodes
		c.user("").must("GET", "/v1/nodes", nil, &nodes)
		for n, node := range nodes.Nodes {
			if node.Load == nil || node.Load.Waiting != 9+n {
				return false
			}
		}
		return true
	})
}
