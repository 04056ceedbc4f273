package requests

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"muster/internal/strictjson"
	"muster/node/grants"
	"muster/node/proc"
	"muster/node/settings"
	"muster/node/socket"
	"muster/wire"
	"muster/wire/grant"
	"muster/wire/status"
	"net"
	"strings"
	"time"
)

// Service holds conversations of programs on this machine.
type Service struct {
	// Serve handles one conversation to its end. It speaks first: until then the other side must
	// send nothing after its request, since the daemon may have read that into its buffer.
	Serve func(conn *net.UnixConn, who Peer)
	// Stop ends all conversations; the daemon calls it at its end.
	Stop func()
	// Grant is the claim of the program that a process of the service's belongs to (grant.Claim); ""
	// if the process is none of the service's, or the program has no grant. It may be nil.
	Grant func(pid int) string
	// Status adds to the node's status; it may be nil. The loop calls it, so it must not wait.
	Status func(*status.Node)
}

// Peer is who is at the other end of a connection, as the system says.
type Peer struct {
	UID   uint32
	Name  string
	Grant string // the claim of the grant that the program is under (grant.Claim); "" without one
}

// converse has a service hold a conversation. It refuses that while the node closes, and to programs
// of other machines.
func (d *Desk) converse(conn *net.UnixConn, who socket.Peer, line []byte, serve func(*net.UnixConn, Peer)) error {
	var r serviceRequest
	switch {
	case d.Closing() != nil:
		return d.Closing()
	case d.IsGateway(who):
		return errElsewhere
	}
	if err := Strictly(line, &r); err != nil {
		return err
	}
	if r.Grant != "" {
		passed, program, claim, err := d.takePassed(conn, who.User, &r)
		if err != nil {
			return err
		}
		defer passed.Close()
		serve(passed, Peer{UID: program.User.UID, Name: program.User.Name, Grant: claim.String()})
		return nil
	}
	_ = conn.SetDeadline(time.Time{})
	serve(conn, Peer{UID: who.User.UID, Name: who.User.Name})
	return nil
}

// Services start processes for programs (elements). Such a process is under the grant of the program
// that it belongs to, on this node and on others: its service says so (Service.Grant), since the
// process itself has no credential to show. A program comes to a service under a grant if the process
// that serves its job passes its connection on, and shows the credential.

// serviceRequest begins a conversation with a service, or passes on a job's program that asks the
// node anything else.
type serviceRequest struct {
	Request string `json:"request"`
	// Under a grant these are its name and its credential. The program's own connection comes then, as
	// a descriptor, after the daemon has answered {}.
	ID    string           `json:"id,omitempty"`
	Grant grant.Credential `json:"grant,omitempty"`
	// Line is what the program asked, if it is more than the request's name.
	Line string `json:"line,omitempty"`
}

// unknownGrantPrefix begins the name of a grant in a claim if the node does not know the grant: no
// grant of a job's parts is called so (grant.Claim.SameJob).
const unknownGrantPrefix = "unknown:"

// passedTime is how long a connection may take to pass another on.
const passedTime = 10 * time.Second

// takePassed receives the connection of a program that another process passes on, which has shown
// the credential of the program's grant. It returns who the program is, and under which grant. A
// grant that this node does not know may have devices on other nodes; here the program has none.
//
// A process may pass on only what its own user has connected: anybody's programs connect to sockets
// of others, who would then act for them.
func (d *Desk) takePassed(conn *net.UnixConn, passer settings.Account, r *serviceRequest) (passed *net.UnixConn, who socket.Peer, claim grant.Claim, err error) {
	claim = grant.Claim{ID: r.ID, Hash: r.Grant.Hash()}
	if err := grant.CheckName("grant's id", r.ID); err != nil {
		return nil, who, claim, err
	}
	_ = conn.SetDeadline(d.Loop.Clock().Add(passedTime))
	if _, err := conn.Write([]byte("{}\n")); err != nil {
		return nil, who, claim, err
	}
	if passed, err = receiveConnection(conn); err != nil {
		return nil, who, claim, fmt.Errorf("the program's connection did not come: %w", err)
	}
	if who, err = socket.PeerOf(passed, d.Names); err == nil {
		err = d.mayPass(passer, who.User, &claim)
	}
	if err != nil {
		_ = passed.Close()
		return nil, who, claim, err
	}
	_ = conn.Close()
	return passed, who, claim, nil
}

// mayPass checks whether a user's process may pass on what another's has connected, under a grant,
// whose name it completes.
func (d *Desk) mayPass(passer, program settings.Account, claim *grant.Claim) error {
	var g *grants.Granted
	d.Loop.Ask(func() { d.Grants.Expire(); g = d.Grants.Find(claim.Hash) })
	switch {
	case passer.UID != program.UID && passer.UID != 0 && passer.UID != d.Own.UID:
		return fmt.Errorf("user %s may not pass on what user %s has connected", passer.Name, program.Name)
	case !d.MayUse(program):
		return fmt.Errorf("user %s may not use this node", program.Name)
	case g != nil && g.User != program.Name:
		return fmt.Errorf("grant %s is user %s's, and user %s may not use it", g.ID, g.User, program.Name)
	case g != nil:
		claim.ID = g.ID
	default: // nobody has vouched for the name, so it stands for no part of a job
		claim.ID = unknownGrantPrefix + claim.ID
	}
	return nil
}

// passedOn reads a request that a job's relay passes on; others show no credential.
func passedOn(line []byte) (*serviceRequest, bool) {
	var r serviceRequest
	return &r, strictjson.Decode(line, &r) == nil && r.Grant != ""
}

// MaxPasses is how many times a request may be passed on: by the relay of a job, and by those of the
// jobs within which it runs. What is answered after a pass has those before it on its stack, so a user
// who passed on for ever would end the daemon.
const MaxPasses = 8

// answerPassed answers a request that a job's relay passes on, as if the job's program had connected
// to the node itself: the program has its user's rights, and nothing of the relay's.
func (d *Desk) answerPassed(passes int, conn *net.UnixConn, from socket.Peer, r *serviceRequest) error {
	switch {
	case d.IsGateway(from):
		return errElsewhere
	case passes > MaxPasses:
		return fmt.Errorf("the request was passed on %d times, as often as may be: run fewer jobs within each other", MaxPasses)
	}
	passed, who, _, err := d.takePassed(conn, from.User, r)
	if err != nil {
		return err
	}
	defer passed.Close()
	line := cmp.Or(r.Line, fmt.Sprintf("{%q:%q}", "request", r.Request))
	d.answerAfter(passes, passed, io.MultiReader(strings.NewReader(line), passed), who)
	return nil
}

var errElsewhere = errors.New("programs of other machines cannot have that")

// receiveConnection receives one connection to this node's kind of socket.
func receiveConnection(conn *net.UnixConn) (*net.UnixConn, error) {
	_, files, err := wire.ReceiveFiles(conn, make([]byte, 1))
	if err != nil {
		return nil, err
	}
	defer proc.CloseAll(files)
	if len(files) != 1 {
		return nil, fmt.Errorf("%d descriptors came", len(files))
	}
	made, err := net.FileConn(files[0])
	if err != nil {
		return nil, err
	}
	passed, ok := made.(*net.UnixConn)
	if !ok {
		made.Close()
		return nil, fmt.Errorf("what came is no connection of a program")
	}
	return passed, nil
}

// ClaimOf is the claim of a process that a service has started; nil if it has none.
func (d *Desk) ClaimOf(pid int) (*grant.Claim, error) {
	for _, s := range d.Services {
		if s.Grant == nil {
			continue
		}
		if text := s.Grant(pid); text != "" {
			c, err := grant.ParseClaim(text)
			return &c, err
		}
	}
	return nil, nil
}
