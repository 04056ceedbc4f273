// Package cputime reads how much CPU time a thread has used. It knows nothing of what the thread does.
package cputime

import (
	"time"

	"golang.org/x/sys/unix"
)

// OfThread returns the CPU time of the calling thread, or 0 if the system does not tell it. (getrusage
// would tell it at the clock's ticks only.)
func OfThread() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
