package chaos

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// effects are the faults that are still in effect, and the excuses that nobody has taken.
type effects struct {
	*account
	undos     []undo
	armed     map[string]fault // failures by rule that no program has met yet, by trigger file
	unclaimed []excuse         // excuses of programs that are not known
	ambient   []excuse         // excuses of lasting faults, for programs that start meanwhile
}

// undo ends a temporary fault.
type undo struct {
	what     string
	at       uint64    // total number of kernels at which it is due
	deadline time.Time // when it is due even without progress
	do       func() error
}

// later schedules the undoing of a fault.
func (e *effects) later(f fault, most time.Duration, what string, do func() error) {
	e.undos = append(e.undos, undo{fmt.Sprintf("%v: %s", f, what), e.progress + f.length, time.Now().Add(most), do})
}

// isUndone says whether no fault of these kinds is still in effect.
func (e *effects) isUndone(kinds ...Kind) bool {
	return !slices.ContainsFunc(e.undos, func(u undo) bool {
		return slices.ContainsFunc(kinds, func(k Kind) bool { return strings.Contains(u.what, ": "+string(k)+": ") })
	})
}

// undoDue undoes the faults that are due, or all.
func (e *effects) undoDue(all bool) error {
	var err error
	e.undos = slices.DeleteFunc(e.undos, func(u undo) bool {
		if !all && e.progress < u.at && time.Now().Before(u.deadline) {
			return false
		}
		e.note("%s", u.what)
		if wrong := u.do(); wrong != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", u.what, wrong))
		}
		return true
	})
	return err
}

// claim judges a program. If it is wrong without an excuse, claim tries the excuses that no program
// has taken.
func (e *effects) claim(p *program) (outcome, error) {
	how, err := p.judge()
	for i, x := range e.unclaimed {
		if err == nil {
			break
		}
		p.excuses = append(p.excuses, x)
		if how, err = p.judge(); err == nil {
			e.unclaimed = slices.Delete(e.unclaimed, i, i+1)
			break
		}
		p.excuses = p.excuses[:len(p.excuses)-1]
	}
	return how, err
}

// calm takes back the excuse of a lasting fault.
func (e *effects) calm(f fault) {
	e.ambient = slices.DeleteFunc(e.ambient, func(x excuse) bool { return x.fault == f.String() })
}
