package settings

import (
	"errors"

	"muster/model"
	"muster/node/offload"
	"muster/node/vgpu"
)

// ErrNoOffload says that the thresholds of offload mean nothing here.
var ErrNoOffload = errors.New("above and keep: this node neither borrows nor lends virtual GPUs (peers and listen in its configuration)")

// Told is the configuration with what the head of the cluster says in place of what the node's own says.
func (c Config) Told(s model.NodeSettings) (Config, error) {
	if err := s.Check(); err != nil {
		return c, err
	}
	if (s.Above != 0 || s.Keep != nil) && !c.Offload.Borrows() && !c.Lends() {
		return c, ErrNoOffload
	}
	if s.VGPUs != 0 {
		c.VGPUs = s.VGPUs
	}
	if s.Sharing == model.Exclusive {
		c.VGPUs = 1
	}
	if s.Policy != "" {
		policy, err := vgpu.ParsePolicy(s.Policy)
		if err != nil {
			return c, err
		}
		c.Policy = policy
	}
	if s.Above != 0 {
		c.Offload.Above = s.Above
	}
	if s.Keep != nil {
		c.Offload.Keep = *s.Keep
	}
	return c, c.Check()
}

// InForce is how the node serves programs, in the words in which the head says it.
func (c *Config) InForce() model.NodeSettings {
	s := model.NodeSettings{VGPUs: min(c.VGPUs, model.MaxVGPUs), Sharing: model.Shared, Policy: c.Policy.String()}
	if c.VGPUs == 1 {
		s.Sharing = model.Exclusive
	}
	if c.Offload.Borrows() {
		s.Above = c.Offload.Above
		if s.Above == 0 {
			s.Above = offload.DefaultAbove
		}
	}
	if keep := c.Offload.Keep; c.Lends() {
		s.Keep = &keep
	}
	return s
}
