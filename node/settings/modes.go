package settings

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"muster/mapping"
)

// MPSMode says whether workers use the service.
type MPSMode string

// The modes of MPS.
const (
	MPSAuto MPSMode = "auto" // if it is available
	MPSOn   MPSMode = "on"   // required: without it the node does not start
	MPSOff  MPSMode = "off"
)

// ParseMPS reads a mode.
func ParseMPS(s string) (MPSMode, error) {
	switch m := MPSMode(s); m {
	case MPSAuto, MPSOn, MPSOff:
		return m, nil
	}
	return "", fmt.Errorf("must be auto, on or off, not %q", s)
}

// ParseShare reads a part of a device's multiprocessors, as 25%.
func ParseShare(s string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSuffix(s, "%"))
	if err != nil || n < 1 || n > 100 || !strings.HasSuffix(s, "%") {
		return 0, fmt.Errorf("must be a part of 1%% to 100%%, as 25%%, not %q", s)
	}
	return n, nil
}

// HasCUDA says whether any device is a real GPU.
func (c *Config) HasCUDA() bool {
	return slices.ContainsFunc(c.Devices, func(d Device) bool { return d.Kind == "cuda" })
}

// ConfineMode says whether workers are confined.
type ConfineMode string

// The modes of confinement.
const (
	ConfineAuto ConfineMode = "auto" // as far as the kernel can
	ConfineOn   ConfineMode = "on"   // required: without it the node does not start
	ConfineOff  ConfineMode = "off"
)

// ParseConfine reads a mode.
func ParseConfine(s string) (ConfineMode, error) {
	switch m := ConfineMode(s); m {
	case ConfineAuto, ConfineOn, ConfineOff:
		return m, nil
	}
	return "", fmt.Errorf("must be auto, on or off, not %q", s)
}

// Spares says how many spares the node keeps on each device.
type Spares int

const (
	// SparesAuto is one on each CUDA device whose memory is large beside that of a context, and a few
	// more there while programs come in groups.
	SparesAuto Spares = -1
	// SparesOff is none.
	SparesOff Spares = 0

	maxSpares = 64
)

// ParseSpares reads auto, off or a number.
func ParseSpares(s string) (Spares, error) {
	switch s {
	case "auto":
		return SparesAuto, nil
	case "off":
		return SparesOff, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > maxSpares {
		return 0, fmt.Errorf("must be auto, off or a number from 0 to %d, not %q", maxSpares, s)
	}
	return Spares(n), nil
}

func (s Spares) String() string {
	switch s {
	case SparesAuto:
		return "auto"
	case SparesOff:
		return "off"
	}
	return strconv.Itoa(int(s))
}

// Offload says how the node shares virtual GPUs with others.
type Offload struct {
	Peers []string // gateways of other nodes, HOST:PORT, from which virtual GPUs are borrowed
	Head  bool     // the cluster's head names more of them (Options.Peers)
	Mode  OffloadMode
	Above int // how many programs must wait before virtual GPUs are borrowed; 0 for the default
	Keep  int // free virtual GPUs that are not lent
}

// OffloadMode says whether a node borrows and lends.
type OffloadMode uint8

const (
	OffloadBoth   OffloadMode = iota // it borrows and lends
	OffloadOff                       // neither
	OffloadBorrow                    // it only borrows
	OffloadLend                      // it only lends
)

var offloadModes = [...]string{"auto", "off", "borrow", "lend"}

func (m OffloadMode) String() string { return offloadModes[m] }

// ParseOffload reads the name that String gives.
func ParseOffload(name string) (OffloadMode, error) {
	for i, n := range offloadModes {
		if n == name {
			return OffloadMode(i), nil
		}
	}
	return 0, fmt.Errorf("offload can be auto, borrow, lend or off, not %q", name)
}

// Borrows says whether a node may use virtual GPUs of others.
func (o *Offload) Borrows() bool {
	return (len(o.Peers) > 0 || o.Head) && (o.Mode == OffloadBoth || o.Mode == OffloadBorrow)
}

// Lends says whether a node lends its virtual GPUs. A node that serves only programs with grants
// does not: its devices are the scheduler's to give.
func (c *Config) Lends() bool {
	return c.Remote.Listen != "" && c.Grants != GrantsRequired && (c.Offload.Mode == OffloadBoth || c.Offload.Mode == OffloadLend)
}

// Seed makes nodes with the same peers choose differently: the FNV-1a hash of the node's name.
func (c *Config) Seed() uint64 {
	h := uint64(14695981039346656037)
	for _, b := range []byte(c.Name) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return h
}

// GrantMode says whether programs need a grant.
type GrantMode uint8

const (
	GrantsOptional GrantMode = iota // programs without one are served too, with what is not granted
	GrantsRequired                  // programs without one are refused, so that none bypasses the scheduler
)

var grantModes = [...]string{"optional", "required"}

func (m GrantMode) String() string { return grantModes[m] }

// ParseGrantMode reads the name that String gives.
func ParseGrantMode(name string) (GrantMode, error) {
	at := slices.Index(grantModes[:], name)
	if at < 0 {
		return 0, fmt.Errorf("grants can be optional or required, not %q", name)
	}
	return GrantMode(at), nil
}

// UIDRange is a range of user numbers, both ends included.
type UIDRange struct{ First, Last uint32 }

// Ranges that are no user's by systemd's conventions (https://systemd.io/UIDS-GIDS): a
// large one, and one for containers, which often have the numbers below 65536 only.
var (
	WideUIDs   = UIDRange{1879048192, 2147483647}
	NarrowUIDs = UIDRange{60578, 61183}
)

func (r UIDRange) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

func (r UIDRange) Size() uint64 { return uint64(r.Last) - uint64(r.First) + 1 }

func (r UIDRange) Has(uid uint32) bool { return r.First <= uid && uid <= r.Last }

func (r UIDRange) check() error {
	switch {
	case r == UIDRange{}:
		return nil
	case r.First == 0 || r.First > r.Last || r.Last >= Nobody:
		return fmt.Errorf("worker_uids %v: give a range that begins above 0, as %v", r, WideUIDs)
	case r.Has(LeastPrivileged):
		return fmt.Errorf("worker_uids %v: %d belongs to nobody: give a range that no user has, as %v", r, LeastPrivileged, WideUIDs)
	}
	return nil
}

// MappingOff is the setting that has no launch mapped.
const MappingOff = mapping.Off

// MaxPeers is how many other nodes a node asks at most.
const MaxPeers = 1024

// DefaultRecordLimit is how large a recording may become if nothing is said: some five million
// events.
const DefaultRecordLimit = 1 << 30
