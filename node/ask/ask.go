package ask

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/user"
	"strings"
	"syscall"
	"time"

	"muster/model"
	"muster/node/settings"
	"muster/node/vgpu"
	"muster/wire"
	"muster/wire/grant"
	"muster/wire/status"
)

// Admit tells the daemon at a socket of a grant of some devices, all of its node, until expires;
// the zero time means for ever. The limit is for these devices alone.
func Admit(socket string, g *grant.Grant, devices []grant.Device, limit int, expires time.Time) (*status.Grants, error) {
	return AdmitLoan(socket, g.LoanOf(devices, limit), expires)
}

// AdmitAtHome tells the daemon at a socket, where a grant's programs run, of the devices that are for the home.
// It must be able to reach those of other nodes, which know the grant.
func AdmitAtHome(socket string, g *grant.Grant, limit int, expires time.Time) (*status.Grants, error) {
	r := AdmitRequest{Request: "grant-admit", ID: g.ID, User: g.User, Hash: g.Secret.Hash(), Limit: &limit, Turns: g.Turns, Secrets: map[string]grant.Credential{}}
	for i, d := range g.Devices {
		switch {
		case !d.IsForHome():
		case d.IsBorrowed():
			r.Devices = append(r.Devices, GrantedDevice{Lender: d.Address, Place: g.Place(i), Reach: d.Reach})
			r.Secrets[d.Address], r.Authority = g.SecretFor(d), g.Authority
		default:
			r.Devices = append(r.Devices, GrantedDevice{Device: d.Device, Memory: d.Memory, Reach: d.Reach, Beyond: d.Beyond})
		}
	}
	if !expires.IsZero() {
		r.Expires = expires.Unix()
	}
	return aboutGrants(socket, r)
}

// AdmitLoan tells the daemon at a socket what its node must know of a grant.
func AdmitLoan(socket string, loan grant.Loan, expires time.Time) (*status.Grants, error) {
	if g := loan.OfHome(); g != nil {
		return AdmitAtHome(socket, g, loan.Limit, expires)
	}
	r := AdmitRequest{Request: "grant-admit", ID: loan.ID, User: loan.User, Hash: loan.Hash, Shown: loan.Shown, Limit: &loan.Limit, Turns: loan.Turns}
	for _, d := range loan.Devices {
		r.Devices = append(r.Devices, GrantedDevice{Device: d.Device, Memory: d.Memory, Reach: d.Reach, Beyond: d.Beyond})
	}
	if !expires.IsZero() {
		r.Expires = expires.Unix()
	}
	return aboutGrants(socket, r)
}

// RevokeGrant ends a grant and its programs, which are told the reason.
func RevokeGrant(socket, id, reason string) (*status.Grants, error) {
	return aboutGrants(socket, GrantRequest{Request: "grant-revoke", ID: id, Reason: reason})
}

// LimitGrant says how many of its devices on the node a grant may use at a time.
func LimitGrant(socket, id string, limit int) (*status.Grants, error) {
	return aboutGrants(socket, GrantRequest{Request: "grant-limit", ID: id, Limit: &limit})
}

// Grants lists the grants that the daemon at a socket knows.
func Grants(socket string) (*status.Grants, error) {
	return aboutGrants(socket, map[string]string{"request": "grants", "id": ""})
}

// Configure tells the daemon at a socket how to serve programs, for as long as it lives, and returns how it does.
func Configure(socket string, s model.NodeSettings) (is model.NodeSettings, err error) {
	err = Request(socket, ConfigureRequest{Request: "configure", Settings: s}, &is, RequestTime)
	return is, err
}

func aboutGrants(socket string, question any) (*status.Grants, error) {
	var reply status.Grants
	if err := Request(socket, question, &reply, RequestTime); err != nil {
		return nil, err
	}
	return &reply, nil
}

// ErrNoNode says that no daemon answers at a socket.
var ErrNoNode = errors.New("no node answers")

// Status asks the daemon at a socket how it is. If the daemon refuses, the error has its
// reason.
func Status(socket string) (*status.Node, error) { return StatusWithin(socket, 10*time.Second) }

// StatusWithin is Ask with a limit on how long the daemon may take to answer.
func StatusWithin(socket string, patience time.Duration) (*status.Node, error) {
	var reply status.Node
	err := Request(socket, map[string]string{"request": "status"}, &reply, patience)
	if err != nil {
		return nil, err
	}
	return &reply, nil
}

// Request asks the daemon at a socket for something, and reads the document that is
// its answer.
func Request(socket string, question, answer any, patience time.Duration) error {
	line, err := json.Marshal(question)
	if err != nil {
		return err
	}
	conn, err := net.DialTimeout("unix", socket, 5*time.Second)
	if err != nil {
		return notReached(socket, err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	// A daemon that refuses a connection says why and closes it, perhaps before this
	// write: so a failure to write is ignored, and the reason is read below.
	_, _ = conn.Write(append(line, '\n'))
	err = readAnswer(bufio.NewReader(conn), answer)
	var refused *wire.Refused
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		return fmt.Errorf("the node at %s refuses: %w", socket, refused)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return fmt.Errorf("the node at %s closed the connection without an answer: it may just be ending, or have no room; try again", socket)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("the node at %s has not answered for %v: it is stopped, hangs, or the machine is overloaded; see its log, or restart it", socket, patience)
	}
	return fmt.Errorf("the node at %s does not answer as a node does: %w", socket, err)
}

// notReached explains, as far as it can find out, why no daemon can be reached at a
// socket.
func notReached(socket string, err error) error {
	info, lost := os.Stat(socket)
	isFile := lost == nil && !strings.HasPrefix(socket, "@")
	switch {
	case isFile && info.Mode()&fs.ModeSocket == 0:
		return fmt.Errorf("%s is no socket: name the one that the node was started with (--socket), or leave it out for %s", socket, settings.DefaultSocket)
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOENT):
		there := ""
		if socket != settings.DefaultSocket { // which muster node takes by itself
			there = " --socket " + socket
		}
		return fmt.Errorf("%w at %s: start one with muster node%s, or say --socket", ErrNoNode, socket, there)
	case errors.Is(err, syscall.EACCES) && isFile:
		return fmt.Errorf("you may not use the socket %s: %s", socket, accessTo(info))
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("you may not use the socket %s: a folder on the way to it is closed to you; ask the administrator to open it", socket)
	}
	return fmt.Errorf("asking the node: %w", err)
}

// accessTo says how a user can get access to a socket that is closed to him: through
// its group, if the group may use it.
func accessTo(info fs.FileInfo) string {
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.Mode().Perm()&0o020 == 0 {
		return "only its owner may (mode " + fmt.Sprintf("%04o", info.Mode().Perm()) + "); run a node of your own (muster run --private), or ask the administrator to open it"
	}
	group := fmt.Sprint(owner.Gid)
	if g, err := user.LookupGroupId(group); err == nil {
		group = g.Name
	}
	return "group " + group + " may; ask the administrator to make you a member of it, and log in again"
}

// readRefusal finds out whether an answer is a record with a refusal, which is then the
// error, or a document.
func readRefusal(in *bufio.Reader) (document bool, err error) {
	head, err := in.Peek(8)
	if err != nil {
		return false, err
	}
	// Bytes 4 to 7 hold a record's opcode, whose upper half is 0; a document has text
	// there.
	if binary.LittleEndian.Uint16(head[6:]) != 0 {
		return true, nil
	}
	refused := &wire.Refused{}
	if err := wire.ReadAs(in, refused); err != nil {
		return false, err
	}
	return false, refused
}

// readAnswer reads the answer to a request: a document, or a record with a refusal.
func readAnswer(in *bufio.Reader, answer any) error {
	if document, err := readRefusal(in); !document {
		return err
	}
	var document json.RawMessage
	if err := json.NewDecoder(in).Decode(&document); err != nil {
		return err
	}
	var failed struct {
		Error string `json:"error"`
	}
	if err := json.Unmarshal(document, &failed); err != nil {
		return err
	}
	if failed.Error != "" {
		return &wire.Refused{Reason: failed.Error}
	}
	return json.Unmarshal(document, answer)
}

// changeTime is how long the daemon may take to carry out a change.
const changeTime = RequestTime + 10*time.Second

// change asks the daemon to change something.
func change(socket string, question any) (*status.Changed, error) {
	var reply status.Changed
	if err := Request(socket, question, &reply, changeTime); err != nil {
		return nil, err
	}
	return &reply, nil
}

// DrainDevice has a device of the node at a socket take no more clients. It returns
// without waiting for the clients that are on the device to leave. Devices are named by
// their name or as #N.
func DrainDevice(socket, device string) (*status.Changed, error) {
	return change(socket, DeviceRequest{Request: "device-drain", Device: device})
}

// ResumeDevice lets a device take programs again.
func ResumeDevice(socket, device string) (*status.Changed, error) {
	return change(socket, DeviceRequest{Request: "device-resume", Device: device})
}

// RemoveDevice has a device removed as soon as no client needs it any more; with force,
// as soon as no client is on it, even if one waits that can use no other.
func RemoveDevice(socket, device string, force bool) (*status.Changed, error) {
	return change(socket, DeviceRequest{Request: "device-remove", Device: device, Force: force})
}

// AddDevice adds a device to the node at a socket.
func AddDevice(socket string, c settings.Device) (*status.Changed, error) {
	return change(socket, AddRequest{Request: "device-add", Add: c.DeviceConfig, Reserve: c.Reserve})
}

// EndClient ends a client of the daemon at a socket; its program is told the reason.
func EndClient(socket string, client uint64, reason string) (*status.Changed, error) {
	return change(socket, EndRequest{Request: "end", Client: vgpu.ClientID(client), Reason: reason})
}

// MoveClient has a client moved to a device.
func MoveClient(socket string, client uint64, device string) (*status.Changed, error) {
	return change(socket, MoveRequest{Request: "move", Client: vgpu.ClientID(client), Device: device})
}

// GrantClaimed asks the daemon at a socket how many devices a claim of a user's means there.
func GrantClaimed(socket, claim, user string) (devices int, err error) {
	reply, err := aboutGrants(socket, GrantsRequest{Request: "grants", Claim: claim, User: user})
	if err != nil || len(reply.Grants) == 0 {
		return 0, err
	}
	return len(reply.Grants[0].Devices), nil
}
