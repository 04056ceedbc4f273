package device

// Notifier is what a stream offers whose Call costs more than to know when work has ended:
// that of a device far away, where a stream that calls a function waits for its answer.
type Notifier interface {
	// Notify has f called when all work that was submitted before has ended; later work does
	// not wait for it. f must be quick and must not call the device. It is not called if the
	// context ends before.
	Notify(f func()) error
}
