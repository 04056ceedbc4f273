package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"muster/model"
)

// Node is a node at one moment: the document of muster ps --json.
type Node struct {
	Node      string   `json:"node"`
	Pid       int      `json:"pid"`
	Up        float64  `json:"up_s"`
	Policy    string   `json:"policy"`
	SwapSize  uint64   `json:"swap_size_bytes"`
	Committed uint64   `json:"swap_committed_bytes"`
	Devices   []Device `json:"devices"`
	Clients   []Client `json:"clients"`
	Ended     []Client `json:"ended"` // the last that ended, the latest last
	// Draining says that it is shutting down, and takes no programs.
	Draining bool `json:"draining,omitempty"`
	// SwapIn and SwapOut are the bytes of programs' memory that left devices to make room, for turns or for
	// moves, and came back, since the node began. What recovery copies is in Links alone.
	SwapIn   uint64    `json:"swap_in_bytes"`
	SwapOut  uint64    `json:"swap_out_bytes"`
	Problems []Problem `json:"problems,omitempty"`
	MPS      *MPS      `json:"mps,omitempty"` // nil where it is off
	// Peers are the nodes from which virtual GPUs are borrowed, and Lent what other nodes have of
	// this one.
	Peers []Peer `json:"peers,omitempty"`
	Lent  []Lent `json:"lent,omitempty"`
	// IVM is the node's part of programs with elements; nil if it never had any.
	IVM *IVM `json:"ivm,omitempty"`
	// Served is what was done for those that have, or had, something of this node.
	Served []Served `json:"served,omitempty"`
	// Links has what went between which places, for all programs since the node began.
	Links []Link `json:"links,omitempty"`
	// Granted is what the programs under each grant measured, those that have gone included.
	Granted []Granted `json:"granted,omitempty"`
	// Parcels is what the node's gateway has exchanged with those of other lenders; nil without one.
	Parcels *Parcels `json:"parcels,omitempty"`
	// Sessions is of programs on other machines; nil without a gateway.
	Sessions *Sessions `json:"sessions,omitempty"`
	// Settings is how the node serves programs, as far as the head of its cluster may say so.
	Settings *model.NodeSettings `json:"settings,omitempty"`
}

// Granted is what the programs under a grant measured on the node.
type Granted struct {
	Grant    string         `json:"grant"`
	Measured model.Measured `json:"measured"`
}

// Measured is what the client did, as far as it is counted for its job.
func (c *Client) Measured() model.Measured {
	return model.Measured{
		GPU: c.BusyTime, Waited: c.WaitTime, Moving: c.MoveTime, Kernels: c.Kernels,
		CopiedIn: c.CopiedIn, CopiedOut: c.CopiedOut, SwapIn: c.SwapIn, SwapOut: c.SwapOut,
	}
}

// Parcels is how many bytes of guests went from one lender to another, past the guests' own nodes,
// since the node began.
type Parcels struct {
	Given   uint64 `json:"given_bytes"`
	Fetched uint64 `json:"fetched_bytes"`
}

// Sessions is what the gateway does for programs whose connections break.
type Sessions struct {
	Cut     int    `json:"cut"` // have no connection at present
	Resumed uint64 `json:"resumed"`
	Kept    uint64 `json:"kept_bytes"` // to be sent again
}

// IVM is what a node does for programs with elements (docs/ivm.md).
type IVM struct {
	Programs []IVMProgram `json:"programs"`
	Memory   uint64       `json:"memory_bytes"` // of objects here
	// Since the node began: elements that were started, puts and gets of mirrors here, and the
	// bytes that they moved to other nodes and from them.
	Started  uint64 `json:"started"`
	Puts     uint64 `json:"puts"`
	Gets     uint64 `json:"gets"`
	PutBytes uint64 `json:"put_bytes"`
	GotBytes uint64 `json:"got_bytes"`
}

// IVMProgram is a program that has this node.
type IVMProgram struct {
	Program  string       `json:"program"`
	User     string       `json:"user"`
	Number   int          `json:"number"` // of this node, in the program
	Nodes    int          `json:"nodes"`
	Elements []IVMElement `json:"elements"`
	// Masters and mirrors are objects here.
	Masters     int    `json:"masters"`
	Mirrors     int    `json:"mirrors"`
	MasterBytes uint64 `json:"master_bytes"`
	MirrorBytes uint64 `json:"mirror_bytes"`
	PutBytes    uint64 `json:"put_bytes"`
	GotBytes    uint64 `json:"got_bytes"`
}

// IVMElement is an element on this node.
type IVMElement struct {
	Element uint64 `json:"element"`
	GPU     *int   `json:"gpu,omitempty"` // nil on CPUs
	Pid     int    `json:"pid,omitempty"` // 0 of the one that the program began with, which the node did not start
}

// Peer is another node, as this one knows it.
type Peer struct {
	Address string `json:"address"`
	Node    string `json:"node,omitempty"` // as it calls itself
	Self    bool   `json:"self,omitempty"` // it is this node
	// Heard is how many seconds ago it said what follows; below 0: never.
	Heard   float64 `json:"heard_s"`
	Slots   int     `json:"vgpus"`
	Free    int     `json:"vgpus_free"` // virtual GPUs that it would lend
	Waiting int     `json:"waiting"`
	// Unused is the speed of the fastest device of which it would lend a virtual GPU and that nobody uses; 0 if there is
	// none.
	Unused float64 `json:"unused_speed"`
	// Borrowed is how many of its virtual GPUs this node has, and Clients how many programs are
	// there.
	Borrowed int `json:"borrowed"`
	Clients  int `json:"programs"`
}

// Lent is what another node has of this one.
type Lent struct {
	Node     string `json:"node"`
	Device   int    `json:"device"`
	Slots    int    `json:"vgpus"`
	Recalled bool   `json:"recalled,omitempty"` // it is wanted back
	Clients  int    `json:"programs"`           // programs of it that are there now
}

// Served is what a device did for another node since this one began: how many kernels ran, and what
// was copied there and back. Programs that have gone are included.
type Served struct {
	Node      string `json:"node"`
	Device    int    `json:"device"`
	Kernels   uint64 `json:"kernels"`
	CopiedIn  uint64 `json:"copied_in_bytes"`
	CopiedOut uint64 `json:"copied_out_bytes"`
}

// ServedOf is what was done for a node on a device.
func (n *Node) ServedOf(l Lent) Served {
	for _, s := range n.Served {
		if s.Node == l.Node && s.Device == l.Device {
			return s
		}
	}
	return Served{Node: l.Node, Device: l.Device}
}

// Borrows is what the node has of others: of each, by name, how many of its virtual GPUs and how many
// programs are there, devices that it has for good included.
func (n *Node) Borrows() (all []Borrowed) {
	at := map[string]int{}
	of := func(node string) *Borrowed {
		if _, ok := at[node]; !ok {
			at[node] = len(all)
			all = append(all, Borrowed{Node: node})
		}
		return &all[at[node]]
	}
	for i := range n.Devices {
		if d := &n.Devices[i]; d.Lender != "" && d.State != "removed" {
			b := of(d.Lender)
			b.Slots, b.Clients = b.Slots+d.Slots, b.Clients+d.Assigned
		}
	}
	for i := range n.Links {
		l := &n.Links[i]
		if l.To.Node != n.Node {
			of(l.To.Node).Sent += l.Bytes
		}
		if l.From.Node != n.Node {
			of(l.From.Node).Received += l.Bytes
		}
	}
	slices.SortFunc(all, func(a, b Borrowed) int { return cmp.Compare(a.Node, b.Node) })
	return all
}

// Borrowed is what a node has of another one now, and what went between the two since it began.
type Borrowed struct {
	Node     string `json:"node"`
	Slots    int    `json:"vgpus"`
	Clients  int    `json:"programs"`
	Sent     uint64 `json:"sent_bytes"`
	Received uint64 `json:"received_bytes"`
}

// MPS is NVIDIA's Multi-Process Service, as the node's workers use it.
type MPS struct {
	Up       bool   `json:"up"`
	Site     bool   `json:"site,omitempty"` // it is the site's, not the node's own
	Folder   string `json:"folder,omitempty"`
	Pid      int    `json:"pid,omitempty"` // of the node's own control daemon
	Restarts int    `json:"restarts"`
	Faults   uint64 `json:"faults"`        // that all programs of a device saw
	Why      string `json:"why,omitempty"` // it is not up
}

func (m *MPS) String() string {
	switch {
	case !m.Up:
		return "not in use: " + m.Why
	case m.Site:
		return "the site's, in " + m.Folder
	}
	return fmt.Sprintf("the node's own, process %d; started again: %d; faults that programs shared: %d", m.Pid, m.Restarts, m.Faults)
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

// Device is one device. It keeps its number when others are removed.
type Device struct {
	// Number is what commands name it by, as #0.
	Number int    `json:"number"`
	Name   string `json:"name"`
	Kind   string `json:"kind"`
	// State is up, draining (it takes no new clients, and some are still there), drained, lost or
	// removed.
	State string `json:"state"`
	// Removing says that it is removed when no client needs it any longer.
	Removing bool    `json:"removing,omitempty"`
	Speed    float64 `json:"speed"`
	Memory   uint64  `json:"memory_bytes"`
	Free     uint64  `json:"free_bytes"`
	// Used is what programs have of the memory, and Guaranteed what is kept for grants.
	Used       uint64  `json:"used_bytes"`
	Guaranteed uint64  `json:"guaranteed_bytes"`
	Spares     int     `json:"spares,omitempty"` // workers that wait with a context for the next program
	Slots      int     `json:"vgpus"`
	Assigned   int     `json:"assigned"`
	Busy       int     `json:"busy"`  // clients with work under way
	BusyTime   float64 `json:"gpu_s"` // of kernels, since the node began
	Lost       bool    `json:"lost,omitempty"`
	Lender     string  `json:"lender,omitempty"`   // the node that lends it; "" if it is the node's own
	Borrowed   bool    `json:"borrowed,omitempty"` // for a while, from a peer: the configuration does not know it
	// MappedKernels ran here for programs that are at home on another device, and MappedIn is
	// how many bytes were copied here for them, since the daemon began.
	MappedKernels uint64 `json:"mapped_kernels,omitempty"`
	MappedIn      uint64 `json:"mapped_in_bytes,omitempty"`
	// Confined is what confines every worker there; the next one if there is none.
	Confined Confined `json:"confined"`
}

// Confined is what keeps a worker from the rest of the machine (docs/node.md, Security).
type Confined struct {
	NoNewPrivs bool `json:"no_new_privs"`
	Seccomp    bool `json:"seccomp"`
	Landlock   int  `json:"landlock"` // the version of its interface; 0: none
}

// Confined is what confines all workers on the node's devices; false if it has no device.
func (n *Node) Confined() (by Confined, any bool) {
	for _, d := range n.Devices {
		switch {
		case d.State == "removed":
		case !any:
			by, any = d.Confined, true
		default:
			by = Confined{by.NoNewPrivs && d.Confined.NoNewPrivs, by.Seccomp && d.Confined.Seccomp, min(by.Landlock, d.Confined.Landlock)}
		}
	}
	return by, any
}

func (c Confined) String() string {
	var by []string
	if c.NoNewPrivs {
		by = append(by, "no_new_privs")
	}
	if c.Seccomp {
		by = append(by, "seccomp")
	}
	if c.Landlock > 0 {
		by = append(by, fmt.Sprintf("Landlock %d", c.Landlock))
	}
	if len(by) == 0 {
		return "nothing"
	}
	return strings.Join(by, ", ")
}

// Changed answers a request that changed something: how the device is now, with its
// number, and the client, if it was about one.
type Changed struct {
	Number *int    `json:"number,omitempty"`
	Device *Device `json:"device,omitempty"`
	Client *Client `json:"client,omitempty"`
}

// Moves counts how often a client that had memory on a device was given another one,
// by why.
type Moves struct {
	Auto   uint64 `json:"auto"`    // a faster one had fallen idle
	ByHand uint64 `json:"by_hand"` // a user asked for it
	Drain  uint64 `json:"drain"`   // its device was draining
}

// Total is how often it moved in all.
func (m Moves) Total() uint64 { return m.Auto + m.ByHand + m.Drain }

// Plus adds others to them.
func (m Moves) Plus(n Moves) Moves {
	return Moves{Auto: m.Auto + n.Auto, ByHand: m.ByHand + n.ByHand, Drain: m.Drain + n.Drain}
}

// Devices is the document of muster devices --json.
type Devices struct {
	Devices []Device `json:"devices"`
	Node    string   `json:"node"`
	// Problems are those of the whole node.
	Problems []Problem `json:"problems,omitempty"`
	MPS      *MPS      `json:"mps,omitempty"` // nil where it is off
}

// DevicesOf is the devices of a node, those that were removed if all are wanted.
func DevicesOf(s *Node, all bool) Devices {
	out := Devices{Devices: []Device{}, Node: s.Node, Problems: s.Problems, MPS: s.MPS}
	for _, d := range s.Devices {
		if d.State != "removed" || all {
			out.Devices = append(out.Devices, d)
		}
	}
	return out
}

// Client is one client.
// It has a field for each thing that is shown of one.
type Client struct {
	ID      uint64 `json:"client"`
	Pid     int32  `json:"pid"`
	Worker  int    `json:"worker_pid,omitempty"` // the process that serves it; 0 while it has none
	User    string `json:"user"`
	Program string `json:"program"`
	// Address is from where the program came over the gateway, HOST:PORT; "" if it is on the node's
	// machine. It may be that of a relay or of the node that borrowed the device.
	Address string `json:"address,omitempty"`
	// Arguments are the program's, where muster ps could see them: on the machine that it is on.
	Arguments []string `json:"arguments,omitempty"`
	Grant     string   `json:"grant,omitempty"` // under which it runs
	Guest     bool     `json:"guest,omitempty"` // its program is on another node, which borrowed the device
	Virtual   int      `json:"virtual_device"`
	Device    *int     `json:"device"` // null where it has none
	State     string   `json:"state"`
	Busy      bool     `json:"busy"`
	Limit     uint64   `json:"memory_limit_bytes"`
	Allocated uint64   `json:"memory_allocated_bytes"`
	Peak      uint64   `json:"memory_peak_bytes"` // the most that it had allocated, as far as was seen
	Resident  uint64   `json:"memory_resident_bytes"`
	Swapped   uint64   `json:"memory_swapped_bytes"`
	Kernels   uint64   `json:"kernels"`
	BusyTime  float64  `json:"gpu_s"`
	Waits     uint64   `json:"waits"`
	WaitTime  float64  `json:"waited_s"`
	// Class is latency or batch; Weight its part of the time where programs take turns, and
	// Priority goes before that. Turns counts those of its turns on a device that ended
	// because others waited. Turn is how long the present one may last while others wait (0
	// without a device, or a quantum) and TurnUsed how long it has lasted.
	Class       string  `json:"class,omitempty"`
	Weight      int     `json:"weight,omitempty"`
	Priority    int     `json:"priority,omitempty"`
	Turns       uint64  `json:"turns,omitempty"`
	Turn        float64 `json:"turn_s,omitempty"`
	TurnUsed    float64 `json:"turn_used_s,omitempty"`
	LongestWait float64 `json:"longest_wait_s,omitempty"` // for a device
	Waiting     float64 `json:"waiting_s,omitempty"`      // for a device, since it began to wait; 0 if it does not
	MoveTime    float64 `json:"moving_s,omitempty"`       // that moving its memory to devices and from them took
	HeldTime    float64 `json:"held_s,omitempty"`         // that its launches were held back for programs of class latency
	// MPS is shared while the client shares its device under MPS, suspect while it runs by
	// itself what it had in flight at a fault, cleared until it goes back, and apart if it does
	// not share. Share is its part of the multiprocessors in percent; 0 for all, or where it is
	// not in force.
	MPS         string `json:"mps,omitempty"`
	Share       int    `json:"share_pct,omitempty"`
	Preemptions uint64 `json:"preemptions"`
	// Rebuilds is how often its worker was replaced, by one that made it what it was.
	Rebuilds uint64 `json:"rebuilds"`
	Moves    Moves  `json:"moves"`
	// Parked says that it is ready, and that no device takes it which could hold it.
	Parked bool `json:"parked,omitempty"`
	// Away says that its worker, of an earlier daemon, has not come back yet.
	Away bool `json:"away,omitempty"`
	// Cut says that its program, on another machine, has no connection at present; it may be resumed
	// for CutLeft more seconds.
	Cut       bool    `json:"cut,omitempty"`
	CutLeft   float64 `json:"cut_left_s,omitempty"`
	Swaps     uint64  `json:"swaps"`
	SwapIn    uint64  `json:"swap_in_bytes"`
	SwapOut   uint64  `json:"swap_out_bytes"`
	CopiedIn  uint64  `json:"copied_in_bytes"`
	CopiedOut uint64  `json:"copied_out_bytes"`
	Since     float64 `json:"age_s"` // how long it is there
	// Mapping is the mapper that decides for each of its launches which device runs it; "" for
	// none. Further has what ran on other devices than that of its lease, which Kernels and
	// BusyTime count too.
	Mapping string    `json:"mapping,omitempty"`
	Further []Further `json:"further,omitempty"`
	// Ran has how many of its kernels ran on which device, that of its lease or another.
	Ran []RanOn `json:"ran,omitempty"`
	// Links has what of its memory and its copies went between which places.
	Links []Link `json:"links,omitempty"`

	// Fault says why work of the program ended before its time, the last time; "" if none did.
	Fault string `json:"fault,omitempty"`
}

// RanOn is what ran on a device.
type RanOn struct {
	Device   int     `json:"device"`
	Kernels  uint64  `json:"kernels"`
	BusyTime float64 `json:"gpu_s"`
}

// End is one end of a link: a device of a node by its number there, or the node's host.
type End struct {
	Node   string `json:"node"`
	Device int    `json:"device"` // -1: the host
}

// Compare orders ends by node and device.
func (e End) Compare(o End) int {
	return cmp.Or(cmp.Compare(e.Node, o.Node), cmp.Compare(e.Device, o.Device))
}

// Place is the end without its node.
func (e End) Place() string {
	if e.Device < 0 {
		return "host"
	}
	return fmt.Sprintf("device %d", e.Device)
}

// Link is how many bytes went from one place to another. What a node moves to a device that another
// node lends it goes over the network between the two; what two devices of a node give each other
// passes through its host's memory.
type Link struct {
	From  End    `json:"from"`
	To    End    `json:"to"`
	Bytes uint64 `json:"bytes"`
}

// Further is what a client has, or had, of a device beside that of its lease.
type Further struct {
	Device   int     `json:"device"`
	Lent     bool    `json:"lent"` // it has it now
	Kernels  uint64  `json:"kernels"`
	BusyTime float64 `json:"gpu_s"`
	Moved    uint64  `json:"moved_bytes"` // bytes that were copied there for its kernels
}

// Grants is what a node knows of grants.
type Grants struct {
	Node   string  `json:"node"`
	Grants []Grant `json:"grants"`
}

// Grant is one of them, without its credential.
type Grant struct {
	ID      string          `json:"id"`
	User    string          `json:"user"`
	Devices []GrantedDevice `json:"devices"`
	Limit   int             `json:"limit"` // devices that may be used at a time; -1: all
	model.Turns
	Expires int64 `json:"expires_at,omitempty"` // in seconds since 1970; 0: never
}

// GrantedDevice is what a grant has of one device, and who uses it.
type GrantedDevice struct {
	Device    int         `json:"device"`
	Name      string      `json:"name"`
	Lender    string      `json:"lender,omitempty"` // the node that lends it for the grant, and that alone knows how much; "" if it is the node's own
	Memory    uint64      `json:"memory_bytes"`     // 0: all of it
	Reach     model.Reach `json:"reach"`            // how far from it the grant's programs may be bound
	Beyond    uint64      `json:"beyond_bytes"`     // that they may use beyond memory_bytes while those are free
	Clients   int         `json:"programs"`
	Allocated uint64      `json:"memory_allocated_bytes"` // by all of them
}

// Stopping is a node's answer to the request to end.
type Stopping struct {
	How     string `json:"how"` // grace, now or handover
	Pid     int    `json:"pid"`
	Clients int    `json:"clients"` // that it has at this moment
}
