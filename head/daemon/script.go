package daemon

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"muster/policy"
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
	// running is the policy in force, and told how much of its trouble was logged. Only the loop
	// uses them.
	running *script.Policy
	told    script.Trouble

	mu      sync.Mutex
	refused string // why the file is not in force
	trouble string // why the script does not decide, but its fallback
}

// openPolicy makes the policy of the configuration.
func (d *daemon) openPolicy() (policy.Policy, error) {
	if !scriptfile.Is(d.cfg.Policy) || d.ReadScript == nil {
		return d.Policy(d.cfg.Policy)
	}
	file, l, err := scriptfile.Open(d.spec(), d.ReadScript)
	if err != nil {
		return nil, err
	}
	d.script = &scripted{file: file, loaded: make(chan *scriptfile.Loaded), running: l.Script}
	return l.Policy, nil
}

// freshPolicy makes a new instance of the policy in force, for another state.
func (d *daemon) freshPolicy() (policy.Policy, error) {
	if d.script == nil {
		return d.Policy(d.cfg.Policy)
	}
	d.script.looking.Lock()
	defer d.script.looking.Unlock()
	return d.script.file.Fresh()
}

// watchScript checks the file of the policy for changes, until ctx is done.
func (d *daemon) watchScript(ctx context.Context, look <-chan time.Time) {
	if d.script == nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-look:
			d.lookAtScript(ctx)
		}
	}
}

func (d *daemon) lookAtScript(ctx context.Context) {
	s := d.script
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
	if d.script == nil {
		return nil
	}
	return d.script.loaded
}

// takeScript puts a new version of the script in force.
func (l *loop) takeScript(loaded *scriptfile.Loaded) {
	l.script.running.Terminate()
	l.tellTrouble() // log what the old script printed while it ended
	l.core.SetPolicy(loaded.Policy, l.cfg.Policy)
	l.script.running, l.script.told = loaded.Script, script.Trouble{}
	l.script.mu.Lock()
	l.script.trouble = ""
	l.script.mu.Unlock()
	l.log.Info("the file of the policy has changed, and decides from now on", "file", l.script.file.Path())
}

// tellTrouble logs how the script has failed since the last step, and keeps it for requests for the
// head's state.
func (l *loop) tellTrouble() {
	s := l.script
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
