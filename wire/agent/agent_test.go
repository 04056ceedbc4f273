package agent

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/model"
	"muster/wire/envelope"
	"muster/wire/grant"
)

var (
	task = Task{Job: 7, Attempt: 2, Part: 1}
	spec = Spec{
		Name: "a", User: "alice", Directory: "/home/alice", Arguments: []string{"./a.out"}, Processes: 2, First: 2, All: 4,
		Nodes: []string{"n1", "n2"}, Cores: 4, CoresPerProcess: 2, Memory: 1 << 30, Time: time.Hour, Grace: time.Second, Output: "out",
	}
	load = Load{
		Use: []int{100, 0}, Used: []int{3 << 10, 0}, Guaranteed: []int{1 << 10, 0},
		Assigned: 3, Waiting: 2, Longest: 5 * time.Second, SwapIn: 1 << 20, SwapOut: 2 << 20,
	}
	none     = 0
	settings = model.NodeSettings{VGPUs: 4, Sharing: model.Shared, Policy: "credit", Above: 2, Keep: &none, Profiling: 1.5}

	gpus = grant.Grant{ID: "7.2.1", User: "alice", Secret: grant.NewCredential(), Devices: []grant.Device{{Node: "n2", Device: 1, Memory: 1 << 30}}, Limit: -1}
)

// Every message is decoded as it was sent.
func TestThereAndBack(t *testing.T) {
	for _, m := range []ToHead{
		Hello{Version: Version, Node: "n1", Incarnation: "x", Cores: 4, Memory: 1 << 30, Devices: []Device{{Name: "GPU", Memory: 1 << 30, Speed: 1, Up: true}, {Name: "far", Memory: 1, Speed: 1, Lender: "gpu1:9421"}}, Gateway: "n1:9421", Loans: []string{"7.2.1"},
			Tasks: []Report{{task, Running, nil}, {Task{8, 1, 0}, Ended, &End{Cause: Exited, Exit: 3, Began: 1, Ended: 2, CPU: 3, Memory: 4}}}},
		Inventory{}, Report{Task: task, State: Suspended}, Report{Task: task, State: Starting}, Lent{"7.2.1", "no such device"}, Pong{}, AskPeers{}, Load{}, load, Checkpointed{Task: task, Folder: "7.2.1-a", Bytes: 5}, Checkpointed{Task: task, Folder: "7", Error: "no CRIU"},
		Hello{Version: Version, Node: "n1", Incarnation: "x", Cores: 4, Memory: 1 << 30, Checkpoints: "f", NoCheckpoints: "why"},
		Profiles{Tasks: []Profile{{task, model.Measured{CPU: 1.5, GPU: 2, Waited: 0.001, Moving: 3, Kernels: 4, CopiedIn: 5, CopiedOut: 6, SwapIn: 7, SwapOut: 8}}}},
		Configured{}, Configured{Told: settings, InForce: settings, Error: "it is on fire"},
	} {
		testBack(t, m, ReadToHead)
	}
	for _, m := range []ToAgent{
		Welcome{Cluster: "c", Silence: time.Minute}, Welcome{Cluster: "c", Silence: time.Minute, Heads: "h", Term: 7}, Refused{"no"}, Ping{}, Start{Task: task, Incarnation: "x", Spec: spec, Grant: &gpus}, Stop{task, Stopped, "cancelled", time.Second}, Signal{task, 10}, Suspend{task}, Resume{task}, Done{task},
		Lend{gpus.Loan("n2")}, Unlend{"7.2.1"}, Limit{"7.2.1", 0},
		Open{Stream: "s", Task: task, Exec: &Exec{Arguments: []string{"hostname"}}}, Open{Stream: "s", Task: task, File: "output", Follow: true},
		Open{Stream: "s", File: FileStatus}, Open{Stream: "s", Task: task, File: "error", Ended: &Written{"u", "/home/u", "err"}}, Checkpoint{task, "7.2.1-a"}, Discard{"7.2.1-a"}, Start{Task: task, Incarnation: "x", Spec: spec, From: "7.1.1"},
		Peers{}, Peers{Gateways: []string{"n2:9421", "10.0.0.3:9421"}},
		Configure{}, Configure{settings}, Configure{model.NodeSettings{VGPUs: 1, Sharing: model.Exclusive}},
	} {
		testBack(t, m, ReadToAgent)
	}
}

func testBack[M message](t *testing.T, m M, read func(io.Reader) (M, error)) {
	b, err := Encode(nil, m)
	if err != nil {
		t.Fatal(err)
	}
	got, err := read(bytes.NewReader(b))
	if err != nil || !reflect.DeepEqual(got, m) {
		t.Errorf("%#v came as %#v, %v", m, got, err)
	}
	if _, err := read(bytes.NewReader(b[:len(b)-1])); !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		t.Errorf("%s without its last byte: %v", m.Kind(), err)
	}
}

// Impossible values are refused, with a reason.
func TestRefused(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{`{"kind":"report","message":{"task":{"job":1,"attempt":1,"part":0},"state":"ended"}}`, "with and without an end"},
		{`{"kind":"report","message":{"task":{"job":0,"attempt":1,"part":0},"state":"running"}}`, "a task 0.1.0, which cannot be"},
		{`{"kind":"report","message":{"task":{"job":1,"attempt":1,"part":0},"state":"running","more":1}}`, "unknown field"},
		{`{"kind":"report","message":{"task":{"job":1,"attempt":1,"part":0},"state":"Starting"}}`, `task 1.1.0 "Starting"`},
		{`{"kind":"report","message":{"task":{"Job":1,"attempt":1,"part":0},"state":"running"}}`, `unknown field "Job": write "job"`},
		{`{"kind":"pong","kind":"pong","message":{}}`, `the name "kind" is given twice`},
		{`{"kind":"ping","message":{}}`, `its kind is "ping"`},
		{`{"kind":"hello","message":{"version":2,"node":"a b","incarnation":"x","cores":1,"memory":1}}`, `a node called "a b"`},
		{`{"kind":"hello","message":{"version":2,"node":"a","incarnation":"x","cores":0,"memory":1}}`, "0 cores"},
		{`{"kind":"inventory","message":{"devices":[{"name":"a","memory":1,"speed":0,"up":true}]}}`, "speed 0"},
		{`{"kind":"load","message":{"use":[101],"used":[0],"guaranteed":[0]}}`, "used to 101 %"},
		{`{"kind":"load","message":{"use":[1,2],"used":[0,2305843009213693952],"guaranteed":[0,0]}}`, "2305843009213693952"},
		{`{"kind":"load","message":{"use":[1,2],"used":[0]}}`, "the use of 2 devices, and the memory of 1 and 0"},
		{`{"kind":"load","message":{"waiting":-1}}`, "-1 programs"},
		{`{"kind":"load","message":{"longest":-1}}`, "a wait of -1ns"},
		{`{"kind":"checkpointed","message":{"task":{"job":1,"attempt":1,"part":0},"folder":"../x"}}`, `a folder "../x"`},
		{`{"kind":"checkpointed","message":{"task":{"job":1,"attempt":1,"part":0},"folder":""}}`, `a folder ""`},
		{`{"kind":"profiles","message":{"tasks":[{"task":{"job":0,"attempt":1,"part":0},"measured":{}}]}}`, "a task 0.1.0"},
		{`{"kind":"profiles","message":{"tasks":[{"task":{"job":1,"attempt":1,"part":0},"measured":{"gpu_s":-1}}]}}`, "a measured time of -1 s"},
		{`{"kind":"profiles","message":{"tasks":[{"task":{"job":1,"attempt":1,"part":0},"measured":{"kernels":1152921504606846977}}]}}`, "1152921504606846977"},
		{`{"kind":"profiles","message":{"tasks":[{"task":{"job":1,"attempt":1,"part":0},"measured":{}},{"task":{"job":1,"attempt":1,"part":0},"measured":{}}]}}`, "task 1.1.0 twice"},
		{`{"kind":"configured","message":{"told":{"policy":"easy"}}}`, `policy: must be one of fcfs, sjf, credit, not "easy"`},
		{`{"kind":"configured","message":{"in_force":{"vgpus":1025}}}`, "1025 virtual GPUs"},
		{`{"kind":"configured","message":{"in_force":{"gpus":1}}}`, `unknown field "gpus"`},
		{`{"kind":"configure","message":{"settings":{}}}`, `its kind is "configure"`},
		{`{"kind":"pong","message":{}} {}`, "something follows"},
		{`[]`, "not a JSON object"},
	} {
		framed := append([]byte{byte(len(c.body)), byte(len(c.body) >> 8), 0, 0}, c.body...)
		if _, err := ReadToHead(bytes.NewReader(framed)); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.body, err)
		}
	}
	if _, err := ReadToHead(bytes.NewReader([]byte{0xff, 0xff, 0xff, 0xff})); !errors.Is(err, ErrRefused) {
		t.Error(err)
	}
}

// What the head may not say of a node's settings is refused before it is sent, and where it arrives.
func TestRefusedSettings(t *testing.T) {
	for _, c := range []struct{ settings, want string }{
		{`{"vgpus":-1}`, "-1 virtual GPUs"},
		{`{"sharing":"some"}`, "sharing: must be shared or exclusive"},
		{`{"policy":"FCFS"}`, "policy: must be one of"},
		{`{"above":-1}`, "above: -1"},
		{`{"keep":1048577}`, "keep: 1048577"},
		{`{"profiling_s":0.1}`, "a period of 0.1 s"},
		{`{"slots":1}`, `unknown field "slots"`},
		{`{"vgpus":1,"vgpus":2}`, "is given twice"},
	} {
		body := `{"kind":"configure","message":{"settings":` + c.settings + `}}`
		framed := append([]byte{byte(len(body)), byte(len(body) >> 8), 0, 0}, body...)
		var unreadable *Unreadable
		if _, err := ReadToAgent(bytes.NewReader(framed)); !errors.As(err, &unreadable) || unreadable.Kind != "configure" || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.settings, err)
		}
	}
	if b, err := Encode(nil, Configure{model.NodeSettings{Policy: "easy"}}); err == nil || len(b) > 0 {
		t.Errorf("a policy that nodes do not have is sent: %s, %v", b, err)
	}
}

// An Open asks for one thing at a time: of a task, or of the node.
func TestRefusedOpen(t *testing.T) {
	for _, o := range []Open{
		{}, {Stream: "s"}, {Stream: "s", File: "output"}, {Stream: "s", Task: task, File: FileStatus}, {Stream: "s", File: FileStatus, Follow: true},
		{Stream: "s", File: FileStatus, Exec: &Exec{Arguments: []string{"date"}}}, {Stream: "s", Exec: &Exec{Arguments: []string{"date"}}},
		{Stream: "s", Task: task, File: "output", Ended: &Written{User: "u", File: "out"}}, {Stream: "s", Task: task, Exec: &Exec{Arguments: []string{"date"}}, Ended: &Written{"u", "/", "out"}},
	} {
		if err := o.check(); err == nil {
			t.Errorf("%+v is nothing to open, and was taken", o)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, m := range []message{Hello{Version: Version, Node: "n1", Incarnation: "x", Cores: 4, Memory: 1 << 30}, Start{Task: task, Incarnation: "x", Spec: spec, Grant: &gpus}, Report{Task: task, State: Ended, End: &End{Cause: Exited}}, load, Configure{settings}, Configured{Told: settings, Error: "no"}} {
		b, err := Encode(nil, m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := ReadToHead(bytes.NewReader(b)); err == nil {
			testSame(t, m, ReadToHead)
		}
		if m, err := ReadToAgent(bytes.NewReader(b)); err == nil {
			testSame(t, m, ReadToAgent)
		}
	})
}

// testSame compares what was decoded with what is decoded after it was encoded again.
func testSame[M message](t *testing.T, m M, read func(io.Reader) (M, error)) {
	once, err := Encode(nil, m)
	if err != nil {
		t.Fatal(err)
	}
	again, err := read(bytes.NewReader(once))
	if err != nil {
		t.Fatalf("%s is refused when it is sent on: %v", once, err)
	}
	if twice, err := Encode(nil, again); err != nil || !bytes.Equal(once, twice) {
		t.Errorf("%s became %s, %v", once, twice, err)
	}
}

// What a node is called is checked in all versions: others are told it.
func TestNodesNameIsCheckedInAllVersions(t *testing.T) {
	for _, version := range []int{Version, 99} {
		for _, name := range []string{"", "x\x1b[2J", "x\r\n", strings.Repeat("x", maxName+1)} {
			hello := Hello{Version: version, Node: name, Incarnation: "x", Cores: 4, Memory: 1 << 30}
			if m, err := ReadToHead(bytes.NewReader(framed(t, hello))); err == nil {
				t.Errorf("version %d, %.20q: %+v", version, name, m)
			}
		}
	}
}

// framed is a message as a peer without scruples sends it.
func framed(t *testing.T, m message) []byte {
	t.Helper()
	body, err := envelope.Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// What the receiver of a message refuses, its sender refuses with the same words; what is beyond
// the limits of the system is named.
func TestSenderAndReceiverRefuseTheSame(t *testing.T) {
	start := func(change func(*Start)) Start {
		s := Start{Task: task, Incarnation: "x", Spec: spec}
		change(&s)
		return s
	}
	many := gpus
	for i := range grant.MaxDevices {
		many.Devices = append(many.Devices, grant.Device{Node: "n3", Device: i, Address: "n3:1"})
	}
	for _, c := range []struct {
		message ToAgent
		want    string
	}{
		{start(func(s *Start) { s.Spec.Name = "x\x00" }), "name: it has a zero byte (NUL): remove it"},
		{start(func(s *Start) { s.Spec.Account = "\x00" }), "account: it has a zero byte"},
		{start(func(s *Start) { s.Spec.Output = "" }), "output: its name is empty"},
		{start(func(s *Start) { s.Spec.Error = strings.Repeat("x", MaxPath+1) }), "error: it has 4096 bytes: give at most 4095"},
		{start(func(s *Start) { s.Spec.Directory = "/" + strings.Repeat("x", MaxPath) }), "directory: it has 4096 bytes"},
		{start(func(s *Start) { s.Spec.Arguments = []string{strings.Repeat("x", MaxArgument+1)} }), "arguments: it has 131072 bytes: give at most 131071"},
		{start(func(s *Start) { s.Spec.Environment = []string{"A=" + strings.Repeat("x", MaxArgument-1)} }), "environment: it has 131072 bytes"},
		{start(func(s *Start) { s.Spec.Environment = []string{"=x"} }), `environment: "=x" is not a variable`},
		{start(func(s *Start) { s.Grant = &many }), "a grant of 17 devices: give 1 to 16"},
		{Stop{task, Stopped, strings.Repeat("x", MaxReason+1), 0}, "a cause"},
		{Open{Stream: "s", Task: task, Exec: &Exec{Arguments: []string{"a", "\x00"}}}, "arguments: it has a zero byte"},
		{Open{Stream: "s", Task: task, Exec: &Exec{}}, "nothing to run"},
		{Lend{grant.Loan{ID: "a", User: "b c"}}, "the user"},
		{Welcome{Cluster: "\x00", Silence: time.Second}, "a cluster's name"},
	} {
		_, sent := Encode(nil, c.message)
		after := append(framed(t, c.message), framed(t, Ping{})...)
		r := bytes.NewReader(after)
		_, received := ReadToAgent(r)
		if !errors.Is(sent, ErrRefused) || !strings.Contains(fmt.Sprint(sent), c.want) || received == nil || sent.Error() != received.Error() {
			t.Errorf("%s, not %q:\n%v\n%v", c.message.Kind(), c.want, sent, received)
		}
		// The message after it is read all the same.
		if next, err := ReadToAgent(r); err != nil || next != (ToAgent)(Ping{}) {
			t.Errorf("behind %s: %v, %v", c.message.Kind(), next, err)
		}
	}
	large := start(func(s *Start) { s.Spec.Environment = slices.Repeat([]string{"A=" + strings.Repeat("x", 100<<10)}, 64) })
	if err := Check(large); err == nil || !strings.Contains(err.Error(), "a process has at most 6291456; pass what is large in files") {
		t.Errorf("no process could be given it: %v", err)
	}
	if _, err := Encode(nil, start(func(s *Start) { s.Spec.Name = "\xff" })); err == nil || !strings.Contains(err.Error(), "name: it is not valid UTF-8") {
		t.Errorf("JSON would have altered it: %v", err)
	}
}

// A message that cannot be read says whose business it was, as far as that can be read.
func TestUnreadable(t *testing.T) {
	bad := Start{Task: task, Incarnation: "x", Spec: spec, Grant: &gpus}
	bad.Spec.Name = "x\x00"
	for _, c := range []struct {
		text []byte
		want Unreadable
	}{
		{framed(t, bad), Unreadable{Kind: "start", Task: task}},
		{framed(t, Lend{grant.Loan{ID: "7.2.1"}}), Unreadable{Kind: "lend", Loan: "7.2.1"}},
		{[]byte("\x18\x00\x00\x00" + `{"kind":"x","message":1}`), Unreadable{Kind: "x"}},
		{[]byte("\x02\x00\x00\x00[]"), Unreadable{}},
		{[]byte("\x00\x00\x00\x00"), Unreadable{}},
	} {
		_, err := ReadToAgent(bytes.NewReader(c.text))
		var u *Unreadable
		if !errors.As(err, &u) || !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		u.Err = nil
		if *u != c.want {
			t.Errorf("%s: %+v", c.text, u)
		}
	}
	// Where the end of a message is unknown, nothing that follows can be read.
	var u *Unreadable
	for _, text := range []string{"\xff\xff\xff\xff", "\x05\x00\x00\x00{}", "\x05"} {
		if _, err := ReadToAgent(strings.NewReader(text)); err == nil || errors.As(err, &u) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
