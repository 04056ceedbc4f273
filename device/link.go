package device

// Link describes images to combine into one.
type Link struct {
	Inputs  []LinkInput
	Options []LinkOption
	// Check says that the caller wants no image. It only wants to know whether each input
	// is valid, as far as that can be told without the other inputs.
	Check bool
}

// LinkInput is an image, or an object file or library of the host with device code in it.
type LinkInput struct {
	Kind LinkKind
	Name string // for error messages
	Data []byte
}

// LinkKind says what an input is, by CUDA's number (CUjitInputType).
type LinkKind uint32

// The kinds of inputs.
const (
	LinkCubin LinkKind = iota
	LinkPTX
	LinkFatbin
	LinkObject
	LinkLibrary
	linkKinds
)

// Exists says whether there is such a kind.
func (k LinkKind) Exists() bool { return k < linkKinds }

// LinkOption is an option for compiler and linker that has a numeric value, by CUDA's number
// (CUjit_option).
type LinkOption struct {
	Option uint32
	Value  uint64
}
