package device

// Link says what is to become one image.
type Link struct {
	Inputs  []LinkInput
	Options []LinkOption
	// Check says that no image is wanted, but whether each input is right as far as
	// that can be told without the others.
	Check bool
}

// LinkInput is an image, or a host's object or library with device code in it.
type LinkInput struct {
	Kind LinkKind
	Name string // for messages
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

// LinkOption is a wish for compiler and linker, by CUDA's number (CUjit_option), whose
// value is a number.
type LinkOption struct {
	Option uint32
	Value  uint64
}
