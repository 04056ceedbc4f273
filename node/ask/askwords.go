package ask

import (
	"time"

	"muster/model"
	"muster/node/vgpu"
	"muster/wire/control"
	"muster/wire/grant"
)

// GrantedDevice is what a grant has of one device. If the node where the job's programs run is told of a device
// of another node, Lender is where that node's gateway is, and Place says which of the grant's devices there it is:
// the home has what the lender gives, and gives the device itself a number.
type GrantedDevice struct {
	Device int         `json:"device"` // its number
	Lender string      `json:"lender,omitempty"`
	Place  int         `json:"place,omitempty"`
	Memory uint64      `json:"memory,omitempty"` // bytes, contexts included; 0: all of it
	Reach  model.Reach `json:"reach,omitempty"`  // how far from it the grant's programs may be bound
	Beyond uint64      `json:"beyond,omitempty"` // bytes beyond Memory that they may use while those are free
}

// AdmitRequest is a grant as it is told to the node that owns the devices, or to the one where the programs
// run. Its limit is for those devices alone.
type AdmitRequest struct {
	Request string          `json:"request"`
	ID      string          `json:"id"`
	User    string          `json:"user"`
	Hash    grant.Hash      `json:"hash"`
	Shown   grant.Hash      `json:"shown,omitzero"` // of the credential that programs of other nodes show
	Devices []GrantedDevice `json:"devices"`
	Limit   *int            `json:"limit"` // 0 has a meaning of its own
	model.Turns
	// Secrets are the credentials with which the node uses the devices of each Lender, and Authority vouches for these.
	Secrets   map[string]grant.Credential `json:"secrets,omitempty"`
	Authority string                      `json:"authority,omitempty"`
	Expires   int64                       `json:"expires,omitempty"` // in seconds since 1970; 0: never
}

// GrantRequest names a grant.
type GrantRequest struct {
	Request string `json:"request"`
	ID      string `json:"id"`
	Limit   *int   `json:"limit,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// ConfigureRequest says how the node is to serve programs, in place of what its configuration says. The answer is
// how it does then, as model.NodeSettings.
type ConfigureRequest struct {
	Request  string             `json:"request"`
	Settings model.NodeSettings `json:"settings"`
}

// GrantsRequest asks for one grant, or for all. With a claim it asks for the one that this means here.
type GrantsRequest struct {
	Request string `json:"request"`
	ID      string `json:"id"`
	Claim   string `json:"claim,omitempty"`
	User    string `json:"user,omitempty"` // whose claim
}

// How a daemon may be asked to end.
const (
	StopGracefully = "grace"
	StopNow        = "now"
	StopToHandOver = "handover"
)

// StopRequest asks the daemon to end.
type StopRequest struct {
	Request string `json:"request"`
	How     string `json:"how"`
}

const (
	CheckpointRequest = "checkpoint"
	RestoreRequest    = "restore"
	ReviveRequest     = "revive"
	SaveRequest       = "save"
	GoRequest         = "go"
)

// OrderRequest is what an order says.
type OrderRequest struct {
	Request string `json:"request"`
	Client  uint64 `json:"client,omitempty"`
	Hold    bool   `json:"hold,omitempty"`

	// Of revive: what the client was.
	UID       uint32 `json:"uid,omitempty"`
	Pid       int32  `json:"pid,omitempty"`
	Program   string `json:"program,omitempty"`
	Virtual   int    `json:"virtual_device,omitempty"`
	Memory    uint64 `json:"memory,omitempty"`
	ArenaSize uint64 `json:"arena_size,omitempty"`

	Shown map[int]int `json:"shown,omitempty"` // attributes of the devices that its program was shown

	// Of revive under a grant: its credential, and the place of the client's device among those that the
	// grant has on this node.
	Grant string `json:"grant,omitempty"`
	Share int    `json:"share,omitempty"`
}

// OrderReply is what is answered.
type OrderReply struct {
	Error string `json:"error,omitempty"`
	Send  string `json:"send,omitempty"`
	Held  bool   `json:"held,omitempty"`
	Bytes uint64 `json:"bytes,omitempty"`
	// Of a client that is held or revived: how the system knows its connection, on the
	// daemon's side, and the memory that it shares.
	Client uint64 `json:"client,omitempty"`
	Socket uint64 `json:"socket,omitempty"`
	Ring   string `json:"ring,omitempty"`
	Arena  string `json:"arena,omitempty"`

	Shown map[int]int `json:"shown,omitempty"`
}

// MaxRequest is how long a request may be.
const MaxRequest = 4096

// RequestTime is how long a request may take once it was read: opening a device may have
// to wake it up.
const RequestTime = time.Minute

// DeviceRequest names a device.
type DeviceRequest struct {
	Request string `json:"request"`
	Device  string `json:"device"`          // its name, or #N
	Force   bool   `json:"force,omitempty"` // remove it even if programs can use no other
}

// AddRequest describes a device to add.
type AddRequest struct {
	Request string               `json:"request"`
	Add     control.DeviceConfig `json:"add"`
	Reserve uint64               `json:"reserve,omitempty"`
}

// MoveRequest says where a client is to run.
type MoveRequest struct {
	Request string        `json:"request"`
	Client  vgpu.ClientID `json:"client"`
	Device  string        `json:"device"`
}

// EndRequest names a client to end.
type EndRequest struct {
	Request string        `json:"request"`
	Client  vgpu.ClientID `json:"client"`
	Reason  string        `json:"reason,omitempty"`
}
