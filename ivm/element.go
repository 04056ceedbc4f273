package ivm

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"muster/ivm/core"
	"muster/ivm/proto"
	"muster/wire"
	"muster/wire/timeline"
)

// ID is an element's number.
type ID = core.ElementID

// Range is a stretch of an object, in bytes.
type Range = core.Range

// Errors of calls: errors.Is tells them apart.
var (
	ErrInvalid   = errors.New("the call makes no sense")
	ErrNoObject  = errors.New("there is no object of that name")
	ErrTaken     = errors.New("there is an object of that name")
	ErrDead      = errors.New("an element has died")
	ErrLost      = errors.New("a node is lost")
	ErrFreed     = errors.New("the object was freed")
	ErrRefused   = errors.New("the node refused")
	ErrOver      = errors.New("the program is over")
	ErrNoMemory  = errors.New("there is no room")
	ErrNoElement = errors.New("there is no element of that number")
)

var byCode = map[core.Code]error{
	core.Invalid: ErrInvalid, core.NoObject: ErrNoObject, core.Taken: ErrTaken, core.Dead: ErrDead, core.Lost: ErrLost,
	core.Freed: ErrFreed, core.Refused: ErrRefused, core.Over: ErrOver, core.NoMemory: ErrNoMemory, core.NoElement: ErrNoElement,
}

// callError is the failure of a call.
type callError struct {
	call string
	why  *core.Failure
}

func (e *callError) Error() string        { return "ivm: " + e.call + ": " + e.why.Text }
func (e *callError) Is(target error) bool { return byCode[e.why.Code] == target }

// Kind is what an element runs on.
type Kind = core.Kind

// Any stands for any node, or any GPU.
const Any = core.Any

// Device is where elements are created.
type Device struct{ is core.Device }

// CPU is the processors of a node, or of Any.
func CPU(node int) Device { return Device{core.Device{Node: core.NodeID(node), Kind: core.CPU}} }

// GPU is a GPU of a node; both may be Any.
func GPU(node, number int) Device {
	return Device{core.Device{Node: core.NodeID(node), Kind: core.GPU, Number: number}}
}

// Options say where a program begins, if it is not as the environment has it.
type Options struct {
	Socket string   // the node's
	Nodes  []string // other nodes, as HOST or HOST:PORT
	// Executable, Args and Environment are what elements are started with; nil for this
	// process's.
	Executable        string
	Args, Environment []string
}

// Element is the element that this process is.
type Element struct {
	conn   *net.UnixConn
	in     *bufio.Reader
	id     ID
	group  uint64
	device core.Device

	writing sync.Mutex

	mu      sync.Mutex
	noted   *timeline.Elements // what the element did, for a timeline; nil if there is none
	tags    uint64
	waiting map[uint64]chan *answer
	files   []*os.File
	broken  error
	mapped  map[string]*mapping
}

type answer struct {
	*proto.Frame
	file *os.File
}

// Enter registers this process as an element: the one it was started as, or the first of a new
// program.
func Enter(ctx context.Context) (*Element, error) { return EnterWith(ctx, Options{}) }

// EnterWith is Enter with other options than the environment's.
func EnterWith(ctx context.Context, o Options) (*Element, error) {
	hello, files, err := o.hello()
	if err != nil {
		return nil, err
	}
	socket := o.Socket
	if socket == "" {
		socket = os.Getenv("MUSTER_SOCKET")
	}
	if socket == "" {
		socket = "@muster"
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("ivm: no node answers at %s (start one with muster node): %w", socket, err)
	}
	e := &Element{conn: conn.(*net.UnixConn), waiting: map[uint64]chan *answer{}, mapped: map[string]*mapping{}}
	if err := e.greet(ctx, hello, files); err != nil {
		conn.Close()
		return nil, err
	}
	return e, nil
}

// hello is what an element says first.
func (o *Options) hello() (*proto.Frame, []*os.File, error) {
	f := &proto.Frame{Op: proto.Enter, Args: [6]uint64{0, proto.Version}}
	if of := os.Getenv("MUSTER_IVM"); of != "" && o.Executable == "" {
		parts := strings.SplitN(of, ":", 3)
		if len(parts) != 3 {
			return nil, nil, fmt.Errorf("ivm: MUSTER_IVM is %q: start the program with muster run", of)
		}
		program, err := strconv.ParseUint(parts[0], 10, 64)
		id, err2 := strconv.ParseUint(parts[1], 10, 64)
		if err != nil || err2 != nil {
			return nil, nil, fmt.Errorf("ivm: MUSTER_IVM is %q: start the program with muster run", of)
		}
		f.Args[0], f.Args[2], f.Tail = program, id, []byte(parts[2])
		return f, nil, nil
	}
	l := proto.Launch{Nodes: o.Nodes, Executable: o.Executable, Args: o.Args, Environment: o.Environment}
	if nodes := os.Getenv("MUSTER_IVM_NODES"); nodes != "" && l.Nodes == nil {
		l.Nodes = strings.Split(nodes, ",")
	}
	var err error
	if l.Executable == "" {
		if l.Executable, err = os.Executable(); err != nil {
			return nil, nil, fmt.Errorf("ivm: finding this program: %w", err)
		}
	}
	if l.Folder, err = os.Getwd(); err != nil {
		return nil, nil, fmt.Errorf("ivm: finding this folder: %w", err)
	}
	if l.Args == nil {
		l.Args = os.Args
	}
	if l.Environment == nil {
		l.Environment = os.Environ()
	}
	f.Tail = l.Append(nil)
	return f, []*os.File{os.Stdout, os.Stderr}, nil
}

// greet registers the element.
func (e *Element) greet(ctx context.Context, hello *proto.Frame, files []*os.File) error {
	defer context.AfterFunc(ctx, func() { e.conn.Close() })()
	welcome := make([]byte, len(proto.Welcome))
	_, err := io.WriteString(e.conn, proto.Greeting)
	if err == nil {
		_, err = io.ReadFull(e.conn, welcome)
	}
	if err == nil && string(welcome) != proto.Welcome {
		rest, _ := io.ReadAll(io.LimitReader(e.conn, 4096))
		return fmt.Errorf("ivm: the node does not take elements: %s", strings.TrimSpace(string(welcome)+string(rest)))
	}
	if err == nil { // a long environment does not fit beside descriptors
		b := hello.Append(nil)
		if err = wire.SendFiles(e.conn, b[:1], files...); err == nil {
			_, err = e.conn.Write(b[1:])
		}
	}
	e.in = bufio.NewReaderSize(fileReader{e}, 4096)
	var f *proto.Frame
	if err == nil {
		f, err = proto.Read(e.in)
	}
	if err != nil {
		return fmt.Errorf("ivm: Enter: %w", errors.Join(ctx.Err(), err))
	}
	if err := failed("Enter", f); err != nil {
		return err
	}
	e.id, e.group = ID(f.Args[1]), f.Args[2]
	e.device = core.Device{Kind: core.Kind(f.Args[3]), Number: int(f.Args[4]), Node: core.NodeID(f.Args[5])}
	is := timeline.Element{Pid: os.Getpid(), Number: int(e.id), Node: int(e.device.Node), GPU: -1, Opened: timeline.Now(), OpenedAt: time.Now().UnixNano(), Program: filepath.Base(os.Args[0])}
	if e.device.Kind == core.GPU {
		is.GPU = e.device.Number
	}
	e.noted = timeline.CreateElements(is)
	go e.listen()
	return nil
}

// note adds a call to the timeline.
func (e *Element) note(f *proto.Frame, begun time.Time, a *answer) {
	if e.noted == nil || a == nil {
		return
	}
	c := timeline.ElementCall{
		Op: uint32(f.Op), Thread: os.Getpid(), Begin: timeline.At(begun), End: timeline.Now(), Result: int(a.Args[0]),
		Args: [3]uint64(f.Args[:3]), Answer: [2]uint64{a.Args[1], a.Args[3]},
	}
	if f.Op == proto.Malloc || f.Op == proto.Map || f.Op == proto.Free {
		c.Name = string(f.Tail)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.noted.Add(c)
}

func failed(call string, f *proto.Frame) error {
	if err := f.Err(); err != nil {
		return &callError{call, err.(*core.Failure)}
	}
	return nil
}

// fileReader reads the element's connection and keeps descriptors that come along. The daemon
// sends them in the order of the replies that have one.
type fileReader struct{ e *Element }

func (r fileReader) Read(b []byte) (int, error) {
	n, files, err := wire.ReceiveFiles(r.e.conn, b)
	r.e.files = append(r.e.files, files...)
	if errors.Is(err, net.ErrClosed) {
		err = io.EOF
	}
	return n, err
}

// listen hands out the answers until the connection ends.
func (e *Element) listen() {
	for {
		f, err := proto.Read(e.in)
		if err != nil {
			e.fail(fmt.Errorf("the node has ended the connection: %w", err))
			return
		}
		a := &answer{Frame: f}
		if f.Args[0] == 0 && f.Args[5] == proto.WithFile && len(e.files) > 0 {
			a.file, e.files = e.files[0], e.files[1:]
		}
		e.mu.Lock()
		c := e.waiting[f.Tag]
		delete(e.waiting, f.Tag)
		e.mu.Unlock()
		if c != nil {
			c <- a
		} else if a.file != nil {
			a.file.Close()
		}
	}
}

// fail fails all pending and all later calls: the daemon no longer answers.
func (e *Element) fail(why error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.broken = why
	for tag, c := range e.waiting {
		delete(e.waiting, tag)
		close(c)
	}
}

// call asks the daemon and waits for the answer, or for the end of ctx. Requests that were abandoned
// are done nevertheless.
func (e *Element) call(ctx context.Context, name string, f proto.Frame) (*answer, error) {
	return e.post(ctx, name, &f, func(chan *answer) (*answer, error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.waiting, f.Tag)
		return nil, ctx.Err()
	})
}

// wait is call for requests that wait for other elements. When ctx ends the root is told, and the
// answer that follows says whether it came too late: an element never misses a signal that the root
// counts as told, and never leaves a barrier that the others passed with it.
func (e *Element) wait(ctx context.Context, name string, f proto.Frame) (*answer, error) {
	return e.post(ctx, name, &f, func(c chan *answer) (*answer, error) {
		if err := e.write(&proto.Frame{Op: proto.Cancel, Args: [6]uint64{f.Tag}}); err != nil {
			e.fail(err)
		}
		a := <-c
		if a != nil && core.Code(a.Args[0]) == core.Cancelled {
			return nil, ctx.Err()
		}
		return a, nil
	})
}

func (e *Element) write(f *proto.Frame) error {
	e.writing.Lock()
	defer e.writing.Unlock()
	return f.Write(e.conn)
}

// post sends a request and waits for the answer. If ctx ends before, abandon decides.
func (e *Element) post(ctx context.Context, name string, f *proto.Frame, abandon func(chan *answer) (*answer, error)) (*answer, error) {
	begun := time.Now()
	c := make(chan *answer, 1)
	e.mu.Lock()
	if e.broken != nil {
		defer e.mu.Unlock()
		return nil, &callError{name, &core.Failure{Code: core.Over, Text: e.broken.Error()}}
	}
	e.tags++
	f.Tag = e.tags
	e.waiting[f.Tag] = c
	e.mu.Unlock()
	if err := e.write(f); err != nil {
		e.fail(err)
	}
	var a *answer
	select {
	case a = <-c:
	case <-ctx.Done():
		var err error
		if a, err = abandon(c); err != nil {
			return nil, err
		}
	}
	if a == nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		return nil, &callError{name, &core.Failure{Code: core.Over, Text: e.broken.Error()}}
	}
	e.note(f, begun, a)
	return a, failed(name, a.Frame)
}

// Exit unregisters the element. It is the last call. When the first element exits, the program
// ends everywhere.
func (e *Element) Exit() error {
	_, err := e.call(context.Background(), "Exit", proto.Frame{Op: proto.Exit})
	e.conn.Close()
	return err
}

// ID is the element's number, from 0 on (GetMyId).
func (e *Element) ID() ID { return e.id }

// Group is the number of the element's group (GetMyGroupId): those that one call created.
func (e *Element) Group() uint64 { return e.group }

// Kind is what the element runs on (GetMyDevType).
func (e *Element) Kind() Kind { return e.device.Kind }

// Device is the device that the element runs on.
func (e *Element) Device() Device { return Device{e.device} }

// Node is the number of the node that the element runs on.
func (e *Element) Node() int { return int(e.device.Node) }

// Nodes says what the program's nodes have. Only elements on node 0 may ask.
func (e *Element) Nodes(ctx context.Context) ([]core.NodeInfo, error) {
	a, err := e.call(ctx, "Nodes", proto.Frame{Op: proto.Nodes})
	if err != nil {
		return nil, err
	}
	var nodes []core.NodeInfo
	return nodes, json.Unmarshal(a.Tail, &nodes)
}

// CreatePEs creates n elements on a device: fewer, or none, if their numbers would be above the
// greatest (SetMaxPEsID). It returns when their processes run.
func (e *Element) CreatePEs(ctx context.Context, d Device, n int) ([]ID, error) {
	a, err := e.call(ctx, "CreatePEs", proto.Frame{Op: proto.Create, Args: [6]uint64{uint64(d.is.Node), uint64(d.is.Kind), uint64(d.is.Number), uint64(n)}})
	if err != nil {
		return nil, err
	}
	numbers, err := proto.Numbers(a.Tail)
	ids := make([]ID, len(numbers))
	for i, n := range numbers {
		ids[i] = ID(n)
	}
	return ids, err
}

// KillPEs ends elements.
func (e *Element) KillPEs(ctx context.Context, ids ...ID) error {
	f := proto.Frame{Op: proto.Kill}
	for _, id := range ids {
		f.Tail = proto.AppendNumbers(f.Tail, uint64(id))
	}
	_, err := e.call(ctx, "KillPEs", f)
	return err
}

// SetMaxPEsID sets the greatest number that an element may get. Creations beyond it have no effect.
func (e *Element) SetMaxPEsID(ctx context.Context, most ID) error {
	_, err := e.call(ctx, "SetMaxPEsID", proto.Frame{Op: proto.SetMax, Args: [6]uint64{uint64(most)}})
	return err
}

// Wait waits for the next signal of an element that this one was not told yet, or for its end. If the
// element died, the error is an ErrDead.
func (e *Element) Wait(ctx context.Context, id ID) error {
	_, err := e.wait(ctx, "Wait", proto.Frame{Op: proto.Wait, Args: [6]uint64{uint64(id)}})
	return err
}

// WaitLatest is Wait after which all signals of the element so far count as told: for those who look
// themselves at what has changed, and need not be woken for each signal.
func (e *Element) WaitLatest(ctx context.Context, id ID) error {
	_, err := e.wait(ctx, "WaitLatest", proto.Frame{Op: proto.Wait, Args: [6]uint64{uint64(id), 1}})
	return err
}

// WaitAny waits for the next signal or the end of any other element, and returns its number. If that
// element died, the error is an ErrDead, and the number is valid.
func (e *Element) WaitAny(ctx context.Context) (ID, error) {
	a, err := e.wait(ctx, "WaitAny", proto.Frame{Op: proto.WaitAny})
	if a == nil {
		return 0, err
	}
	return ID(a.Args[1]), err
}

// Signal wakes the elements that wait for this one, now or later.
func (e *Element) Signal(ctx context.Context) error {
	_, err := e.call(ctx, "Signal", proto.Frame{Op: proto.Signal})
	return err
}

// Barrier waits until all living elements of this one's group have called it. If one of them dies,
// the others get an ErrDead.
func (e *Element) Barrier(ctx context.Context) error {
	_, err := e.wait(ctx, "Barrier", proto.Frame{Op: proto.Barrier})
	return err
}
