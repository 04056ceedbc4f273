package agent

import (
	"context"
	"math"
	"slices"
	"time"

	"muster/agent/agentcore"
	"muster/model"
	wire "muster/wire/agent"
	"muster/wire/status"
)

// watchDaemon tells the core what devices the node has, whenever that changes, how busy it is, and when the
// daemon comes back. While the daemon is away, its devices count as down.
func (a *agent) watchDaemon(ctx context.Context) {
	ask := a.cfg.Status
	if ask == nil { // there is nothing to be said of a daemon, and something of tasks
		ask = func(context.Context) (*status.Node, error) { return &status.Node{}, nil }
	}
	var told []wire.Device
	var gauge gauge
	var inForce model.NodeSettings
	known, away := false, false
	tick := time.NewTicker(askTime)
	defer tick.Stop()
	for {
		var devices []wire.Device
		s, err := ask(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			if !away {
				a.log.Warn("the node's daemon does not say how it is", "error", err)
			}
			away = true
			for i := range told {
				devices = append(devices, told[i])
				devices[i].Up = false
			}
		case away:
			away = false
			a.post(ctx, agentcore.DaemonBegan{})
		}
		if err == nil {
			devices = DevicesOf(s)
		}
		if !known && err == nil || known && !slices.Equal(told, devices) {
			told = devices
			a.post(ctx, agentcore.Devices{Devices: devices})
		}
		if err == nil && s.Settings != nil && !s.Settings.Equal(inForce) {
			inForce = *s.Settings
			a.post(ctx, agentcore.InForce{Settings: inForce})
		}
		if err == nil {
			if load, ok := gauge.measure(time.Now(), s); ok {
				a.post(ctx, agentcore.Measured{Load: &load, Profiles: profilesOf(s)})
			}
		}
		if !known && err == nil {
			known = true
			close(a.devices)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// lastLookTime is how long the end of a task is held back until its programs have left the daemon, which knows
// all that they did only then. It is a moment, unless the machine has very much to do. The pauses between
// questions grow from firstLook to longestLook.
const (
	lastLookTime = 500 * time.Millisecond
	firstLook    = 5 * time.Millisecond
	longestLook  = 80 * time.Millisecond
)

// look is a task that has ended, and waits until it was measured.
type look struct {
	grant string
	until time.Time
	done  chan struct{}
}

// lastLook measures a task that has ended, before the head is told: its programs on the node's devices have
// done something since the daemon was asked last.
func (a *agent) lastLook(ctx context.Context, k *keeper) {
	f, err := readTask(k.dir)
	if err != nil || f.start.Grant == nil || a.cfg.Status == nil {
		return
	}
	l := look{f.start.Grant.ID, time.Now().Add(lastLookTime), make(chan struct{})}
	select {
	case a.looks <- l:
	case <-ctx.Done():
		return
	}
	select {
	case <-l.done:
	case <-ctx.Done():
	}
}

// lookAtEnds asks the daemon for all tasks that have ended, together.
func (a *agent) lookAtEnds(ctx context.Context) {
	var waiting []look
	pause := firstLook
	for ctx.Err() == nil {
		if len(waiting) == 0 {
			pause = firstLook
			select {
			case l := <-a.looks:
				waiting = append(waiting, l)
			case <-ctx.Done():
				return
			}
		}
		for more := true; more; {
			select {
			case l := <-a.looks:
				waiting = append(waiting, l)
			default:
				more = false
			}
		}
		waiting = a.lookFor(ctx, waiting)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, longestLook)
	}
}

// lookFor asks the daemon once, lets those end that need not wait, and returns the others.
func (a *agent) lookFor(ctx context.Context, waiting []look) (left []look) {
	s, err := a.cfg.Status(ctx)
	there := map[string]bool{}
	if err == nil {
		for i := range s.Clients {
			there[s.Clients[i].Grant] = true
		}
	}
	now := time.Now()
	var over []look
	for _, l := range waiting {
		if there[l.grant] && now.Before(l.until) {
			left = append(left, l)
		} else {
			over = append(over, l)
		}
	}
	if err == nil && len(over) > 0 {
		a.post(ctx, agentcore.Measured{Profiles: profilesOf(s)})
	}
	for _, l := range over {
		close(l.done)
	}
	return left
}

// profilesOf is what the programs of tasks measured on the node's devices. The head gives a grant the name of
// the task that it is for.
func profilesOf(s *status.Node) map[wire.Task]model.Measured {
	all := map[wire.Task]model.Measured{}
	for i := range s.Granted {
		if id, ok := parseTaskID(s.Granted[i].Grant); ok {
			all[id] = s.Granted[i].Measured
		}
	}
	return all
}

// withProcessors adds to what was measured what the node's tasks used of its processors. Only the loop calls it.
func (a *agent) withProcessors(e agentcore.Measured) agentcore.Measured {
	look := a.core.ProfilesDue(now())
	for id, k := range a.keepers {
		m := e.Profiles[id]
		m.CPU = k.processorTime(look).Seconds()
		e.Profiles[id] = m.Rounded()
	}
	return e
}

// measureTime is the least time over which use and traffic are measured. The daemon is asked every askTime: one
// look may be late, and the next one still counts.
const measureTime = askTime / 2

// gauge measures how busy a node is, between one picture of it and a later one.
type gauge struct {
	at  time.Time
	was *status.Node // nil before the first picture
}

// measure takes a picture, and says how busy the node was since the last one that counted; false if that
// is too short a time ago.
func (g *gauge) measure(now time.Time, s *status.Node) (load wire.Load, ok bool) {
	took := now.Sub(g.at)
	if g.was != nil && took < measureTime {
		return load, false
	}
	was := g.was
	if was == nil || was.Pid != s.Pid { // another daemon may count from 0
		was = s
	}
	g.at, g.was = now, s
	for i := range DevicesOf(s) {
		d := &s.Devices[i]
		use := 0
		if i < len(was.Devices) {
			use = min(100, max(0, int(math.Round(100*(d.BusyTime-was.Devices[i].BusyTime)/took.Seconds()))))
		}
		load.Use, load.Used, load.Guaranteed = append(load.Use, use), append(load.Used, mebibytes(d.Used)), append(load.Guaranteed, mebibytes(d.Guaranteed))
	}
	longest := 0.0
	for i := range s.Clients {
		c := &s.Clients[i]
		switch {
		case c.Waiting > 0:
			load.Waiting++
			longest = max(longest, c.Waiting)
		case c.State == "assigned":
			load.Assigned++
		}
	}
	load.Longest = steps(longest)
	load.SwapIn, load.SwapOut = perSecond(s.SwapIn, was.SwapIn, took), perSecond(s.SwapOut, was.SwapOut, took)
	return load, true
}

func mebibytes(n uint64) int { return int(min(n, 1<<60) >> 20) }

// perSecond is how fast a counter has grown, to two digits.
func perSecond(is, was uint64, took time.Duration) uint64 {
	if is <= was {
		return 0
	}
	rate := min(float64(is-was)/took.Seconds(), 1<<59)
	unit := uint64(1)
	for rate/float64(unit) >= 100 {
		unit *= 10
	}
	return uint64(math.Round(rate/float64(unit))) * unit
}

// steps rounds a wait down to 1, 2 or 5 times a power of ten seconds, so that one who waits long is not news
// every second.
func steps(seconds float64) time.Duration {
	most := time.Duration(0)
	for unit := time.Second; unit.Seconds() <= seconds && unit < 1e9*time.Second; unit *= 10 {
		for _, n := range []time.Duration{1, 2, 5} {
			if (n * unit).Seconds() <= seconds {
				most = n * unit
			}
		}
	}
	return most
}
