// Package shape has the sizes of what a launch runs: the grid, its blocks and their threads, and the
// limits of each. It knows no kernel, no instruction and no memory.
package shape

import "fmt"

// WarpSize is the number of threads that vote, shuffle and match together.
const WarpSize = 32

// The limits of a launch, those of current GPUs.
const (
	MaxThreads   = 1024 // of a block
	MaxBlockX    = 1024
	MaxBlockY    = 1024
	MaxBlockZ    = 64
	MaxCluster   = 16 // blocks
	MaxBarriers  = 16 // of a block, beside that of its cluster
	MaxGridX     = 1<<31 - 1
	MaxGridY     = 65535
	MaxGridZ     = 65535
	MaxShared    = 227 << 10 // bytes a block, static and dynamic
	MaxLocal     = 512 << 10 // bytes a thread, the stack of calls included
	DefaultStack = 16 << 10  // bytes a thread for the frames of called functions
)

// Dim is a size or a position in three dimensions.
type Dim struct{ X, Y, Z uint32 }

// Count returns X*Y*Z.
func (d Dim) Count() uint64 { return uint64(d.X) * uint64(d.Y) * uint64(d.Z) }

// String returns (x,y,z).
func (d Dim) String() string { return fmt.Sprintf("(%d,%d,%d)", d.X, d.Y, d.Z) }

// Split returns the position of the n-th element of a box, x first.
func Split(n uint64, size Dim) Dim {
	if n < uint64(size.X) {
		return Dim{X: uint32(n)}
	}
	x, y := uint64(size.X), uint64(size.Y)
	return Dim{X: uint32(n % x), Y: uint32(n / x % y), Z: uint32(n / x / y)}
}

// Round returns n rounded up to a multiple.
func Round(n, to int) int { return (n + to - 1) / to * to }
