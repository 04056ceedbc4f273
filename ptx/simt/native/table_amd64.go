//go:build linux && amd64

package native

// table holds something for each register of a kernel. Registers are numbered densely,
// so that this is an array: maps would take a good part of the compiler's time.
type table[T any] [Predicate + 1][]T

// slotCounts is how many slots there are of each class, and one for slot -1.
type slotCounts [Predicate + 1]int32

func (n *slotCounts) cover(r Ref) { n[r.Class] = max(n[r.Class], r.Slot+2) }

// countSlots covers all registers of a kernel.
func countSlots(k *Kernel) (n slotCounts) {
	for r := range k.Constants {
		n.cover(r)
	}
	for i := range k.Ops {
		o := &k.Ops[i]
		n.cover(o.D)
		for _, list := range [...][]Ref{o.Sources, o.Elements, o.Reads, o.Writes} {
			for _, r := range list {
				n.cover(r)
			}
		}
	}
	return n
}

func newTable[T any](n *slotCounts) (t table[T]) {
	total := int32(0)
	for _, count := range n {
		total += count
	}
	all := make([]T, total)
	for class, count := range n {
		t[class], all = all[:count:count], all[count:]
	}
	return t
}

func (t *table[T]) at(r Ref) *T { return &t[r.Class][r.Slot+1] }

func (t *table[T]) clear() {
	for _, row := range t {
		clear(row)
	}
}
