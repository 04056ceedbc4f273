package device

import "time"

// Timer is implemented by streams that report exactly when each piece of work ran. On other
// streams the caller can only record events around the work.
type Timer interface {
	// Time arranges that f is called at the end of each copy, fill and kernel submitted from
	// now on, with the times at which the device began and ended it, and the bytes that it
	// copied or filled. Work that ends in a fault is not reported. f must be quick and must
	// not call the device; nil stops the reports. Time is not synchronised: the goroutine
	// that submits work to the stream must be the one that calls it.
	Time(f func(begin, end time.Time, bytes uint64))
}
