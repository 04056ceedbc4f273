package timeline

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// origin is a moment on Go's clock and on the system's, which all processes of the machine share.
// The two are read one after the other, and this process may be interrupted in between: of several
// readings the closest pair counts.
var origin = sync.OnceValues(func() (at time.Time, nanoseconds int64) {
	best := time.Hour
	for range 10 {
		before := time.Now()
		read := monotonic()
		if took := time.Since(before); took < best {
			best, at, nanoseconds = took, before.Add(took/2), read
		}
	}
	return at, nanoseconds
})

// monotonic reads CLOCK_MONOTONIC, as the C library does.
func monotonic() int64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil {
		return 0
	}
	return t.Nano()
}

// At converts a time of this process to nanoseconds of CLOCK_MONOTONIC.
func At(t time.Time) int64 {
	at, nanoseconds := origin()
	return nanoseconds + int64(t.Sub(at))
}

// Now is At of the present.
func Now() int64 { return At(time.Now()) }
