// Package told is what a client's program, its user and its daemon are told of what happens in the worker:
// the result of every call after a fault, the reasons, and what kernels have printed. Devices and goroutines
// that wait for them report here as well as the worker's loop, so each part has a lock of its own. The
// package does not know how a fault is found, nor what comes of it.
package told

import (
	"log/slog"

	"muster/node/clientcore"
	"muster/wire"
)

// Told is all of it.
type Told struct {
	Sticky  Sticky
	Untold  Untold
	Teller  Teller
	Printed Printed
}

// New makes what is told to the program at the other end of shared memory.
func New(program *wire.Shared, now func() clientcore.Time, log *slog.Logger) *Told {
	t := &Told{Teller: Teller{notify: program.Notify, now: now, log: log}, Printed: Printed{announce: program.SetPrint}}
	t.Sticky = Sticky{found: t.Untold.Note, tell: t.Teller.Tell, status: program.SetStatus}
	return t
}

// Overhear has f called before the program's user is told something. It is for tests.
func (t *Told) Overhear(f func()) {
	notify := t.Teller.notify
	t.Teller.notify = func(text string) bool {
		f()
		return notify(text)
	}
}
