package ivm

import "unsafe"

// sliceOf makes values of an object's memory, which is not Go's and begins at a page. Nil if there
// is none.
func sliceOf[T any](e *Element, m *mapping, name string, from, n int) *Slice[T] {
	if m == nil {
		return nil
	}
	first := (*T)(unsafe.Pointer(unsafe.SliceData(m.all)))
	return &Slice[T]{Data: unsafe.Slice(first, from+n)[from:], element: e, mapping: m, name: name, first: from}
}
