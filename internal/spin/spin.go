// Package spin says how long this process looks for something that is about to happen before it sleeps:
// waking up takes longer than many waits last, and looking takes a processor from whoever is waited for.
package spin

import "time"

const (
	// Few is how many looks, with a yield after each, most waits within this process end in.
	Few = 32
	// Look is how long one look at a device takes that works by itself. It ends with a yield.
	Look = 4 * time.Microsecond
	// Moment is how long to look for the end of work on a device in this process, which needs the
	// processor.
	Moment = 20 * time.Microsecond
	// Watch is how long to look at a device that works by itself, for which that takes nothing.
	Watch = time.Millisecond
)
