package device

// Checking is a context that can check the memory accesses of kernels. The layer that divides
// the mapped memory into allocations must report them with Know: the device itself knows only
// what is mapped, and would miss an access beyond an allocation that still hits mapped memory.
type Checking interface {
	// Checks says whether kernels are checked.
	Checks() bool
	// Know replaces the list of allocations. The caller must call it before kernels use memory
	// that is new in the list, and must not make two calls at the same time.
	Know(allocated []Arena)
}
