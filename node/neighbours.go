package node

// A node takes a GPU's memory for its own, less the reserve. It cannot know of processes that use
// the GPU without it, such as programs that reach the driver directly, or another node: what those
// hold, workers are refused by the driver, in the middle of a program. So a node that starts looks
// what each GPU has free, and warns its administrator.

// lookForNeighbours looks for memory of NVIDIA GPUs that processes hold which are not the node's.
// It returns at once: a context takes a while to open, and programs need not wait for that.
func (d *daemon) lookForNeighbours() {
	for i, e := range d.stock.Load().entries {
		if e.Kind != "cuda" || !e.here { // other devices are this node's alone
			continue
		}
		go func() {
			found, err := d.probe(e)
			if err != nil {
				return // if it is gone, the first worker that needs it says so
			}
			d.do(func() {
				view := d.core.View()
				if i >= len(view.Devices) {
					return
				}
				own := view.Devices[i].Memory - min(view.Devices[i].Memory, view.Devices[i].Free) + e.info.ContextCost
				if held := heldByOthers(found.Total, found.Free, own); held > e.Reserve+found.Total/neighbourly {
					d.log.Warn("other processes hold memory of a device which this node takes for its own: programs may be refused memory there; end those processes, or leave them their part (reserve)",
						"device", i, "name", e.info.Name, "held_bytes", held, "reserve_bytes", e.Reserve)
				}
			})
		}()
	}
}

// neighbourly is the part of a device's memory, as 1/n, that others may hold without a warning:
// what the driver takes for itself is not known exactly.
const neighbourly = 16

// heldByOthers is how much of a device's memory is neither free nor the node's own.
func heldByOthers(total, free, own uint64) uint64 {
	used := total - min(total, free)
	return used - min(used, own)
}
