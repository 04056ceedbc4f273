package proto

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"muster/internal/strictjson"
	"muster/ivm/core"
)

// Launch is what an element that begins a program says of it: how elements are started, and where.
// In a frame it is strings that end with a zero byte: nodes with commas between them, executable,
// folder, number of arguments, the arguments, and the environment.
type Launch struct {
	Nodes              []string // as HOST or HOST:PORT; the program's first node may be among them
	Executable, Folder string
	Args, Environment  []string
}

// Append writes a launch.
func (l *Launch) Append(to []byte) []byte {
	fields := append([]string{strings.Join(l.Nodes, ","), l.Executable, l.Folder, fmt.Sprint(len(l.Args))}, l.Args...)
	for _, f := range append(fields, l.Environment...) {
		to = append(append(to, f...), 0)
	}
	return to
}

// ParseLaunch reads a launch.
func ParseLaunch(tail []byte) (*Launch, error) {
	text, ok := strings.CutSuffix(string(tail), "\x00")
	fields := strings.Split(text, "\x00")
	var n int
	if !ok || len(fields) < 4 {
		return nil, fmt.Errorf("it is not said how the program is started")
	}
	if _, err := fmt.Sscanf(fields[3], "%d", &n); err != nil || n < 1 || n > len(fields)-4 {
		return nil, fmt.Errorf("the program has %q arguments", fields[3])
	}
	l := &Launch{Executable: fields[1], Folder: fields[2], Args: fields[4 : 4+n], Environment: fields[4+n:]}
	if fields[0] != "" {
		l.Nodes = strings.Split(fields[0], ",")
	}
	if !strings.HasPrefix(l.Executable, "/") || !strings.HasPrefix(l.Folder, "/") {
		return nil, fmt.Errorf("the program %q and its folder %q must be absolute paths", l.Executable, l.Folder)
	}
	return l, nil
}

// Program is what the root daemon tells the others of a program.
type Program struct {
	ID     uint64      `json:"id"`
	Key    string      `json:"key"` // what daemons of the program show each other
	User   string      `json:"user"`
	Self   core.NodeID `json:"self"`
	Nodes  []string    `json:"nodes"` // addresses; that of the root is the one that others reach it at
	Launch Launch      `json:"launch"`
	// Grant says under which grant the program is; "" under none. Only the nodes know what it means.
	Grant string `json:"grant,omitempty"`
}

// message is an event or an effect with the name of its type.
type message struct {
	Kind string          `json:"kind"`
	Is   json.RawMessage `json:"is"`
}

func kinds[M any](all ...M) map[string]reflect.Type {
	byName := map[string]reflect.Type{}
	for _, m := range all {
		t := reflect.TypeOf(m)
		byName[t.Name()] = t
	}
	return byName
}

var events = kinds[core.Event](core.Exit{}, core.Ended{}, core.Started{}, core.StartFailed{}, core.Create{}, core.Kill{}, core.SetMax{},
	core.Wait{}, core.WaitLatest{}, core.WaitAny{}, core.Signal{}, core.Barrier{}, core.Cancel{}, core.Malloc{}, core.Free{}, core.Lookup{})

var effects = kinds[core.Effect](core.Answer{}, core.Start{}, core.Stop{}, core.Drop{}, core.Gone{}, core.Finish{})

// Encode writes an event or an effect.
func Encode(m any) []byte {
	is, err := json.Marshal(m)
	if err == nil {
		is, err = json.Marshal(message{reflect.TypeOf(m).Name(), is})
	}
	if err != nil {
		panic(err) // they are plain values
	}
	return is
}

// DecodeEvent reads an event that a node may tell the root daemon.
func DecodeEvent(b []byte) (core.Event, error) {
	v, err := decode(b, events)
	if err != nil {
		return nil, err
	}
	return v.(core.Event), nil
}

// DecodeEffect reads an effect that the root daemon has for a node.
func DecodeEffect(b []byte) (core.Effect, error) {
	v, err := decode(b, effects)
	if err != nil {
		return nil, err
	}
	return v.(core.Effect), nil
}

func decode(b []byte, known map[string]reflect.Type) (any, error) {
	var m message
	if err := strictjson.Decode(b, &m); err != nil {
		return nil, err
	}
	t, ok := known[m.Kind]
	if !ok {
		return nil, fmt.Errorf("there is no message %q here", m.Kind)
	}
	v := reflect.New(t)
	if err := strictjson.Decode(m.Is, v.Interface()); err != nil {
		return nil, err
	}
	return v.Elem().Interface(), nil
}
