package wire

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Control is a message between the daemon and a worker. Both are of one build,
// so it is JSON, one packet each; descriptors travel beside it.
type Control struct {
	Kind ControlKind `json:"kind"`

	Serve *Serve `json:"serve,omitempty"`
	Stats *Stats `json:"stats,omitempty"`

	Device   int           `json:"device,omitempty"`   // KindGrant: which; KindWant: the only one it can be, or -1
	Memory   uint64        `json:"memory,omitempty"`   // bytes: see the kinds
	Lease    uint64        `json:"lease,omitempty"`    // KindGrant: its number; KindReleased, KindFailed: the last that was granted
	Estimate time.Duration `json:"estimate,omitempty"` // KindWant: how long it will use the device, from what was seen
	Kernels  int           `json:"kernels,omitempty"`  // KindRan
	Busy     time.Duration `json:"busy,omitempty"`     // KindRan
	On       bool          `json:"on,omitempty"`       // KindWatch; KindCommitted: granted
	Reason   string        `json:"reason,omitempty"`
}

// ControlKind says what a control message is for.
type ControlKind string

// What the daemon tells a worker.
const (
	// KindServe: serve this client, with the ring, the arena and one lock for
	// each device as descriptors. The first message.
	KindServe ControlKind = "serve"
	// KindGrant: use the device, with chunks of up to Memory bytes mapped.
	KindGrant ControlKind = "grant"
	// KindDeny: there will not be that much memory for now: let the device go and
	// want it again.
	KindDeny ControlKind = "deny"
	// KindRevoke: let what runs end, move the memory to the host, and say KindReleased.
	KindRevoke ControlKind = "revoke"
	// KindWatch: while on, say at once when the client becomes idle or busy.
	KindWatch ControlKind = "watch"
	// KindCommitted answers KindCommit.
	KindCommitted ControlKind = "committed"
	// KindEnd: tell the client the reason, and exit.
	KindEnd ControlKind = "end"
)

// What a worker tells the daemon.
const (
	KindWant      ControlKind = "want"     // a device is needed, with Memory bytes
	KindGrow      ControlKind = "grow"     // Memory bytes in all are needed on the device
	KindShrink    ControlKind = "shrink"   // no more than Memory bytes are mapped any more
	KindReleased  ControlKind = "released" // the device is free again
	KindBusy      ControlKind = "busy"
	KindIdle      ControlKind = "idle" // Busy is how long it has been idle already
	KindSyncPoint ControlKind = "sync"
	KindRan       ControlKind = "ran"
	KindCommit    ControlKind = "commit" // allocations of Memory bytes in all need room to be swapped to
	KindReport    ControlKind = "report" // Stats
	KindFailed    ControlKind = "failed" // a fault ended what ran
)

// Serve is what a worker must know of its client and of the node.
type Serve struct {
	Client    uint64         `json:"client"`
	ArenaBase uint64         `json:"arena_base"`
	ArenaSize uint64         `json:"arena_size"`
	Memory    uint64         `json:"memory"` // the client's limit
	Devices   []DeviceConfig `json:"devices"`
	// SwapDir is where host copies live; "" for memory.
	SwapDir string `json:"swap_dir,omitempty"`
	// Defer keeps copies to the device on the host until a kernel needs them,
	// even after the first launch.
	Defer bool `json:"defer,omitempty"`
	// User is who the worker becomes before it looks at what the client sent;
	// nil to stay who it is.
	User *User `json:"user,omitempty"`
	// MaxIdle is how long a client may be idle before the worker says so.
	MaxIdle time.Duration `json:"max_idle"`
}

// User is a user of the machine, as the system knows them.
type User struct {
	UID    int   `json:"uid"`
	GID    int   `json:"gid"`
	Groups []int `json:"groups,omitempty"`
}

// DeviceConfig says how to open a device.
type DeviceConfig struct {
	Kind          string  `json:"kind"` // soft or cuda
	Name          string  `json:"name"`
	Memory        uint64  `json:"memory,omitempty"`
	Speed         float64 `json:"speed,omitempty"`
	CopyBandwidth uint64  `json:"copy_bandwidth,omitempty"`
	Workers       int     `json:"workers,omitempty"`
	Index         int     `json:"index"` // soft: tells devices of one profile apart; cuda: the driver's number
}

// Stats is what a worker has done so far, and what its client has.
type Stats struct {
	Allocated uint64        `json:"allocated"`
	Resident  uint64        `json:"resident"` // on the device
	Swapped   uint64        `json:"swapped"`  // contents that are on the host only
	Kernels   uint64        `json:"kernels"`
	Busy      time.Duration `json:"busy"`
	CopiedIn  uint64        `json:"copied_in"`  // by the program, bytes
	CopiedOut uint64        `json:"copied_out"` // by the program, bytes
	SwapIn    uint64        `json:"swap_in"`    // between host copies and devices, bytes
	SwapOut   uint64        `json:"swap_out"`
	Swaps     uint64        `json:"swaps"` // how often memory was moved out for others or for itself
	Messages  uint64        `json:"messages"`
}

// ControlConn is one side of the connection between daemon and worker. One
// goroutine receives; any may send.
type ControlConn struct {
	conn *net.UnixConn
	mu   sync.Mutex
}

// maxControl is how long a control message may be.
const maxControl = 128 << 10

// ControlPair makes both sides: one for this process, one for a child.
func ControlPair() (*ControlConn, *os.File, error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("making a socket pair: %w", err)
	}
	child := os.NewFile(uintptr(fds[1]), "control")
	own := os.NewFile(uintptr(fds[0]), "control")
	defer own.Close()
	c, err := OpenControl(own)
	if err != nil {
		child.Close()
		return nil, nil, err
	}
	return c, child, nil
}

// OpenControl takes over one side; f may be closed afterwards.
func OpenControl(f *os.File) (*ControlConn, error) {
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("opening the control connection: %w", err)
	}
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		conn.Close()
		return nil, fmt.Errorf("the control connection is no Unix socket")
	}
	return &ControlConn{conn: unix}, nil
}

// Send sends a message, with descriptors.
func (c *ControlConn) Send(m Control, files ...*os.File) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return SendFiles(c.conn, b, files...)
}

// Receive waits for a message.
func (c *ControlConn) Receive() (Control, []*os.File, error) {
	var m Control
	b := make([]byte, maxControl)
	n, files, err := ReceiveFiles(c.conn, b)
	if err != nil {
		return m, nil, err
	}
	if err := json.Unmarshal(b[:n], &m); err != nil {
		return m, nil, fmt.Errorf("a damaged control message: %w", err)
	}
	return m, files, nil
}

// Close ends the connection; the other side notices.
func (c *ControlConn) Close() error { return c.conn.Close() }

// SendFiles writes bytes with descriptors beside them.
func SendFiles(conn *net.UnixConn, b []byte, files ...*os.File) error {
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		rights = syscall.UnixRights(fds...)
	}
	n, _, err := conn.WriteMsgUnix(b, rights, nil)
	if err == nil && n < len(b) {
		err = fmt.Errorf("%d of %d bytes were sent", n, len(b))
	}
	return err
}

// maxFiles is how many descriptors one message may bring.
const maxFiles = 64

// ReceiveFiles reads bytes with the descriptors beside them. Nothing at all is
// the end of the connection: an error.
func ReceiveFiles(conn *net.UnixConn, b []byte) (int, []*os.File, error) {
	rights := make([]byte, syscall.CmsgSpace(4*maxFiles))
	n, got, flags, _, err := conn.ReadMsgUnix(b, rights)
	if err != nil {
		return 0, nil, err
	}
	files, err := parseRights(rights[:got])
	if err == nil && flags&(syscall.MSG_CTRUNC|syscall.MSG_TRUNC) != 0 {
		err = fmt.Errorf("a message with its descriptors is too long")
	}
	if err == nil && n == 0 && len(b) > 0 {
		err = net.ErrClosed
	}
	if err != nil {
		for _, f := range files {
			f.Close()
		}
		return 0, nil, err
	}
	return n, files, nil
}

func parseRights(b []byte) ([]*os.File, error) {
	messages, err := syscall.ParseSocketControlMessage(b)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for i := range messages {
		fds, err := syscall.ParseUnixRights(&messages[i])
		if err != nil {
			continue
		}
		for _, fd := range fds {
			syscall.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}
