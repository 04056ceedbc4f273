package agentcore

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"muster/model"
	"muster/wire/agent"
)

// ProfilingPeriod is how often the head hears what programs measured, unless it says how often.
const ProfilingPeriod = 5 * time.Second

// load is how busy the node is, and what the head was last told of that on this connection; nil for nothing.
type load struct{ is, told *agent.Load }

// profiles are what the programs of tasks measured, what of it the head was told on this connection, and when.
type profiles struct {
	is, told map[agent.Task]model.Measured
	at       time.Duration
}

// measured takes in what was measured.
func (c *Core) measured(e Measured) {
	if e.Load != nil {
		c.load.is = e.Load
	}
	c.profiles.is = e.Profiles
	maps.DeleteFunc(c.profiles.told, func(id agent.Task, _ model.Measured) bool { _, there := e.Profiles[id]; return !there })
	c.tellLoad()
	if c.ProfilesDue(c.now) {
		c.profiles.at = c.now
		c.tellProfiles(slices.SortedFunc(maps.Keys(e.Profiles), compare)...)
	}
}

// ProfilesDue says whether the head is to hear now what programs measured.
func (c *Core) ProfilesDue(now time.Duration) bool { return now-c.profiles.at >= c.settings.period() }

// tellLoad tells the head how busy the node is, if it does not know.
func (c *Core) tellLoad() {
	if !c.welcome || c.load.is == nil || c.load.told != nil && reflect.DeepEqual(c.load.is, c.load.told) {
		return
	}
	c.load.told = c.load.is
	c.send(*c.load.is)
}

// tellProfiles tells the head of those of some tasks' profiles that it does not know.
func (c *Core) tellProfiles(of ...agent.Task) {
	if !c.welcome {
		return
	}
	var news []agent.Profile
	for _, id := range of {
		if m, measured := c.profiles.is[id]; measured && c.profiles.told[id] != m {
			c.profiles.told[id] = m
			news = append(news, agent.Profile{Task: id, Measured: m})
		}
	}
	if len(news) > 0 {
		c.send(agent.Profiles{Tasks: news})
	}
}
