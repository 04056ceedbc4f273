package workload

import "testing"

// Cores are rounded up, or counted as the log counts them.
func TestOpenbMilliCores(t *testing.T) {
	const text = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,3152,1,1,460\nb,0,1,0,0\n"
	for _, c := range []struct {
		opt  ReadOptions
		want [2]int
	}{{ReadOptions{}, [2]int{4, 1}}, {ReadOptions{MilliCores: true}, [2]int{3152, 1}}} {
		wl, _ := read(t, "x.csv", text, c.opt)
		if got := [2]int{wl.Jobs[0].Request.Cores, wl.Jobs[1].Request.Cores}; got != c.want {
			t.Errorf("%+v: %v cores, want %v", c.opt, got, c.want)
		}
	}
}
