package status

// Node is a node at one moment: the document of muster ps --json.
type Node struct {
	Node      string   `json:"node"`
	Pid       int      `json:"pid"`
	Up        float64  `json:"up"`
	Policy    string   `json:"policy"`
	SwapSize  uint64   `json:"swap_size"`
	Committed uint64   `json:"swap_committed"`
	Devices   []Device `json:"devices"`
	Clients   []Client `json:"clients"`
	Ended     []Client `json:"ended"` // the last that ended, the latest last
	// Draining says that it is shutting down, and takes no programs.
	Draining bool      `json:"draining,omitempty"`
	Problems []Problem `json:"problems,omitempty"`
}

// Problem is what is wrong with a part of a node.
type Problem struct {
	Part string `json:"part"` // node, socket, gateway, http, swap, workers, or device N
	What string `json:"what"`
}

func (p Problem) String() string { return p.Part + ": " + p.What }

// Health is how a node is: the document of /healthz.
type Health struct {
	Node     string    `json:"node"`
	Healthy  bool      `json:"healthy"`
	Problems []Problem `json:"problems"`
}

// Device is one device.
type Device struct {
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

// Devices is the document of muster devices --json.
type Devices struct {
	Devices []Device `json:"devices"`
	Node    string   `json:"node"`
	// Problems are those of the whole node.
	Problems []Problem `json:"problems,omitempty"`
}

// Client is one client.
type Client struct {
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
