package tensorbox

// Mode says which elements of a tensor a copy takes.
type Mode uint8

// The modes.
const (
	Tile Mode = iota
	Im2col
	Rows // four rows of a matrix
)

// NamedRows is how many rows an instruction names in mode Rows.
const NamedRows = 4
