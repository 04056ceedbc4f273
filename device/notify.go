package device

// Notifier is implemented by streams on which Call is an expensive way to learn that work has
// ended. On a device of another node a stream waits for a round trip while Call runs its function.
type Notifier interface {
	// Notify arranges that f is called when all work submitted before has ended. Later work does
	// not wait for f. f must be quick and must not call the device. It is not called if the
	// context ends first.
	Notify(f func()) error
}
