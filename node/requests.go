package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"time"
	"unicode"

	"muster/internal/strictjson"
	"muster/model"
	"muster/node/ask"
	"muster/node/inventory"
	"muster/node/refusal"
	"muster/node/settings"
	"muster/node/shown"
	"muster/node/socket"
	"muster/node/stock"
	"muster/node/vgpu"
	"muster/wire/status"
)

// requests are what can be asked of the node with one line of JSON. A handler reads the
// line's fields with strictly, and returns the document that is the answer.
// Conversations of more than one line are in orders.
var requests map[string]func(d *daemon, who socket.Peer, line []byte) (any, error)

func init() { // not an initializer: handlers refer to this map in their errors
	requests = map[string]func(d *daemon, who socket.Peer, line []byte) (any, error){
		"status":        (*daemon).answerStatus,
		"monitor":       (*daemon).answerMonitor,
		"move":          (*daemon).answerMove,
		"end":           (*daemon).answerEnd,
		"device-drain":  (*daemon).answerDrain,
		"device-resume": (*daemon).answerResume,
		"device-remove": (*daemon).answerRemove,
		"device-add":    (*daemon).answerAdd,
		"stop":          (*daemon).answerStop,
		"adopt":         (*daemon).answerAdopt,
		"grant-admit":   (*daemon).answerGrantAdmit,
		"grant-revoke":  (*daemon).answerGrantRevoke,
		"grant-limit":   (*daemon).answerGrantLimit,
		"grants":        (*daemon).answerGrants,
		"peer":          (*daemon).answerPeer,
	}
}

// answer answers a request, or begins a conversation.
func (d *daemon) answer(conn *net.UnixConn, in io.Reader, who socket.Peer) {
	d.answerAfter(0, conn, in, who)
}

// answerAfter is answer for a request that was passed on so many times.
func (d *daemon) answerAfter(passes int, conn *net.UnixConn, in io.Reader, who socket.Peer) {
	var reply any
	line, in, err := readRequest(in)
	if err == nil {
		kind, _ := requestOf(line)
		service, isService := d.opts.Services[kind]
		passed, isPassed := passedOn(line)
		switch {
		case isService:
			if err = d.converse(conn, who, line, service.Serve); err == nil {
				return
			}
		case isPassed:
			if err = d.answerPassed(passes+1, conn, who, passed); err == nil {
				return
			}
		case orders[kind] != nil:
			d.takeOrder(&talk{conn: conn, in: in, who: who}, kind, line)
			return
		default:
			_ = conn.SetDeadline(d.opts.Now().Add(ask.RequestTime))
			reply, err = d.handleRequest(line, who)
		}
	}
	if err != nil {
		reply = map[string]string{"error": err.Error()}
	}
	if text, ok := reply.(shown.Lines); ok {
		_, _ = conn.Write(text)
		return
	}
	_ = json.NewEncoder(conn).Encode(reply)
}

// converse has a service hold a conversation. It refuses that while the node closes, and to programs
// of other machines.
func (d *daemon) converse(conn *net.UnixConn, who socket.Peer, line []byte, serve func(*net.UnixConn, Peer)) error {
	var r serviceRequest
	switch {
	case d.closing.Load():
		return d.notNow()
	case d.isGateway(who):
		return errElsewhere
	}
	if err := strictly(line, &r); err != nil {
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

// errNoRequest is the answer to a line that asks for nothing.
var errNoRequest = errors.New("a request is one JSON object, as {\"request\":\"status\"}")

// readRequest reads one JSON object of at most maxRequest bytes. What follows it is in
// rest.
func readRequest(in io.Reader) (line json.RawMessage, rest io.Reader, err error) {
	dec := json.NewDecoder(io.LimitReader(in, ask.MaxRequest))
	if err := dec.Decode(&line); err != nil || line[0] != '{' {
		return nil, in, errNoRequest
	}
	return line, io.MultiReader(dec.Buffered(), in), nil
}

// requestOf is the name of what a line asks for.
func requestOf(line []byte) (string, error) {
	var head struct {
		Request string `json:"request"`
	}
	if err := json.Unmarshal(line, &head); err != nil {
		return "", errNoRequest
	}
	return head.Request, nil
}

func (d *daemon) handleRequest(line []byte, who socket.Peer) (any, error) {
	name, err := requestOf(line)
	if err != nil {
		return nil, err
	}
	handler, ok := requests[name]
	if !ok {
		return nil, unknownRequest(name)
	}
	return handler(d, who, line)
}

func unknownRequest(name string) error {
	known := slices.Concat(slices.Collect(maps.Keys(requests)), slices.Collect(maps.Keys(orders)))
	slices.Sort(known)
	if near := model.Nearest(name, known); near != "" {
		return fmt.Errorf("there is no request %q: did you mean %s?", name, near)
	}
	return fmt.Errorf("there is no request %q: it is one of %s", name, strings.Join(known, ", "))
}

// strictly reads the fields of a request, and refuses unknown ones.
func strictly(line []byte, into any) error {
	if err := strictjson.Decode(line, into); err != nil {
		return fmt.Errorf("the request cannot be read: %w", err)
	}
	return nil
}

func (d *daemon) answerStatus(_ socket.Peer, line []byte) (any, error) {
	var r struct {
		Request string `json:"request"`
	}
	if err := strictly(line, &r); err != nil {
		return nil, err
	}
	s, ok := d.status()
	if !ok {
		return nil, refusal.ErrShuttingDown
	}
	return s, nil
}

// mayChangeDevices refuses users who may not change what devices the node has. The
// gateway runs as the node's user but speaks for users of other machines, who may not
// either.
func (d *daemon) mayChangeDevices(who socket.Peer) error {
	if !d.isOwner(who) || d.opts.Gateway != 0 && int(who.PID) == d.opts.Gateway {
		return fmt.Errorf("only root and user %s, whose node it is, may change its devices, not %s", d.own.Name, who.User.Name)
	}
	return nil
}

// --- devices -------------------------------------------------------------------

// onDevice reads a request about a device, and finds it. The loop calls do with it; the
// answer is the device as it is then.
func (d *daemon) onDevice(who socket.Peer, line []byte, mayForce bool, do func(id vgpu.DeviceID, force bool) error) (any, error) {
	if err := d.mayChangeDevices(who); err != nil {
		return nil, err
	}
	var r ask.DeviceRequest
	if err := strictly(line, &r); err != nil {
		return nil, err
	}
	if r.Force && !mayForce {
		return nil, fmt.Errorf("%s cannot be forced", r.Request)
	}
	var changed status.Changed
	err := d.loop.Try(func() error {
		id, err := d.stock.Load().Find(r.Device, d.core.State)
		if err == nil {
			err = do(id, r.Force)
		}
		if err == nil {
			changed = d.changedDevice(id)
		}
		return err
	})
	return changed, err
}

// changedDevice is a device as it is now. Only the loop calls it.
func (d *daemon) changedDevice(id vgpu.DeviceID) status.Changed {
	number := int(id)
	is := d.picture().Devices[number]
	return status.Changed{Number: &number, Device: &is}
}

func (d *daemon) answerDrain(who socket.Peer, line []byte) (any, error) {
	return d.onDevice(who, line, false, func(id vgpu.DeviceID, _ bool) error { return d.stock.Drain(id) })
}

func (d *daemon) answerRemove(who socket.Peer, line []byte) (any, error) {
	return d.onDevice(who, line, true, d.stock.Remove)
}

// answerResume has a device take programs again: one that is drained, or one that was
// lost or removed and can be opened now. Opening takes a while, so that is done outside
// the loop.
func (d *daemon) answerResume(who socket.Peer, line []byte) (any, error) {
	var again *inventory.Device
	number := stock.AnyNumber
	reply, err := d.onDevice(who, line, false, func(id vgpu.DeviceID, _ bool) error {
		if state := d.core.State(id); state == vgpu.DeviceLost || state == vgpu.DeviceRemoved {
			number, again = id, &d.stock.Load().Entries[id]
			return nil
		}
		return d.stock.Resume(id)
	})
	if err != nil || again == nil {
		return reply, err
	}
	return d.openAndAdd(again.Device, number, again.ByHand)
}

func (d *daemon) answerAdd(who socket.Peer, line []byte) (any, error) {
	if err := d.mayChangeDevices(who); err != nil {
		return nil, err
	}
	var r ask.AddRequest
	if err := strictly(line, &r); err != nil {
		return nil, err
	}
	if r.Add.Gone {
		return nil, errors.New("a device that is gone cannot be added")
	}
	return d.openAndAdd(settings.Device{DeviceConfig: r.Add, Reserve: r.Reserve}, stock.AnyNumber, true)
}

// openAndAdd opens a device, which may take a while, and adds it.
func (d *daemon) openAndAdd(c settings.Device, number vgpu.DeviceID, byHand bool) (any, error) {
	if err := settings.CheckDevice(c); err != nil {
		return nil, err
	}
	info, err := d.stock.Examine(c)
	if err != nil {
		return nil, fmt.Errorf("the device cannot be opened: %w", err)
	}
	var changed status.Changed
	err = d.loop.Try(func() error {
		id, err := d.stock.Add(c, info, number, byHand)
		if err == nil {
			changed = d.changedDevice(id)
		}
		return err
	})
	return changed, err
}

// --- moves ---------------------------------------------------------------------

func (d *daemon) answerMove(who socket.Peer, line []byte) (any, error) {
	var r ask.MoveRequest
	if err := strictly(line, &r); err != nil {
		return nil, err
	}
	var changed status.Changed
	err := d.loop.Try(func() error {
		c, err := d.clientFor(who, r.Client)
		if err != nil {
			return err
		}
		id, err := d.stock.Load().Find(r.Device, d.core.State)
		if err != nil {
			return err
		}
		if err := d.core.Tell(vgpu.Move{Client: c.id, Device: id}); err != nil {
			return err
		}
		d.log.Info("a client is moved by hand", "client", c.id, "device", int(id), "by", who.User.Name)
		changed = d.changedDevice(id)
		is := d.clientNow(c)
		changed.Client = &is
		return nil
	})
	return changed, err
}

// maxReason is how long the reason may be that a program's user is told.
const maxReason = 256

func (d *daemon) answerEnd(who socket.Peer, line []byte) (any, error) {
	var r ask.EndRequest
	if err := strictly(line, &r); err != nil {
		return nil, err
	}
	if len(r.Reason) > maxReason || strings.ContainsFunc(r.Reason, unicode.IsControl) {
		return nil, fmt.Errorf("the reason must be one line of at most %d bytes", maxReason)
	}
	var changed status.Changed
	err := d.loop.Try(func() error {
		c, err := d.clientFor(who, r.Client)
		if err != nil {
			return err
		}
		is := d.clientNow(c)
		changed.Client = &is
		why := "user " + who.User.Name + " ended it (muster kill)"
		if r.Reason != "" {
			why += ": " + r.Reason
		}
		d.end(c, why, true)
		return nil
	})
	return changed, err
}

// clientFor finds a client that a user may act on: his own, or any client for root and
// the node's owner. Users of other machines have no number here, so they can act on
// none.
func (d *daemon) clientFor(who socket.Peer, id vgpu.ClientID) (*client, error) {
	c := d.clients[id]
	switch {
	case c == nil || c.ending:
		return nil, fmt.Errorf("there is no client %d: muster ps lists those there are", id)
	case d.mayChangeDevices(who) == nil:
	case who.User.UID != c.peer.User.UID || who.User.UID == settings.Nobody || d.isOwner(who):
		return nil, fmt.Errorf("client %d is user %s's: only that user, user %s, whose node it is, and root may do that", id, c.peer.User.Name, d.own.Name)
	}
	return c, nil
}

// answerMonitor describes the devices as a program that the asking user starts would
// see them, and the clients that use them.
func (d *daemon) answerMonitor(who socket.Peer, line []byte) (any, error) {
	var r struct {
		Request string `json:"request"`
		Memory  uint64 `json:"memory"` // what the asker's programs are to see; 0: all
	}
	if err := strictly(line, &r); err != nil {
		return nil, err
	}
	infos := d.stock.Load().Infos()
	if len(infos) == 0 {
		return nil, refusal.ErrNoDevices
	}
	s, ok := d.status()
	if !ok {
		return nil, refusal.ErrShuttingDown
	}
	memory := d.worldOf(infos, r.Memory, d.settings.Load().Limits.Of(who.User))
	return shown.Monitored(d.cfg.Name, infos, d.visibleCount(infos, 0), memory, s), nil
}
