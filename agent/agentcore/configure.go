package agentcore

import (
	"time"

	"muster/model"
	"muster/wire/agent"
)

// configured is how the head wants the node to serve programs, and how it does.
type configured struct {
	wanted    *model.NodeSettings // what the head said last; nil if it has said nothing
	profiling float64             // of what the daemon agreed to last; 0 if that says nothing
	is        agent.Configured    // as it is, for the head
	told      agent.Configured    // what the head was last told on this connection
}

// period is how often the head hears what programs measured.
func (s *configured) period() time.Duration {
	if s.profiling == 0 {
		return ProfilingPeriod
	}
	return time.Duration(s.profiling * float64(time.Second))
}

// configure has the daemon serve programs as the head says.
func (c *Core) configure(s model.NodeSettings) {
	c.settings.wanted = &s
	c.do(Configure{s})
}

// configured notes what came of that. An answer to what the head has said before its last word is old.
func (c *Core) configured(e Configured) {
	if c.settings.wanted == nil || !c.settings.wanted.Equal(e.Settings) {
		return
	}
	c.settings.is.Told, c.settings.is.Error = e.Settings, e.Error
	if e.Error == "" {
		c.settings.is.InForce, c.settings.profiling = e.InForce, e.Settings.Profiling
	}
	c.tellConfigured()
}

// unreadable notes that the head said what this agent cannot read: the node stays as it is.
func (c *Core) unreadable(reason string) {
	c.settings.is.Error = reason
	c.tellConfigured()
}

// inForce notes how the node serves programs.
func (c *Core) inForce(s model.NodeSettings) {
	c.settings.is.InForce = s
	c.tellConfigured()
}

// tellConfigured tells the head how the node serves programs, if it does not know.
func (c *Core) tellConfigured() {
	is := c.settings.is
	if !is.InForce.IsZero() {
		is.InForce.Profiling = c.settings.period().Seconds()
	}
	if told := &c.settings.told; !c.welcome || told.Error == is.Error && told.Told.Equal(is.Told) && told.InForce.Equal(is.InForce) {
		return
	}
	c.settings.told = is
	c.send(is)
}
