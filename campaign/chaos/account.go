package chaos

import (
	"fmt"
	"strings"
	"time"
)

// account is what happened in an episode, and how far its programs have come.
type account struct {
	began      time.Time
	kernels    map[uint64]uint64 // by client
	progress   uint64            // total number of kernels
	history    []string
	violations []string
}

// note adds an event to the history.
func (a *account) note(format string, args ...any) {
	a.history = append(a.history, fmt.Sprintf("%8.3f s, %d kernels: %s", time.Since(a.began).Seconds(), a.progress, fmt.Sprintf(format, args...)))
}

// violate records a violation.
func (a *account) violate(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	a.note("VIOLATION: %s", text)
	a.violations = append(a.violations, text)
}

// text is the history as text.
func (a *account) text() string { return strings.Join(a.history, "\n") + "\n" }
