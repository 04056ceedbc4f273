package node

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"

	"muster/internal/strictjson"
	"muster/wire"
	"muster/wire/grant"
)

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
const passedTime = setUpTime

// takePassed receives the connection of a program that another process passes on, which has shown
// the credential of the program's grant. It returns who the program is, and under which grant. A
// grant that this node does not know may have devices on other nodes; here the program has none.
//
// A process may pass on only what its own user has connected: anybody's programs connect to sockets
// of others, who would then act for them.
func (d *daemon) takePassed(conn *net.UnixConn, passer account, r *serviceRequest) (passed *net.UnixConn, who peer, claim grant.Claim, err error) {
	claim = grant.Claim{ID: r.ID, Hash: r.Grant.Hash()}
	if err := grant.CheckName("grant's id", r.ID); err != nil {
		return nil, who, claim, err
	}
	_ = conn.SetDeadline(d.opts.Now().Add(passedTime))
	if _, err := conn.Write([]byte("{}\n")); err != nil {
		return nil, who, claim, err
	}
	if passed, err = receiveConnection(conn); err != nil {
		return nil, who, claim, fmt.Errorf("the program's connection did not come: %w", err)
	}
	if who, err = peerOf(passed, &d.names); err == nil {
		err = d.mayPass(passer, who.user, &claim)
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
func (d *daemon) mayPass(passer, program account, claim *grant.Claim) error {
	var g *granted
	d.ask(func() { d.expireGrants(); g = d.findHash(claim.Hash) })
	switch {
	case passer.uid != program.uid && passer.uid != 0 && passer.uid != d.own.uid:
		return fmt.Errorf("user %s may not pass on what user %s has connected", passer.name, program.name)
	case !d.live().allows(program, d.own.uid):
		return fmt.Errorf("user %s may not use this node", program.name)
	case g != nil && g.User != program.name:
		return fmt.Errorf("grant %s is user %s's, and user %s may not use it", g.ID, g.User, program.name)
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

// maxPasses is how many times a request may be passed on: by the relay of a job, and by those of the
// jobs within which it runs. What is answered after a pass has those before it on its stack, so a user
// who passed on for ever would end the daemon.
const maxPasses = 8

// answerPassed answers a request that a job's relay passes on, as if the job's program had connected
// to the node itself: the program has its user's rights, and nothing of the relay's.
func (d *daemon) answerPassed(passes int, conn *net.UnixConn, from peer, r *serviceRequest) error {
	switch {
	case d.isGateway(from):
		return errElsewhere
	case passes > maxPasses:
		return fmt.Errorf("the request was passed on %d times, as often as may be: run fewer jobs within each other", maxPasses)
	}
	passed, who, _, err := d.takePassed(conn, from.user, r)
	if err != nil {
		return err
	}
	defer passed.Close()
	line := cmp.Or(r.Line, fmt.Sprintf("{%q:%q}", "request", r.Request))
	d.answerAfter(passes, passed, io.MultiReader(strings.NewReader(line), passed), who)
	return nil
}

// isGateway says that a connection is of the node's gateway, which speaks for other machines.
func (d *daemon) isGateway(who peer) bool {
	return d.opts.Gateway != 0 && int(who.pid) == d.opts.Gateway
}

var errElsewhere = errors.New("programs of other machines cannot have that")

// receiveConnection receives one connection to this node's kind of socket.
func receiveConnection(conn *net.UnixConn) (*net.UnixConn, error) {
	_, files, err := wire.ReceiveFiles(conn, make([]byte, 1))
	if err != nil {
		return nil, err
	}
	defer closeFiles(files)
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

// claimOf is the claim of a process that a service has started; nil if it has none.
func (d *daemon) claimOf(pid int) (*grant.Claim, error) {
	for _, s := range d.opts.Services {
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

// claimed is the grant that a claim of a user's means on this node: the same one, or the part of the
// same job that has devices here. nil if there is none. Only the loop calls it.
func (d *daemon) claimed(c grant.Claim, user string) *granted {
	if g := d.findHash(c.Hash); g != nil && g.User == user {
		return g
	}
	for _, id := range slices.Sorted(maps.Keys(d.grants)) {
		if g := d.grants[id]; g.User == user && c.SameJob(id) {
			return g
		}
	}
	return nil
}

// byClaim finds the grant of a process that a service has started; nil if the service's program has
// none. If its program has one, the process does not do without.
func (d *daemon) byClaim(who *peer) (*granted, error) {
	c, err := d.claimOf(int(who.pid))
	if c == nil || err != nil {
		return nil, err
	}
	var g *granted
	d.ask(func() { d.expireGrants(); g = d.claimed(*c, who.user.name) })
	if g == nil {
		return nil, refuse(resultNotPermitted, "the process belongs to a program under grant %s, and the node knows no such grant: it has ended or was revoked, or has no devices here", printable(c.ID))
	}
	return g, nil
}

// GrantClaimed asks the daemon at a socket how many devices a claim of a user's means there.
func GrantClaimed(socket, claim, user string) (devices int, err error) {
	reply, err := aboutGrants(socket, grantsRequest{Request: "grants", Claim: claim, User: user})
	if err != nil || len(reply.Grants) == 0 {
		return 0, err
	}
	return len(reply.Grants[0].Devices), nil
}
