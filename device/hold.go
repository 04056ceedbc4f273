package device

// Holder is implemented by streams that can wait for the host without one of the driver's threads:
// NVIDIA's driver has one thread for the functions of all streams of a context (Call), so a function
// that waits on it keeps those of all other streams from being called, and copies that need one from
// ending.
type Holder interface {
	// Hold makes later work wait until the function is called that it gives to given, on whatever
	// goroutine, once or more often. It calls given before later work can be held, since submitting may
	// take until then; if it then returns an error, nothing is held, and it has called given again with
	// a function that does nothing. The holds of a stream are released in the order in which they were
	// made, or all of them. Closing the context releases all.
	Hold(given func(release func())) error
}
