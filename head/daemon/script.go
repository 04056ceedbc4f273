package daemon

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"muster/policy"
	"muster/policy/preempt"
	"muster/policy/script"
	"muster/policy/scriptfile"
)

// scriptEvery is how often the head checks the file of a policy for changes.
const scriptEvery = time.Second

// scripted is a policy whose decisions a file makes; nil for other policies.
type scripted struct {
	// looking is held while the file is read and tried. That may take long: the file may have been
	// replaced by a pipe. Neither the loop nor requests for the head's state take this lock.
	looking sync.Mutex
	file    *scriptfile.File
	// loaded delivers policies that the loop takes over.
	loaded chan *scriptfile.Loaded
	gone   chan struct{} // closed when another policy has replaced it
	// running is the policy in force, and told how much of its trouble was logged. Only the loop
	// uses them.
	running *script.Policy
	told    script.Trouble

	mu      sync.Mutex
	refused string // why the file is not in force
	trouble string // why the script does not decide, but its fallback
}

// chosen is a policy that a configuration names, beside its priorities.
type chosen struct {
	name   string
	rules  preempt.Rules
	policy policy.Policy
	script *scripted // nil if it is no script
}

// openPolicy makes the policy of a configuration.
func (d *daemon) openPolicy(cfg *Config) (*chosen, error) {
	c := &chosen{name: cfg.Policy}
	var err error
	if c.rules, err = cfg.rules(); err != nil {
		return nil, err
	}
	if spec := d.fullSpec(c.name, c.rules); !scriptfile.Is(c.name) || d.ReadScript == nil {
		c.policy, err = d.Policy(spec)
	} else {
		var file *scriptfile.File
		var l *scriptfile.Loaded
		if file, l, err = scriptfile.Open(spec, d.ReadScript); err == nil {
			c.policy = l.Policy
			c.script = &scripted{file: file, loaded: make(chan *scriptfile.Loaded), gone: make(chan struct{}), running: l.Script}
		}
	}
	if err != nil {
		return nil, cfg.At("policy", fmt.Errorf("the policy %q: %w", c.name, err))
	}
	return c, nil
}

// fullSpec is the specification of a policy beside priorities.
func (d *daemon) fullSpec(name string, rules preempt.Rules) string {
	if d.Spec != nil {
		return d.Spec(name, rules)
	}
	return name
}

// freshPolicy makes a new instance of the policy in force, for another state.
func (d *daemon) freshPolicy() (policy.Policy, error) {
	c := d.inForce.Load()
	if c.script == nil {
		return d.Policy(d.fullSpec(c.name, c.rules))
	}
	c.script.looking.Lock()
	defer c.script.looking.Unlock()
	return c.script.file.Fresh()
}

// replacePolicy has another policy decide from the next step on.
func (l *loop) replacePolicy(c *chosen) {
	if s := l.inForce.Load().script; s != nil {
		s.running.Terminate()
		l.tellTrouble() // log what it printed while it ended
		close(s.gone)
	}
	l.core.SetPolicy(c.policy, c.name)
	l.inForce.Store(c)
	l.log.Info("another policy decides from now on", "policy", c.name)
}

// watchScript checks the file of the policy for changes, until ctx is done.
func (d *daemon) watchScript(ctx context.Context, look <-chan time.Time) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-look:
			if s := d.inForce.Load().script; s != nil {
				d.lookAtScript(ctx, s)
			}
		}
	}
}

func (d *daemon) lookAtScript(ctx context.Context, s *scripted) {
	s.looking.Lock()
	l, err := s.file.Look()
	wrong := s.file.Wrong()
	s.looking.Unlock()
	s.mu.Lock()
	s.refused = ""
	if wrong != nil {
		s.refused = fmt.Sprintf("the file of the policy was changed and is wrong; the one before stays in force: %v", wrong)
	}
	s.mu.Unlock()
	if err != nil {
		d.log.Error("the file of the policy has changed and is wrong: the one before stays in force", wrongPlace(err)...)
	}
	if l == nil {
		return
	}
	select {
	case s.loaded <- l:
	case <-s.gone:
	case <-ctx.Done():
	case <-d.dead:
	}
}

// wrongPlace is an error of a script with its place, as attributes for the log.
func wrongPlace(err error) []any {
	if e, ok := scriptfile.Place(err); ok {
		return []any{"file", e.File, "line", e.Line, "column", e.Column, "error", e.Message}
	}
	return []any{"error", err}
}

// newScripts delivers the policies to take over; nil if the policy is no script.
func (d *daemon) newScripts() <-chan *scriptfile.Loaded {
	if s := d.inForce.Load().script; s != nil {
		return s.loaded
	}
	return nil
}

// takeScript puts a new version of the script in force.
func (l *loop) takeScript(loaded *scriptfile.Loaded) {
	c := l.inForce.Load()
	s := c.script
	s.running.Terminate()
	l.tellTrouble() // log what the old script printed while it ended
	l.core.SetPolicy(loaded.Policy, c.name)
	s.running, s.told = loaded.Script, script.Trouble{}
	s.mu.Lock()
	s.trouble = ""
	s.mu.Unlock()
	l.log.Info("the file of the policy has changed, and decides from now on", "file", s.file.Path())
}

// tellTrouble logs how the script has failed since the last step, and keeps it for requests for the
// head's state.
func (l *loop) tellTrouble() {
	s := l.inForce.Load().script
	if s == nil {
		return
	}
	for _, line := range s.running.Printed() {
		l.log.Info("the policy says", "file", s.file.Path(), "text", line)
	}
	now := s.running.Trouble()
	if now.Failures == s.told.Failures && now.Failing == s.told.Failing {
		return
	}
	if now.Failures > s.told.Failures && (s.told.Last == nil || *now.Last != *s.told.Last || !s.told.Failing) {
		l.log.Error("the policy failed: its fallback decides", wrongPlace(now.Last)...)
	}
	s.told = now
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trouble = ""
	if now.Failing {
		s.trouble = fmt.Sprintf("the policy fails, and its fallback decides (%d of %d steps failed): %v", now.Failures, now.Steps, now.Last)
	}
}

// problems lists what is wrong with the script.
func (s *scripted) problems() []string {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc([]string{s.refused, s.trouble}, func(p string) bool { return p == "" })
}
