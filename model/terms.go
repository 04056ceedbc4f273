package model

import (
	"fmt"
	"strings"

	"muster/internal/units"
)

// Reach says how far a node may bind a job's programs away from the GPU that the job was granted, its
// home, while they need no more than others can spare. The zero value is ReachDevice.
type Reach uint8

const (
	ReachDevice  Reach = iota // they are at home only
	ReachNode                 // also on any GPU of the same node that is not kept from them
	ReachCluster              // also on those that the node borrows of other nodes
)

var reachNames = [...]string{ReachDevice: "device", ReachNode: "node", ReachCluster: "cluster"}

func (r Reach) String() string {
	if int(r) < len(reachNames) {
		return reachNames[r]
	}
	return fmt.Sprintf("reach %d", uint8(r))
}

// ParseReach reads what String writes.
func ParseReach(text string) (Reach, error) {
	for r, name := range reachNames {
		if text == name {
			return Reach(r), nil
		}
	}
	near := ""
	if meant := Nearest(text, reachNames[:]); meant != "" {
		near = fmt.Sprintf("; did you mean %q?", meant)
	}
	return 0, fmt.Errorf("%.40q is no reach: write %s%s", text, strings.Join(reachNames[:], ", "), near)
}

// MarshalText is String for a reach that there is.
func (r Reach) MarshalText() ([]byte, error) {
	if int(r) >= len(reachNames) {
		return nil, fmt.Errorf("there is no %v", r)
	}
	return []byte(r.String()), nil
}

// UnmarshalText is ParseReach.
func (r *Reach) UnmarshalText(text []byte) (err error) {
	*r, err = ParseReach(string(text))
	return err
}

// AllBeyond, as the bytes that a job may use of a GPU beyond its share, is all that is free: no GPU
// has as much.
const AllBeyond = 1 << 60

// ParseBeyond reads such a number of bytes: a size, or all.
func ParseBeyond(text string) (uint64, error) {
	if text == "all" {
		return AllBeyond, nil
	}
	bytes, err := units.ParseSize(text)
	if err != nil {
		return 0, fmt.Errorf("%w, or all", err)
	}
	if bytes < 0 || bytes > AllBeyond {
		return 0, fmt.Errorf("%.40q is more memory than a GPU has: write all", text)
	}
	return uint64(bytes), nil
}

// BeyondText is what ParseBeyond reads.
func BeyondText(bytes uint64) string {
	if bytes == AllBeyond {
		return "all"
	}
	return units.FormatSize(int64(bytes))
}

// CheckBeyond refuses memory beyond a share where there is no share, or that no GPU has. share is 0
// for a whole GPU.
func CheckBeyond(share, beyond uint64) error {
	switch {
	case beyond > AllBeyond:
		return fmt.Errorf("%d bytes beyond the share: give at most %d, which is all", beyond, uint64(AllBeyond))
	case beyond > 0 && share == 0:
		return fmt.Errorf("%d bytes beyond the share of a whole GPU, which has no more memory: give it a share, or nothing beyond", beyond)
	}
	return nil
}

// Classes of programs: while one of class latency has work on a GPU, those of class batch launch no
// kernels there.
const (
	ClassBatch   = "batch"
	ClassLatency = "latency"
)

// MaxWeight is the most weight that anybody has.
const MaxWeight = 1000

// Turns says how a job's programs share GPUs with others: the class and weight that each has. Nodes give
// them whatever a program asks for and its user may have there.
type Turns struct {
	Class  string `json:"class,omitempty"`  // ClassBatch or ClassLatency; "": as the program asks
	Weight int    `json:"weight,omitempty"` // 1 to MaxWeight; 0: as the program asks
}

// Validate refuses classes and weights that there are not.
func (t Turns) Validate() error {
	if t.Weight < 0 || t.Weight > MaxWeight {
		return fmt.Errorf("a weight of %d: give 1 to %d", t.Weight, MaxWeight)
	}
	if t.Class != "" && t.Class != ClassBatch && t.Class != ClassLatency {
		return fmt.Errorf("there is no class %.40q: use %s or %s", t.Class, ClassLatency, ClassBatch)
	}
	return nil
}

// Hold says how a job has a GPU, beside how much of it.
type Hold struct {
	Reach  Reach
	Beyond uint64 // bytes beyond its share that it may use while they are free; AllBeyond for all
}

// Holds is how jobs have GPUs whose users say nothing about that, by what they ask for.
type Holds struct {
	Whole  Hold // GPUs of the job's nodes
	Shares Hold // shares of GPUs, wherever they are
	Remote Hold // GPUs of any nodes (RemoteGPUs)
}

// DefaultHolds are those of a cluster where nobody has said otherwise.
func DefaultHolds() Holds {
	return Holds{Shares: Hold{Reach: ReachNode}, Remote: Hold{Reach: ReachNode}}
}

// Terms is what a job's user says of all its GPUs, beside how many and how much of each.
type Terms struct {
	Reach  *Reach  // nil: as is usual for what the job asks for
	Beyond *uint64 // nil: likewise
	Turns
	// Mapping is the mapper that decides which GPU runs each of its kernels; "": as each program asks.
	Mapping string
}

// Of is how the job has a GPU that it was given for a request. share is the part of its memory, and 0
// for a whole GPU; borrowed says that it is on another node than the processes that use it.
func (t *Terms) Of(r *Request, share int64, borrowed bool, usual Holds) Hold {
	h := usual.Whole
	switch {
	case share > 0:
		h = usual.Shares
	case r.Remote != nil && (borrowed || r.GPUs == 0):
		h = usual.Remote
	}
	if t.Reach != nil {
		h.Reach = *t.Reach
	}
	if t.Beyond != nil {
		h.Beyond = *t.Beyond
	}
	if share == 0 { // it has all of it
		h.Beyond = 0
	}
	return h
}
