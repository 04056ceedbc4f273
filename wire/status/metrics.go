package status

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"
)

// Metrics is what monitoring asks a node for. Clients by state, devices and the swap area are those
// of the node's status; everything else counts from the node's start, including clients that have
// gone.
type Metrics struct {
	Node Node
	// States are all states that a client can be in; those without a client are written with 0.
	States []string

	Clients     uint64 // clients that have connected
	Refused     uint64 // clients refused by a limit
	Kernels     uint64
	BusyTime    float64
	Grants      uint64
	Denials     uint64
	Faults      uint64
	Turns       uint64  // turns that ended because others waited
	MoveTime    float64 // time spent moving memory to and from devices
	HeldTime    float64 // time that launches were held back for programs of class latency
	Swaps       uint64
	SwapIn      uint64
	SwapOut     uint64
	CopiedIn    uint64
	CopiedOut   uint64
	Preemptions map[string]uint64 // by reason
	Moves       Moves
	Waits       Waits
	Users       map[string]UserUse // what clients that have gone did, by user
	Problems    int                // as /healthz lists them
	Connections int                // connections of the node's machine without a client
}

// Waits counts how long clients waited for a device, by length.
type Waits struct {
	counts [len(waitBounds)]uint64 // waits up to this bound and above the one before
	count  uint64
	sum    time.Duration
}

var waitBounds = [...]time.Duration{
	100 * time.Microsecond, time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond,
	time.Second, 10 * time.Second, 100 * time.Second,
}

// Observe counts one wait.
func (w *Waits) Observe(d time.Duration) {
	w.count++
	w.sum += d
	for i, bound := range waitBounds {
		if d <= bound {
			w.counts[i]++
			return
		}
	}
}

// waitsJSON is the encoding of Waits.
type waitsJSON struct {
	Counts [len(waitBounds)]uint64 `json:"counts"`
	Count  uint64                  `json:"count"`
	Sum    time.Duration           `json:"sum"`
}

// MarshalJSON encodes all fields.
func (w Waits) MarshalJSON() ([]byte, error) {
	return json.Marshal(waitsJSON{w.counts, w.count, w.sum})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (w *Waits) UnmarshalJSON(b []byte) error {
	var j waitsJSON
	err := json.Unmarshal(b, &j)
	*w = Waits{j.Counts, j.Count, j.Sum}
	return err
}

// WriteText writes the text format that Prometheus reads.
func (m *Metrics) WriteText(w io.Writer) {
	m.writeStates(w)
	m.writeDevices(w)
	for _, v := range []struct {
		name, kind, help string
		value            float64
	}{
		{"muster_problems", "gauge", "What is wrong with the node, as /healthz lists it.", float64(m.Problems)},
		{"muster_connections", "gauge", "Connections of this machine without a client.", float64(m.Connections)},
		{"muster_swap_size_bytes", "gauge", "Size of the swap area.", float64(m.Node.SwapSize)},
		{"muster_swap_committed_bytes", "gauge", "Swap area promised to clients.", float64(m.Node.Committed)},
		{"muster_clients_total", "counter", "Clients that came.", float64(m.Clients)},
		{"muster_clients_refused_total", "counter", "Clients that were refused by a limit.", float64(m.Refused)},
		{"muster_kernels_total", "counter", "Kernels that ran.", float64(m.Kernels)},
		{"muster_busy_seconds_total", "counter", "Time of kernels.", m.BusyTime},
		{"muster_grants_total", "counter", "Times that a client got a device.", float64(m.Grants)},
		{"muster_denials_total", "counter", "Requests for a device or memory that were turned down.", float64(m.Denials)},
		{"muster_faults_total", "counter", "Faults of programs' kernels.", float64(m.Faults)},
		{"muster_turns_total", "counter", "Turns on a device that ended because others waited.", float64(m.Turns)},
		{"muster_move_seconds_total", "counter", "Time that moving memory to devices and from them took.", m.MoveTime},
		{"muster_held_seconds_total", "counter", "Time that launches were held back for programs of class latency.", m.HeldTime},
		{"muster_swaps_total", "counter", "Times that memory was moved off a device.", float64(m.Swaps)},
		{"muster_swap_in_bytes_total", "counter", "Bytes brought back to devices after they made room or for a turn.", float64(m.SwapIn)},
		{"muster_swap_out_bytes_total", "counter", "Bytes moved off devices to make room or for a turn.", float64(m.SwapOut)},
		{"muster_copied_in_bytes_total", "counter", "Bytes that programs copied to devices.", float64(m.CopiedIn)},
		{"muster_copied_out_bytes_total", "counter", "Bytes that programs copied from devices.", float64(m.CopiedOut)},
	} {
		metric(w, v.name, v.kind, v.help)
		fmt.Fprintf(w, "%s %s\n", v.name, number(v.value))
	}
	m.writeMPS(w)
	m.writeIVM(w)
	m.writeLinks(w)
	m.writeUsers(w)
	m.writeClients(w)
	metric(w, "muster_preemptions_total", "counter", "Times that a client had to leave its device, by why.")
	for _, why := range slices.Sorted(maps.Keys(m.Preemptions)) {
		fmt.Fprintf(w, "muster_preemptions_total{reason=%q} %d\n", why, m.Preemptions[why])
	}
	metric(w, "muster_moves_total", "counter", "Times that a client with memory on a device was given another one, by why.")
	for _, v := range []struct {
		why string
		n   uint64
	}{{"auto", m.Moves.Auto}, {"by_hand", m.Moves.ByHand}, {"drain", m.Moves.Drain}} {
		fmt.Fprintf(w, "muster_moves_total{reason=%q} %d\n", v.why, v.n)
	}
	m.Waits.write(w)
}

// writeLinks writes what is borrowed and lent, and the bytes that went between places.
func (m *Metrics) writeLinks(w io.Writer) {
	borrowed := m.Node.Borrows()
	metric(w, "muster_borrowed_vgpus", "gauge", "Virtual GPUs that the node has of another one.")
	for _, b := range borrowed {
		fmt.Fprintf(w, "muster_borrowed_vgpus{node=%s} %d\n", label(b.Node), b.Slots)
	}
	metric(w, "muster_borrowed_programs", "gauge", "Programs of the node that are on virtual GPUs of another one.")
	for _, b := range borrowed {
		fmt.Fprintf(w, "muster_borrowed_programs{node=%s} %d\n", label(b.Node), b.Clients)
	}
	for _, v := range []struct {
		name, kind, help string
		value            func(Served, Lent) uint64
	}{
		{"muster_lent_vgpus", "gauge", "Virtual GPUs of the device that another node has tickets for.", func(_ Served, l Lent) uint64 { return uint64(l.Slots) }},
		{"muster_lent_programs", "gauge", "Programs of another node that are on the device.", func(_ Served, l Lent) uint64 { return uint64(l.Clients) }},
		{"muster_lent_kernels_total", "counter", "Kernels that ran on the device for programs of another node.", func(s Served, _ Lent) uint64 { return s.Kernels }},
		{"muster_lent_in_bytes_total", "counter", "Bytes that another node copied to the device.", func(s Served, _ Lent) uint64 { return s.CopiedIn }},
		{"muster_lent_out_bytes_total", "counter", "Bytes that another node copied from the device.", func(s Served, _ Lent) uint64 { return s.CopiedOut }},
	} {
		metric(w, v.name, v.kind, v.help)
		for _, s := range m.Node.Served { // includes all nodes that have something of the device now
			var lent Lent
			if i := slices.IndexFunc(m.Node.Lent, func(l Lent) bool { return l.Node == s.Node && l.Device == s.Device }); i >= 0 {
				lent = m.Node.Lent[i]
			}
			fmt.Fprintf(w, "%s{node=%s,device=\"%d\"} %d\n", v.name, label(s.Node), s.Device, v.value(s, lent))
		}
	}
	if p := m.Node.Parcels; p != nil {
		metric(w, "muster_parcel_given_bytes_total", "counter", "Bytes of guests that another lender fetched from this node.")
		fmt.Fprintf(w, "muster_parcel_given_bytes_total %d\n", p.Given)
		metric(w, "muster_parcel_fetched_bytes_total", "counter", "Bytes of guests that this node fetched from another lender.")
		fmt.Fprintf(w, "muster_parcel_fetched_bytes_total %d\n", p.Fetched)
	}
	if s := m.Node.Sessions; s != nil {
		metric(w, "muster_sessions_cut", "gauge", "Sessions of programs on other machines that have no connection at present.")
		fmt.Fprintf(w, "muster_sessions_cut %d\n", s.Cut)
		metric(w, "muster_sessions_resumed_total", "counter", "How often a session went on over a new connection.")
		fmt.Fprintf(w, "muster_sessions_resumed_total %d\n", s.Resumed)
		metric(w, "muster_sessions_kept_bytes", "gauge", "Bytes of sessions that are kept to be sent again.")
		fmt.Fprintf(w, "muster_sessions_kept_bytes %d\n", s.Kept)
	}
	metric(w, "muster_link_bytes_total", "counter", "Bytes of programs' memory and copies that went from one place to another.")
	for _, l := range m.Node.Links {
		fmt.Fprintf(w, "muster_link_bytes_total{from_node=%s,from=%s,to_node=%s,to=%s} %d\n", label(l.From.Node), label(l.From.Place()), label(l.To.Node), label(l.To.Place()), l.Bytes)
	}
}

// writeMPS writes how programs share GPUs under MPS, if the node is configured for it.
func (m *Metrics) writeMPS(w io.Writer) {
	mps := m.Node.MPS
	if mps == nil {
		return
	}
	up := 0
	if mps.Up {
		up = 1
	}
	metric(w, "muster_mps_up", "gauge", "Whether programs share GPUs under MPS.")
	fmt.Fprintf(w, "muster_mps_up %d\n", up)
	metric(w, "muster_mps_restarts_total", "counter", "Times that the MPS control daemon was started again.")
	fmt.Fprintf(w, "muster_mps_restarts_total %d\n", mps.Restarts)
	metric(w, "muster_mps_faults_total", "counter", "Faults that all programs of a device saw.")
	fmt.Fprintf(w, "muster_mps_faults_total %d\n", mps.Faults)
}

// writeIVM writes what programs with elements have here, if there were any.
func (m *Metrics) writeIVM(w io.Writer) {
	ivm := m.Node.IVM
	if ivm == nil {
		return
	}
	elements, masters, mirrors := 0, 0, 0
	for _, p := range ivm.Programs {
		elements, masters, mirrors = elements+len(p.Elements), masters+p.Masters, mirrors+p.Mirrors
	}
	metric(w, "muster_ivm_objects", "gauge", "Objects of programs with elements, by what the node has of them.")
	fmt.Fprintf(w, "muster_ivm_objects{copy=\"master\"} %d\nmuster_ivm_objects{copy=\"mirror\"} %d\n", masters, mirrors)
	for _, v := range []struct {
		name, kind, help string
		value            uint64
	}{
		{"muster_ivm_programs", "gauge", "Programs with elements that have this node.", uint64(len(ivm.Programs))},
		{"muster_ivm_elements", "gauge", "Elements on this node.", uint64(elements)},
		{"muster_ivm_memory_bytes", "gauge", "Memory that objects take at most, with what is kept to compare them with.", ivm.Memory},
		{"muster_ivm_elements_total", "counter", "Elements that were started.", ivm.Started},
		{"muster_ivm_puts_total", "counter", "Puts of mirrors on this node.", ivm.Puts},
		{"muster_ivm_gets_total", "counter", "Gets of mirrors on this node.", ivm.Gets},
		{"muster_ivm_put_bytes_total", "counter", "Bytes that puts sent to other nodes.", ivm.PutBytes},
		{"muster_ivm_got_bytes_total", "counter", "Bytes that gets and maps brought from other nodes.", ivm.GotBytes},
	} {
		metric(w, v.name, v.kind, v.help)
		fmt.Fprintf(w, "%s %d\n", v.name, v.value)
	}
}

func (m *Metrics) writeStates(w io.Writer) {
	states := map[string]int{}
	for _, state := range m.States {
		states[state] = 0
	}
	for _, c := range m.Node.Clients {
		states[c.State]++
	}
	metric(w, "muster_clients", "gauge", "Clients by state.")
	for _, state := range slices.Sorted(maps.Keys(states)) {
		fmt.Fprintf(w, "muster_clients{state=%q} %d\n", state, states[state])
	}
}

func (m *Metrics) writeDevices(w io.Writer) {
	for _, v := range []struct {
		name, kind, help string
		value            func(Device) float64
	}{
		{"muster_device_up", "gauge", "Whether the device takes programs: not while it is drained or lost.", func(d Device) float64 { return oneIf(d.State == "up") }},
		{"muster_device_memory_bytes", "gauge", "Memory of the device that programs may have.", func(d Device) float64 { return float64(d.Memory) }},
		{"muster_device_free_bytes", "gauge", "Memory of the device that no client has.", func(d Device) float64 { return float64(d.Free) }},
		{"muster_device_vgpus", "gauge", "Virtual GPUs on the device.", func(d Device) float64 { return float64(d.Slots) }},
		{"muster_device_assigned", "gauge", "Virtual GPUs that clients have.", func(d Device) float64 { return float64(d.Assigned) }},
		{"muster_device_busy_seconds_total", "counter", "Time of kernels on the device.", func(d Device) float64 { return d.BusyTime }},
		{"muster_device_mapped_kernels_total", "counter", "Kernels that ran on the device for programs that are at home on another.", func(d Device) float64 { return float64(d.MappedKernels) }},
		{"muster_device_mapped_in_bytes_total", "counter", "Bytes that were copied to the device for those.", func(d Device) float64 { return float64(d.MappedIn) }},
	} {
		metric(w, v.name, v.kind, v.help)
		for i, device := range m.Node.Devices {
			if device.State == "removed" {
				continue
			}
			fmt.Fprintf(w, "%s{device=\"%d\",name=%s} %s\n", v.name, i, label(device.Name), number(v.value(device)))
		}
	}
}

func (w *Waits) write(out io.Writer) {
	const name = "muster_wait_seconds"
	metric(out, name, "histogram", "How long clients waited for a device.")
	sum := uint64(0)
	for i, bound := range waitBounds {
		sum += w.counts[i]
		fmt.Fprintf(out, "%s_bucket{le=%q} %d\n", name, number(bound.Seconds()), sum)
	}
	fmt.Fprintf(out, "%s_bucket{le=\"+Inf\"} %d\n%s_sum %s\n%s_count %d\n", name, w.count, name, number(w.sum.Seconds()), name, w.count)
}

func metric(w io.Writer, name, kind, help string) {
	fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
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
