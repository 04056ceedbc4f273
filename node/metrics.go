package node

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"muster/node/vgpu"
)

// histogram counts waits by their length.
type histogram struct {
	counts [len(waitBounds)]uint64 // not longer than the bound, and longer than the one before
	count  uint64
	sum    time.Duration
}

var waitBounds = [...]time.Duration{
	100 * time.Microsecond, time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond,
	time.Second, 10 * time.Second, 100 * time.Second,
}

func (h *histogram) observe(d time.Duration) {
	h.count++
	h.sum += d
	for i, bound := range waitBounds {
		if d <= bound {
			h.counts[i]++
			return
		}
	}
}

// writeMetrics writes the text format that Prometheus reads.
func (d *daemon) writeMetrics(w io.Writer, problems []Problem) {
	s := d.picture()
	total := d.past
	states := map[string]int{}
	for state := vgpu.Unqueued; state <= vgpu.Failed; state++ {
		states[state.String()] = 0
	}
	for _, c := range s.Clients {
		states[c.State]++
	}
	for _, c := range d.clients {
		total.add(c.counters)
	}
	metric(w, "muster_clients", "gauge", "Clients by state.")
	for _, state := range slices.Sorted(maps.Keys(states)) {
		fmt.Fprintf(w, "muster_clients{state=%q} %d\n", state, states[state])
	}
	for _, m := range []struct {
		name, help string
		value      func(DeviceStatus) float64
	}{
		{"muster_device_memory_bytes", "Memory of the device that programs may have.", func(d DeviceStatus) float64 { return float64(d.Memory) }},
		{"muster_device_free_bytes", "Memory of the device that no client has.", func(d DeviceStatus) float64 { return float64(d.Free) }},
		{"muster_device_vgpus", "Virtual GPUs on the device.", func(d DeviceStatus) float64 { return float64(d.Slots) }},
		{"muster_device_assigned", "Virtual GPUs that clients have.", func(d DeviceStatus) float64 { return float64(d.Assigned) }},
		{"muster_device_busy_seconds_total", "Time of kernels on the device.", func(d DeviceStatus) float64 { return d.BusyTime }},
	} {
		kind := "gauge"
		if m.name == "muster_device_busy_seconds_total" {
			kind = "counter"
		}
		metric(w, m.name, kind, m.help)
		for i, device := range s.Devices {
			fmt.Fprintf(w, "%s{device=\"%d\",name=%s} %s\n", m.name, i, label(device.Name), number(m.value(device)))
		}
	}
	for _, m := range []struct {
		name, kind, help string
		value            float64
	}{
		{"muster_problems", "gauge", "What is wrong with the node, as /healthz lists it.", float64(len(problems))},
		{"muster_connections", "gauge", "Connections of this machine without a client.", float64(d.places.Taken())},
		{"muster_swap_size_bytes", "gauge", "Size of the swap area.", float64(s.SwapSize)},
		{"muster_swap_committed_bytes", "gauge", "Swap area promised to clients.", float64(s.Committed)},
		{"muster_clients_total", "counter", "Clients that came.", float64(total.clients + uint64(len(d.clients)))},
		{"muster_clients_refused_total", "counter", "Clients that were refused by a limit.", float64(d.refused)},
		{"muster_kernels_total", "counter", "Kernels that ran.", float64(total.kernels)},
		{"muster_busy_seconds_total", "counter", "Time of kernels.", total.busy.Seconds()},
		{"muster_grants_total", "counter", "Times that a client got a device.", float64(total.grants)},
		{"muster_denials_total", "counter", "Requests for a device or memory that were turned down.", float64(total.denials)},
		{"muster_faults_total", "counter", "Faults of programs' kernels.", float64(total.failures)},
		{"muster_swaps_total", "counter", "Times that memory was moved off a device.", float64(total.swaps)},
		{"muster_swap_in_bytes_total", "counter", "Bytes moved from host copies to devices.", float64(total.swapIn)},
		{"muster_swap_out_bytes_total", "counter", "Bytes moved from devices to host copies.", float64(total.swapOut)},
		{"muster_copied_in_bytes_total", "counter", "Bytes that programs copied to devices.", float64(total.copiedIn)},
		{"muster_copied_out_bytes_total", "counter", "Bytes that programs copied from devices.", float64(total.copiedOut)},
	} {
		metric(w, m.name, m.kind, m.help)
		fmt.Fprintf(w, "%s %s\n", m.name, number(m.value))
	}
	metric(w, "muster_preemptions_total", "counter", "Times that a client had to leave its device, by why.")
	for _, why := range []vgpu.Reason{vgpu.ForCredit, vgpu.ForIdle, vgpu.ForMemory, vgpu.ForSync} {
		fmt.Fprintf(w, "muster_preemptions_total{reason=%q} %d\n", why, d.preempted[why])
	}
	d.waits.write(w)
}

func (h *histogram) write(w io.Writer) {
	const name = "muster_wait_seconds"
	metric(w, name, "histogram", "How long clients waited for a device.")
	sum := uint64(0)
	for i, bound := range waitBounds {
		sum += h.counts[i]
		fmt.Fprintf(w, "%s_bucket{le=%q} %d\n", name, number(bound.Seconds()), sum)
	}
	fmt.Fprintf(w, "%s_bucket{le=\"+Inf\"} %d\n%s_sum %s\n%s_count %d\n", name, h.count, name, number(h.sum.Seconds()), name, h.count)
}

func metric(w io.Writer, name, kind, help string) {
	fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// label quotes a label's value; only these three are special there.
func label(s string) string {
	b := []byte{'"'}
	for _, c := range []byte(s) {
		switch c {
		case '\\', '"':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		default:
			b = append(b, c)
		}
	}
	return string(append(b, '"'))
}
