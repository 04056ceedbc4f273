package agentcore

import (
	"reflect"

	"muster/wire/agent"
)

// load is how busy the node is, and what the head was last told of that on this connection; nil for nothing.
type load struct{ is, told *agent.Load }

// tellLoad tells the head how busy the node is, if it does not know.
func (c *Core) tellLoad() {
	if !c.welcome || c.load.is == nil || c.load.told != nil && reflect.DeepEqual(c.load.is, c.load.told) {
		return
	}
	c.load.told = c.load.is
	c.send(*c.load.is)
}
