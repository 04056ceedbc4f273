package device

import "time"

// Timer is what a stream offers that can tell exactly when its work ran. Of others only
// events between their work can tell it.
type Timer interface {
	// Time has f called for each copy, fill and kernel that is submitted from now on, when
	// it has ended: with the times at which the device began and ended it, and the bytes
	// that it copied or filled. Work that a fault ends is not told. f must be quick and
	// must not call the device; nil ends it. Whoever submits work calls Time, and nobody
	// else does meanwhile.
	Time(f func(begin, end time.Time, bytes uint64))
}
