package ranges

import (
	"cmp"
	"slices"

	"muster/device"
)

// Variables are those of all modules of a context, sorted by address: programs have thousands of
// them, and each copy to one must find it.
type Variables []device.Global

func byAddress(a, b device.Global) int {
	return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.Size, b.Size))
}

func (v *Variables) Add(globals []device.Global) {
	for _, g := range globals {
		i, _ := slices.BinarySearchFunc(*v, g, byAddress)
		*v = slices.Insert(*v, i, g)
	}
}

func (v *Variables) Remove(globals []device.Global) {
	for _, g := range globals {
		if i, ok := slices.BinarySearchFunc(*v, g, byAddress); ok {
			*v = slices.Delete(*v, i, i+1)
		}
	}
}

// Hold says whether a range lies in one variable.
func (v Variables) Hold(s Span) bool {
	i, _ := slices.BinarySearchFunc(v, s.From, func(g device.Global, addr uint64) int {
		if g.Address <= addr {
			return -1
		}
		return 1
	})
	return i > 0 && s.To <= v[i-1].Address+v[i-1].Size
}
