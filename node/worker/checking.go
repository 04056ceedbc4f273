package worker

import "muster/device"

// tellAllocations tells devices that check the memory accesses of kernels what the program has
// allocated.
func (w *worker) tellAllocations() {
	var allocated []device.Arena
	for _, r := range w.core.Allocations() {
		allocated = append(allocated, device.Arena{Base: r.Addr, Size: r.Size})
	}
	for _, g := range w.gpus {
		if c, ok := g.context.(device.Checking); ok && c.Checks() {
			c.Know(allocated)
		}
	}
}
