package soft

import (
	"errors"
	"strings"
	"testing"

	"muster/device"
)

// stopped returns the state of a kernel of the second of two modules, of which
// the first was unloaded.
func stopped(t *testing.T, d *Device) []byte {
	t.Helper()
	c := openContext(t, d)
	first, err := c.Load([]byte(add))
	must(t, err)
	second, err := c.Load([]byte(sweep))
	must(t, err)
	must(t, first.Unload())
	f, err := second.Function("sweep")
	must(t, err)
	must(t, c.Map(base, granule))
	one := device.Dim{X: 1, Y: 1, Z: 1}
	must(t, newStream(t, c).Launch(f, device.Launch{Grid: one, Block: one, Params: words64(base, granule)}))
	must(t, c.Suspend())
	all, err := c.Stopped()
	must(t, err)
	if len(all) != 1 {
		t.Fatalf("%d kernels", len(all))
	}
	return all[0].State
}

// Restore accepts a kernel only where all its addresses mean the same as before.
func TestRestoreChecksAddresses(t *testing.T) {
	d := newDevice(t, testProfile(), Options{})
	state := stopped(t, d)
	arena := device.Arena{Base: base, Size: 64 * granule}
	for _, test := range []struct {
		what      string
		arena     device.Arena
		images    []string
		unload    bool // the first
		complaint string
	}{
		{"the same", arena, []string{add, sweep}, true, ""},
		{"one module more", arena, []string{add, sweep}, false, ""},
		{"without the module before", arena, []string{sweep}, false, "lie elsewhere"},
		{"another arena", device.Arena{Base: base + 1<<40, Size: arena.Size}, []string{add, sweep}, true, "arena"},
		{"a smaller arena", device.Arena{Base: base, Size: granule}, []string{add, sweep}, true, "arena"},
	} {
		x, err := d.Open(device.Config{Arena: test.arena})
		must(t, err)
		c := x.(*Context)
		must(t, c.Map(test.arena.Base, granule))
		for _, image := range test.images {
			_, err := c.Load([]byte(image))
			must(t, err)
		}
		if test.unload {
			must(t, c.modules[0].Unload())
		}
		s := newStream(t, c)
		err = c.Restore(s, state)
		switch {
		case test.complaint == "" && err != nil:
			t.Errorf("%s: %v", test.what, err)
		case test.complaint != "" && (!errors.Is(err, device.ErrInvalidValue) || !strings.Contains(err.Error(), test.complaint)):
			t.Errorf("%s: answered %v", test.what, err)
		case test.complaint != "":
			if done, err := s.Done(); err != nil || !done {
				t.Errorf("%s: the stream has work (%v)", test.what, err)
			}
		}
		must(t, c.Close())
	}
}
