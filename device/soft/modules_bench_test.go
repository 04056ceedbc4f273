package soft

import (
	"fmt"
	"testing"

	"muster/device"
)

// Loading and unloading a module costs the same beside many others.
func BenchmarkModules(b *testing.B) {
	for _, n := range []int{1000, 4000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			d, err := New(Profile{Name: "soft", Memory: 64 << 30, Speed: 1, Workers: 1}, Options{})
			if err != nil {
				b.Fatal(err)
			}
			c, err := d.Open(device.Config{Arena: device.Arena{Base: 1 << 40, Size: 1 << 30}})
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			for b.Loop() {
				modules := make([]device.Module, n)
				for i := range modules {
					text := fmt.Sprintf(".version 7.0\n.target sm_70\n.address_size 64\n.visible .global .u32 v%d;\n.visible .entry k%d() { ret; }\n", i, i)
					if modules[i], err = c.Load([]byte(text)); err != nil {
						b.Fatal(err)
					}
				}
				for _, m := range modules {
					if err := m.Unload(); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/module")
		})
	}
}
