package daemon

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"muster/wire/agent"
	"muster/wire/api"
)

// A bound that is crossed is told once, and again only after half of it.
func TestNotices(t *testing.T) {
	var n notices
	n.devices([]agent.Device{{Memory: 1 << 30}, {Memory: 2 << 30}})
	for _, step := range []struct {
		load agent.Load
		want []string
	}{
		{agent.Load{}, nil},
		{agent.Load{Used: []int{1000, 1000}, Waiting: 2, Longest: 50 * time.Second, SwapIn: 1 << 29}, []string{"device 0 is full: 97 % of its memory is used"}},
		{agent.Load{Used: []int{900, 2048}, Waiting: 2, Longest: 100 * time.Second}, []string{"device 1 is full: 100 % of its memory is used", "programs wait long for a device: 2 wait, the first for 00:01:40 or more"}},
		{agent.Load{Used: []int{1024, 2048}, Waiting: 1, Longest: 50 * time.Second, SwapIn: 1 << 30, SwapOut: 1 << 30}, []string{"programs displace each other: 2 GiB of their memory is moved a second"}},
		{agent.Load{Used: []int{100, 1024, 1 << 40}, SwapOut: 1 << 30}, []string{"over: device 0 is full", "over: programs wait long for a device"}},
		{agent.Load{}, []string{"over: programs displace each other"}},
	} {
		var got []string
		n.of(&step.load, func(over bool, notice string) {
			if over {
				notice = "over: " + notice
			}
			got = append(got, notice)
		})
		if !slices.Equal(got, step.want) {
			t.Errorf("%+v: %q, not %q", step.load, got, step.want)
		}
	}
	if fmt.Sprint(n.given) != "map[device 1 is full:true]" {
		t.Error(n.given)
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
	for {
		var nodes api.Nodes
		c.user("").must("GET", "/v1/nodes", nil, &nodes)
		if !slices.ContainsFunc(nodes.Nodes, func(n api.Node) bool { return n.Load == nil || n.Load.Waiting < 9 }) {
			for n, node := range nodes.Nodes {
				if node.Load.Waiting != 9+n {
					t.Errorf("%s: %+v", node.Name, *node.Load)
				}
			}
			return
		}
		time.Sleep(time.Millisecond) // polling, as a user does
	}
}
