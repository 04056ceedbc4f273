package soft

import (
	"path/filepath"
	"testing"
)

// Every module of the corpus loads, as clang and nvcc wrote it.
func TestCorpusLoads(t *testing.T) {
	files, err := filepath.Glob("../../ptx/testdata/kernels/*.ptx")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files (%v)", len(files), err)
	}
	d := newDevice(t, testProfile(), Options{})
	c := openContext(t, d)
	for _, name := range files {
		m, err := c.Load(readFile(t, name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(m.Functions()) == 0 {
			t.Errorf("%s: no kernels", name)
		}
		for _, g := range m.Globals() {
			if _, ok := c.mem.bytes(g.Address, g.Size); !ok {
				t.Errorf("%s: variable %s is not mapped", name, g.Name)
			}
		}
		must(t, m.Unload())
	}
	if free := d.budget.free(); free != d.info.Memory {
		t.Errorf("%d of %d bytes free after unloading all", free, d.info.Memory)
	}
}
