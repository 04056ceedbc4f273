package node

import (
	"os"
	"time"

	"muster/node/vgpu"
	"muster/wire"
)

// Status is the picture of a node that people get. Times are in seconds, sizes
// in bytes.
type Status struct {
	Node      string         `json:"node"`
	Pid       int            `json:"pid"`
	Up        float64        `json:"up"`
	Policy    string         `json:"policy"`
	SwapSize  uint64         `json:"swap_size"`
	Committed uint64         `json:"swap_committed"`
	Devices   []DeviceStatus `json:"devices"`
	Clients   []ClientStatus `json:"clients"`
	Ended     []ClientStatus `json:"ended"`              // the last that ended, the latest last
	Draining  bool           `json:"draining,omitempty"` // it is shutting down, and takes no programs
	Problems  []Problem      `json:"problems,omitempty"`
}

// DeviceStatus is one device.
type DeviceStatus struct {
	Name     string  `json:"name"`
	Kind     string  `json:"kind"`
	Speed    float64 `json:"speed"`
	Memory   uint64  `json:"memory"`
	Free     uint64  `json:"free"`
	Slots    int     `json:"vgpus"`
	Assigned int     `json:"assigned"`
	Busy     int     `json:"busy"`      // clients with work under way
	BusyTime float64 `json:"busy_time"` // of kernels, since the node began
	Lost     bool    `json:"lost,omitempty"`
}

// ClientStatus is one client.
type ClientStatus struct {
	ID          uint64  `json:"client"`
	Pid         int32   `json:"pid"`
	User        string  `json:"user"`
	Program     string  `json:"program"`
	Virtual     int     `json:"virtual_device"`
	Device      *int    `json:"device"` // null where it has none
	State       string  `json:"state"`
	Busy        bool    `json:"busy"`
	Limit       uint64  `json:"memory_limit"`
	Allocated   uint64  `json:"memory_allocated"`
	Peak        uint64  `json:"memory_peak"` // the most that it had allocated, as far as was seen
	Resident    uint64  `json:"memory_resident"`
	Swapped     uint64  `json:"memory_swapped"`
	Kernels     uint64  `json:"kernels"`
	BusyTime    float64 `json:"busy_time"`
	Waits       uint64  `json:"waits"`
	WaitTime    float64 `json:"wait_time"`
	Preemptions uint64  `json:"preemptions"`
	Swaps       uint64  `json:"swaps"`
	SwapIn      uint64  `json:"swap_in"`
	SwapOut     uint64  `json:"swap_out"`
	CopiedIn    uint64  `json:"copied_in"`
	CopiedOut   uint64  `json:"copied_out"`
	Since       float64 `json:"since"` // how long it is there
}

// status asks the loop for a picture.
func (d *daemon) status() (Status, bool) {
	var s Status
	problems := d.problems()
	ok := d.ask(func() { s = d.picture() })
	s.Problems = problems
	return s, ok
}

func (d *daemon) picture() Status {
	now := d.now()
	view := d.core.View()
	s := Status{
		Node: d.cfg.Name, Pid: os.Getpid(), Up: now.Seconds(), Policy: d.cfg.Policy.String(),
		SwapSize: d.cfg.Swap.Size, Committed: d.committed, Draining: d.draining,
		Devices: make([]DeviceStatus, len(view.Devices)), Clients: make([]ClientStatus, 0, len(view.Clients)),
		Ended: append([]ClientStatus{}, d.gone...),
	}
	for i, v := range view.Devices {
		s.Devices[i] = DeviceStatus{
			Name: v.Name, Kind: d.cfg.Devices[i].Kind, Speed: d.infos[i].Speed, Memory: v.Memory, Free: v.Free,
			Slots: v.Slots, Assigned: v.Used, BusyTime: d.gpuTime[i].Seconds(), Lost: v.Lost,
		}
	}
	for _, v := range view.Clients {
		c := d.clients[v.ID]
		if v.State == vgpu.Assigned && v.Busy {
			s.Devices[v.Device].Busy++
		}
		s.Clients = append(s.Clients, c.status(v, now))
	}
	return s
}

func (c *client) status(v vgpu.ClientView, now time.Duration) ClientStatus {
	s := ClientStatus{
		ID: uint64(c.id), Pid: c.peer.pid, User: c.peer.user.name, Program: c.program, Virtual: c.ordinal,
		State: v.State.String(), Busy: v.Busy, Limit: c.memory,
		Allocated: c.memoryNow.Allocated, Peak: c.peak, Resident: c.memoryNow.Resident, Swapped: c.memoryNow.Swapped,
		Kernels: c.counters.kernels, BusyTime: c.counters.busy.Seconds(),
		Waits: c.counters.grants, WaitTime: c.counters.waited.Seconds(), Preemptions: c.counters.preemptions,
		Swaps: c.counters.swaps, SwapIn: c.counters.swapIn, SwapOut: c.counters.swapOut,
		CopiedIn: c.counters.copiedIn, CopiedOut: c.counters.copiedOut, Since: (now - c.since).Seconds(),
	}
	if v.State == vgpu.Assigned {
		device := int(v.Device)
		s.Device = &device
	}
	if c.wanting {
		s.WaitTime += (now - c.wantedAt).Seconds()
	}
	if c.ending {
		s.State = "ending"
	}
	return s
}

// maxEnded is how many clients are remembered after their end.
const maxEnded = 64

// remember keeps the last picture of a client.
func (d *daemon) remember(c *client) {
	s := c.status(vgpu.ClientView{Device: vgpu.AnyDevice}, d.now())
	s.State = "ended"
	if len(d.gone) == maxEnded {
		d.gone = d.gone[1:]
	}
	d.gone = append(d.gone, s)
}

// report takes over what a worker says of itself.
func (c *client) report(s wire.Stats) {
	c.memoryNow = s
	c.peak = max(c.peak, s.Allocated)
	c.counters.kernels, c.counters.busy = max(c.counters.kernels, s.Kernels), max(c.counters.busy, s.Busy)
	c.counters.swaps, c.counters.swapIn, c.counters.swapOut = s.Swaps, s.SwapIn, s.SwapOut
	c.counters.copiedIn, c.counters.copiedOut = s.CopiedIn, s.CopiedOut
}

func (a *counters) add(b counters) {
	a.kernels += b.kernels
	a.grants += b.grants
	a.swaps += b.swaps
	a.copiedIn += b.copiedIn
	a.copiedOut += b.copiedOut
	a.swapIn += b.swapIn
	a.swapOut += b.swapOut
	a.busy += b.busy
	a.denials += b.denials
	a.failures += b.failures
	a.clients += b.clients
}
