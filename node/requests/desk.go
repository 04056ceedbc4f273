// Package requests answers what people and commands ask of a node, on its socket: it reads each request
// strictly, checks who asks, and has the loop do the rest. It knows devices and grants, and of clients only
// whose they are, how they are, and how to end one.
//
// A process may pass on what its own user's program has connected, under a grant (passing.go).
package requests

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"muster/internal/strictjson"
	"muster/internal/whois"
	"muster/model"
	"muster/node/ask"
	"muster/node/dispatch"
	"muster/node/grants"
	"muster/node/loop"
	"muster/node/settings"
	"muster/node/shown"
	"muster/node/socket"
	"muster/node/stock"
	"muster/node/vgpu"
	"muster/wire/status"
)

// Handler answers a request: it reads its line with Strictly, and returns the document that is the answer.
type Handler func(who socket.Peer, line []byte) (any, error)

// Read makes a handler of one that takes a request's fields.
func Read[R any](answer func(who socket.Peer, r R) (any, error)) Handler {
	return func(who socket.Peer, line []byte) (any, error) {
		var r R
		if err := Strictly(line, &r); err != nil {
			return nil, err
		}
		return answer(who, r)
	}
}

// Clients are those of the node. Only the loop calls these.
type Clients interface {
	// Owner is whose a client is that has not ended.
	Owner(vgpu.ClientID) (settings.Account, bool)
	Status(vgpu.ClientID) status.Client
	// End ends a client at once; its program is told why.
	End(id vgpu.ClientID, why string)
}

// Options are what requests are about.
type Options struct {
	Rights
	Node       string // its name
	Loop       *loop.Loop
	Dispatcher *dispatch.Dispatcher
	Stock      *stock.Stock
	Grants     *grants.Book
	Clients    Clients
	Services   map[string]Service
	Revoked    string // the file with the certificates that the authority of other nodes has revoked
	// Handlers and Orders are the requests that others answer, and those that begin a conversation.
	Handlers map[string]Handler
	Orders   map[string]Order

	Picture     func() status.Node // the loop calls it
	GrantStatus func(*grants.Granted) status.Grant
	Closing     func() error // why no conversation can begin any more
	MayUse      func(settings.Account) bool
	Names       *whois.Names
	Log         *slog.Logger
}

// Desk is where requests are answered.
type Desk struct {
	Options
	answers map[string]Handler
}

// New makes the desk of a node.
func New(o Options) *Desk {
	d := &Desk{Options: o}
	d.answers = map[string]Handler{
		"move":          Read(d.answerMove),
		"end":           Read(d.answerEnd),
		"device-drain":  d.answerDrain,
		"device-resume": d.answerResume,
		"device-remove": d.answerRemove,
		"device-add":    d.answerAdd,
		"grant-admit":   Read(d.answerGrantAdmit),
		"grant-revoke":  Read(d.answerGrantRevoke),
		"grant-limit":   Read(d.answerGrantLimit),
		"grants":        Read(d.answerGrants),
	}
	maps.Copy(d.answers, o.Handlers)
	return d
}

// Answer answers a request, or begins a conversation.
func (d *Desk) Answer(conn *net.UnixConn, in io.Reader, who socket.Peer) {
	d.answerAfter(0, conn, in, who)
}

// answerAfter is Answer for a request that was passed on so many times.
func (d *Desk) answerAfter(passes int, conn *net.UnixConn, in io.Reader, who socket.Peer) {
	var reply any
	line, in, err := readRequest(in)
	if err == nil {
		kind, _ := requestOf(line)
		service, isService := d.Services[kind]
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
		case d.Orders[kind] != nil:
			_ = conn.SetDeadline(time.Time{})
			take(&Talk{Conn: conn, in: in, Who: who}, d.Orders[kind], line)
			return
		default:
			_ = conn.SetDeadline(d.Loop.Clock().Add(ask.RequestTime))
			reply, err = d.Handle(line, who)
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

// Handle answers a line.
func (d *Desk) Handle(line []byte, who socket.Peer) (any, error) {
	name, err := requestOf(line)
	if err != nil {
		return nil, err
	}
	handler, ok := d.answers[name]
	if !ok {
		return nil, d.unknownRequest(name)
	}
	return handler(who, line)
}

func (d *Desk) unknownRequest(name string) error {
	known := slices.Concat(slices.Collect(maps.Keys(d.answers)), slices.Collect(maps.Keys(d.Orders)))
	slices.Sort(known)
	if near := model.Nearest(name, known); near != "" {
		return fmt.Errorf("there is no request %q: did you mean %s?", name, near)
	}
	return fmt.Errorf("there is no request %q: it is one of %s", name, strings.Join(known, ", "))
}

// Strictly reads the fields of a request, and refuses unknown ones.
func Strictly(line []byte, into any) error {
	if err := strictjson.Decode(line, into); err != nil {
		return fmt.Errorf("the request cannot be read: %w", err)
	}
	return nil
}
