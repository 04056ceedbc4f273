package settings

import (
	"errors"

	"muster/model"
	"muster/node/offload"
	"muster/node/vgpu"
)

// ErrBorrowsNone and ErrLendsNone say that a threshold of offload means nothing here: it would never be in force.
var (
	ErrBorrowsNone = errors.New("above: this node borrows no virtual GPUs of others (peers and offload in its configuration)")
	ErrLendsNone   = errors.New("keep: this node lends no virtual GPUs to others (listen, grants and offload in its configuration)")
)

// Told is the configuration with what the head of the cluster says in place of what the node's own says.
func (c Config) Told(s model.NodeSettings) (Config, error) {
	if err := s.Check(); err != nil {
		return c, err
	}
	switch {
	case s.Above != 0 && !c.Offload.Borrows():
		return c, ErrBorrowsNone
	case s.Keep != nil && !c.Lends():
		return c, ErrLendsNone
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
