package vgpu

import "time"

// Adopt makes a client known that an earlier dispatcher served: it holds a
// lease, or keeps bytes on a device, or has nothing there.
type Adopt struct {
	Client ClientID `json:"client"`
	User   string   `json:"user"`
	Weight int      `json:"weight"`

	Device DeviceID `json:"device"` // where it is, or was last; AnyDevice if nowhere
	Held   bool     `json:"held"`   // it holds a lease there
	Memory uint64   `json:"memory"` // that the lease is for
	Kept   uint64   `json:"kept"`   // bytes that it keeps there without a lease
	Lease  int      `json:"lease"`  // the number of its last lease: the next is larger
	Pinned DeviceID `json:"pinned"` // as in its last Want

	// What it came to with the earlier dispatcher.
	Kernels     uint64        `json:"kernels"`
	Busy        time.Duration `json:"busy_ns"`
	Waited      time.Duration `json:"waited_ns"`
	Preemptions int           `json:"preemptions"`
	Moves       Moves         `json:"moves"`
}

func (e Adopt) apply(c *Core) bool { return false }
