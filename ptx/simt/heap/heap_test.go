package heap

import "testing"

// What is freed can be allocated again, and what was not allocated cannot be freed.
func TestMallocAndRelease(t *testing.T) {
	memory := make([]byte, 1<<16)
	h := New(1<<20, uint64(len(memory)))
	use := func(do func(m *Map)) {
		t.Helper()
		if !h.Use(memory, do) {
			t.Fatal("the heap's memory was not taken for a heap")
		}
	}
	var all []uint64
	use(func(m *Map) {
		for at := m.Malloc(1000); at != 0; at = m.Malloc(1000) {
			all = append(all, at)
		}
	})
	if len(all) < 60 || len(all) > 65 {
		t.Errorf("%d allocations of 1000 bytes in a heap of %d", len(all), len(memory))
	}
	use(func(m *Map) {
		if m.Release(all[3] + Unit) {
			t.Error("freed the middle of an allocation")
		}
		for _, at := range all {
			if !m.Release(at) {
				t.Errorf("%d could not be freed", at)
			}
		}
		if m.Release(all[0]) {
			t.Error("freed twice")
		}
	})
	use(func(m *Map) {
		if at := m.Malloc(60_000); at == 0 {
			t.Error("no room although all was freed")
		}
	})
	memory[0]++
	if h.Use(memory, func(*Map) {}) {
		t.Error("a heap whose records were overwritten was used")
	}
}
