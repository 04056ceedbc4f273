// Package matrix says how the threads of a warp hold a matrix in their registers: which element of
// it each register of each thread has (a fragment), where the elements are that a sparse matrix
// leaves out, and where those of a matrix in shared memory lie. It knows no instruction, no register
// file and no memory; the arithmetic is that of package tensor.
package matrix

import (
	"sync"

	"muster/ptx/simt/tensor"
)

// WarpProduct is what mma and wmma.mma do.
type WarpProduct struct {
	tensor.Product
	Left, Right, Sum, Result *Fragment
}

// SparseProduct is what mma.sp does.
type SparseProduct struct {
	*WarpProduct
	Places Places
}

// GroupProduct is what wgmma.mma_async does for a warp.
type GroupProduct struct {
	WarpProduct
	ByColumnsA, ByColumnsB bool // how the matrices lie in memory: A with columns, B with rows one behind the other
	NegateA, NegateB       bool
	Places                 *Places // of wgmma.sp, which has half of A
}

// A kernel has many products of one kind, and there are few kinds: each is made once, with its
// fragments, for all programs.
var (
	denseKinds  sync.Map // of tensor.Product
	tiledKinds  sync.Map // the same of wmma
	groupKinds  sync.Map // and of wgmma
	sparseKinds sync.Map // and of mma.sp
	halfKinds   sync.Map // and of wgmma.sp
)

func kept(kinds *sync.Map, p tensor.Product, make func() *WarpProduct) *WarpProduct {
	k, ok := kinds.Load(p)
	if !ok {
		k, _ = kinds.LoadOrStore(p, make())
	}
	return k.(*WarpProduct)
}

// Dense returns the product of mma.
func Dense(p tensor.Product) *WarpProduct {
	return kept(&denseKinds, p, func() *WarpProduct {
		return &WarpProduct{p, left(p.A, p.M, p.K), right(p.B, p.K, p.N), sums(p.C, p.M, p.N), sums(p.D, p.M, p.N)}
	})
}

// Sparse returns the product of mma.sp.
func Sparse(p tensor.Product) *WarpProduct {
	return kept(&sparseKinds, p, func() *WarpProduct {
		return &WarpProduct{p, left(p.A, p.M, p.K/2), right(p.B, p.K, p.N), sums(p.C, p.M, p.N), sums(p.D, p.M, p.N)}
	})
}

// Tiled returns the product of wmma.mma.
func Tiled(p tensor.Product) *WarpProduct {
	return kept(&tiledKinds, p, func() *WarpProduct {
		return &WarpProduct{p, FactorTile(p.A, p.M, p.K, false), FactorTile(p.B, p.K, p.N, true), Tile(p.C, p.M, p.N, false), Tile(p.D, p.M, p.N, false)}
	})
}

// Group returns what a warp does of wgmma, with depth columns of A in registers or memory: as many as
// the product has, or half of them if A is sparse.
func Group(p tensor.Product, depth int) *WarpProduct {
	kinds := &groupKinds
	if depth != p.K {
		kinds = &halfKinds
	}
	return kept(kinds, p, func() *WarpProduct {
		c := wideSums(p.C, p.N)
		return &WarpProduct{p, left(p.A, p.M, depth), &Fragment{Format: p.B, Rows: p.K, Cols: p.N, byColumns: true}, c, c}
	})
}
