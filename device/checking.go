package device

// Checking is a context that can check what kernels do to memory. Whoever divides its
// memory must tell it how, or accesses outside every allocation cannot be found.
type Checking interface {
	// Checks says whether kernels are checked.
	Checks() bool
	// Know says what is allocated from now on. It is called before memory is used that
	// was allocated, never two at a time.
	Know(allocated []Arena)
}
