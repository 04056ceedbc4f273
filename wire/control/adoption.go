package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"net"
	"os"
	"reflect"
	"slices"
	"time"

	"muster/internal/strictjson"
	"muster/wire"
)

// How a worker that has outlived its daemon introduces itself to the next one, on a connection to
// the node's socket. Each line is a JSON object.
//
//	worker  {"request":"adopt","client":7,"protocol":...}
//	daemon  {"proceed":true}
//	worker  {"held":["program","ring",...]}    with these descriptors
//	daemon  {"adopted":true}                   with two descriptors
//
// Instead of its lines the daemon may send {"error":"..."} and close. The daemon learns the
// worker's process from the kernel, and its client from its own files. Of what the worker sends it
// uses only the number of the client, which must be the one that belongs to the process.
//
// The daemon makes the connection on which both talk afterwards. A worker could otherwise hand over
// one that blocks the daemon when it is used.

// Held is a descriptor that a worker keeps for the daemon's successor.
type Held struct {
	Name string
	File *os.File
}

// Adoption is a worker's request.
type Adoption struct {
	Request  string `json:"request"`
	Client   uint64 `json:"client"`
	Protocol uint32 `json:"protocol"`
}

// AdoptRequest is the name of the request.
const AdoptRequest = "adopt"

// Adopted is what the daemon gives a worker: its end of their connection, and where it writes
// output that is no message, such as a panic.
type Adopted struct {
	End    *WorkerEnd
	Errors *os.File
}

// NotAdopted is the daemon's refusal. It is final: the worker need not ask again.
type NotAdopted struct{ Reason string }

func (e *NotAdopted) Error() string { return e.Reason }

const (
	maxLine = 4096
	maxHeld = 48 // fewer than fit one message
)

type heldLine struct {
	Held []string `json:"held"`
}

type answerLine struct {
	Proceed bool   `json:"proceed,omitempty"`
	Adopted bool   `json:"adopted,omitempty"`
	Error   string `json:"error,omitempty"`
}

// Introduce asks the daemon at the other end of a connection to adopt the worker of
// a client. If the daemon refuses, the error is a NotAdopted; any other error means that the
// connection failed.
func Introduce(conn *net.UnixConn, client uint64, held []Held) (*Adopted, error) {
	if err := sendLine(conn, Adoption{AdoptRequest, client, Protocol}); err != nil {
		return nil, err
	}
	var answer answerLine
	if err := readLine(conn, &answer); err != nil {
		return nil, err
	}
	if err := answer.refusal(answer.Proceed); err != nil {
		return nil, err
	}
	var line heldLine
	var files []*os.File
	for _, h := range held {
		line.Held = append(line.Held, h.Name)
		files = append(files, h.File)
	}
	if err := sendLine(conn, line, files...); err != nil {
		return nil, err
	}
	return receiveAdopted(conn)
}

func receiveAdopted(conn *net.UnixConn) (*Adopted, error) {
	b := make([]byte, maxLine)
	n, files, err := wire.ReceiveFiles(conn, b)
	if err != nil {
		return nil, err
	}
	var answer answerLine
	err = strictjson.Decode(b[:n], &answer)
	if err == nil {
		err = answer.refusal(answer.Adopted)
	}
	if err == nil && len(files) != 2 {
		err = fmt.Errorf("%d descriptors came with the daemon's answer", len(files))
	}
	if err != nil {
		closeAll(files)
		return nil, err
	}
	end, err := OpenWorkerEnd(files[0])
	files[0].Close()
	if err != nil {
		files[1].Close()
		return nil, err
	}
	return &Adopted{end, files[1]}, nil
}

// refusal is the error of an answer that is not the expected one.
func (a answerLine) refusal(good bool) error {
	switch {
	case a.Error != "":
		return &NotAdopted{a.Error}
	case !good:
		return errors.New("the daemon did not answer what it was asked")
	}
	return nil
}

// ReadAdoption reads a worker's request.
func ReadAdoption(conn io.Reader) (Adoption, error) {
	var a Adoption
	err := readLine(conn, &a)
	if err == nil && a.Request != AdoptRequest {
		err = fmt.Errorf("a worker asks for %q, and can only be adopted", a.Request)
	}
	return a, err
}

// ReceiveHeld tells a worker to proceed, and receives the descriptors that it holds. The caller
// must close the files.
func ReceiveHeld(conn *net.UnixConn) ([]Held, error) {
	if err := sendLine(conn, answerLine{Proceed: true}); err != nil {
		return nil, err
	}
	b := make([]byte, maxLine)
	n, files, err := wire.ReceiveFiles(conn, b)
	if err != nil {
		return nil, err
	}
	var line heldLine
	err = strictjson.Decode(b[:n], &line)
	if err == nil && (len(line.Held) != len(files) || len(files) > maxHeld) {
		err = fmt.Errorf("%d descriptors came where %d are named: a worker holds at most %d", len(files), len(line.Held), maxHeld)
	}
	if err != nil {
		closeAll(files)
		return nil, err
	}
	var held []Held
	for i, f := range files {
		held = append(held, Held{line.Held[i], f})
	}
	return held, nil
}

// Adopt tells a worker that it is adopted: it talks to the daemon at this end of a
// Pair, and writes its errors there.
func Adopt(conn *net.UnixConn, end, errors *os.File) error {
	return sendLine(conn, answerLine{Adopted: true}, end, errors)
}

// RefuseAdoption tells a worker why it is not adopted.
func RefuseAdoption(conn *net.UnixConn, reason string) error {
	return sendLine(conn, answerLine{Error: reason[:min(len(reason), maxLine/8)]})
}

func sendLine(conn *net.UnixConn, line any, files ...*os.File) error {
	b, err := json.Marshal(line)
	if err != nil {
		return err
	}
	return wire.SendFiles(conn, append(b, '\n'), files...)
}

// readLine reads one line and nothing after it, because descriptors may come with what follows.
func readLine(conn io.Reader, into any) error {
	var line []byte
	for next := make([]byte, 1); ; {
		if _, err := io.ReadFull(conn, next); err != nil {
			return err
		}
		if next[0] == '\n' {
			return strictjson.Decode(line, into)
		}
		if line = append(line, next[0]); len(line) == maxLine {
			return fmt.Errorf("a line of more than %d bytes", maxLine)
		}
	}
}

// Protocol is a checksum of everything that a daemon and a worker say to each other: those of
// different builds understand each other if it is the same.
var Protocol = func() uint32 {
	sum := crc32.NewIEEE()
	fmt.Fprintln(sum, wire.Version, wire.Schema)
	for _, kinds := range []map[string]reflect.Type{kindsToWorker, kindsToDaemon} {
		for _, name := range slices.Sorted(maps.Keys(kinds)) {
			fmt.Fprint(sum, name)
			describe(sum, kinds[name])
		}
	}
	return sum.Sum32()
}()

// describe writes what is visible of a type in its JSON.
func describe(w io.Writer, t reflect.Type) {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		fmt.Fprint(w, " time")
	case t.Kind() == reflect.Struct:
		for i := range t.NumField() {
			fmt.Fprint(w, " ", t.Field(i).Tag)
			describe(w, t.Field(i).Type)
		}
		fmt.Fprintln(w)
	case t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice:
		fmt.Fprint(w, " ", t.Kind())
		describe(w, t.Elem())
	default:
		fmt.Fprint(w, " ", t.Kind())
	}
}
