package agent

import (
	"cmp"
	"errors"

	"muster/model"
)

// Configure tells a node how to serve programs: all that the head says of that, so that what an earlier Configure
// said and this one leaves out is as the node's own configuration has it. The head sends it when it changes, and
// after each greeting. A node without a head that tells it otherwise goes on as it was told last.
type Configure struct {
	Settings model.NodeSettings `json:"settings"`
}

// Configured says how the node serves programs. The agent sends it after each Configure, and whenever it has
// changed, after each greeting at first.
type Configured struct {
	// Told is what the head said last, nothing if it has said nothing since the agent began, and Error why the
	// node is not as it says. The node goes on as it was then.
	Told  model.NodeSettings `json:"told,omitzero"`
	Error string             `json:"error,omitempty"`
	// InForce is how the node is; nothing if the agent does not know.
	InForce model.NodeSettings `json:"in_force,omitzero"`
}

func (Configure) Kind() string  { return "configure" }
func (Configured) Kind() string { return "configured" }
func (Configure) toAgent()      {}
func (Configured) toHead()      {}

func (c Configure) check() error { return c.Settings.Check() }

func (c Configured) check() error {
	if !goodText(c.Error, MaxReason) {
		return errors.New("an error that is no text")
	}
	return cmp.Or(c.Told.Check(), c.InForce.Check())
}
