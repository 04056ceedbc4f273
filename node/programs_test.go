package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"muster/device"
	"muster/internal/door"
	"muster/internal/need"
	"muster/node/ask"
	"muster/node/settings"
	"muster/node/shown"
	"muster/node/socket"
	"muster/node/survival"
	"muster/node/workers"
	"muster/wire"
	"muster/wire/control"
	"muster/wire/status"
)

// adding is a program that adds vectors until it is stopped. The first error ends it.
type adding struct {
	stop  atomic.Bool
	count atomic.Int64
	err   error
	done  chan struct{}
}

// startAdding lets a program run in the background, and waits until it has begun.
func startAdding(t *testing.T, p *program, image []byte) *adding {
	t.Helper()
	a := &adding{done: make(chan struct{})}
	go func() {
		defer close(a.done)
		for !a.stop.Load() && a.err == nil {
			a.err = p.add(image)
			a.count.Add(1)
		}
	}()
	a.goesOn(t)
	return a
}

// goesOn waits until the program has added some more.
func (a *adding) goesOn(t *testing.T) {
	t.Helper()
	from := a.count.Load()
	eventually(t, "the program goes on", func() bool {
		select {
		case <-a.done:
			t.Fatal("the program has ended:", a.err)
		default:
		}
		return a.count.Load() > from+1
	})
}

// end stops the program, which must have been right all the time.
func (a *adding) end(t *testing.T) {
	t.Helper()
	a.stop.Store(true)
	select {
	case <-a.done:
	case <-time.After(4 * time.Minute):
		t.Fatal("the program does not end")
	}
	if a.err != nil {
		t.Error("a program failed:", a.err)
	}
}

// realNode is a node with real workers, on which programs stay where they are.
func realNode(t *testing.T, change func(*settings.Config)) *fixture {
	t.Helper()
	cfg := testConfig()
	cfg.Migrate = false
	if change != nil {
		change(&cfg)
	}
	opts := testOptions()
	opts.WorkerCommand = workerCommand("real worker")
	return runWith(t, cfg, opts)
}

// changes fails the test on an error.
func changes(t *testing.T) func(*status.Changed, error) *status.Changed {
	return func(c *status.Changed, err error) *status.Changed {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
}

func isState(t *testing.T, f *fixture, number int, state string) func() bool {
	return func() bool { return statusOf(t, f).Devices[number].State == state }
}

// softDevice describes a device that can be added.
func softDevice(name string) settings.Device {
	return settings.Device{DeviceConfig: control.DeviceConfig{Kind: "soft", Name: name, Memory: 64 << 20, Speed: 1, Workers: 1}}
}

// A device that is drained empties while programs run; they go on elsewhere, and none
// of them fails.
func TestDrainedDeviceEmpties(t *testing.T) {
	f := realNode(t, nil)
	image := vecadd(t)
	var all []*adding
	for range 3 {
		all = append(all, startAdding(t, mustConnect(t, f), image))
	}
	for _, device := range []string{"Big", "Small", "#0"} {
		drained := changes(t)(ask.DrainDevice(f.socket, device))
		eventually(t, device+" is drained", isState(t, f, *drained.Number, "drained"))
		for _, a := range all {
			a.goesOn(t)
		}
		s := statusOf(t, f)
		if d := s.Devices[*drained.Number]; d.Assigned != 0 || d.Free != d.Memory {
			t.Errorf("%s is drained and has %+v", device, d)
		}
		for _, c := range s.Clients {
			if c.Device != nil && *c.Device == *drained.Number {
				t.Errorf("client %d is on %s, which is drained", c.ID, device)
			}
		}
		if up := changes(t)(ask.ResumeDevice(f.socket, device)); up.Device.State != "up" {
			t.Errorf("%s is %s after it was resumed", device, up.Device.State)
		}
	}
	for _, a := range all {
		a.end(t)
	}
	moves := uint64(0)
	for _, c := range statusOf(t, f).Clients {
		moves += c.Moves.Drain
		if c.Preemptions != 0 || c.Moves.Auto != 0 || c.Moves.ByHand != 0 {
			t.Errorf("client %d: %+v", c.ID, c)
		}
	}
	if moves < 3 {
		t.Errorf("%d moves were counted", moves)
	}
}

// With all devices drained programs wait; when one is resumed they go on.
func TestEverythingIsDrained(t *testing.T) {
	f := realNode(t, nil)
	image := vecadd(t)
	running, fresh := mustConnect(t, f), mustConnect(t, f)
	if err := running.add(image); err != nil {
		t.Fatal(err)
	}
	for i, device := range []string{"Big", "Small"} {
		changes(t)(ask.DrainDevice(f.socket, device))
		eventually(t, device+" is drained", isState(t, f, i, "drained"))
	}
	late, err := connect(f.socket, hello(), 0) // programs may come meanwhile
	if err != nil {
		t.Fatal(err)
	}
	defer late.leave()
	done := make(chan error, 3)
	for _, p := range []*program{running, fresh, late} {
		go func() { done <- p.add(image) }()
	}
	eventually(t, "all wait", func() bool {
		parked := 0
		for _, c := range statusOf(t, f).Clients {
			if c.State == "ready" && c.Parked {
				parked++
			}
		}
		return parked == 3
	})
	select {
	case err := <-done:
		t.Fatal("a program did not wait:", err)
	default:
	}
	changes(t)(ask.ResumeDevice(f.socket, "Small"))
	for range 3 {
		within(t, "the programs go on", func() error { return <-done })
	}
	if s := statusOf(t, f); s.Devices[0].State != "drained" || s.Devices[0].Assigned != 0 {
		t.Errorf("%+v", s.Devices[0])
	}
}

// A device that comes is used at once by a program that runs on the only other one.
func TestDeviceIsAddedWhileAProgramRuns(t *testing.T) {
	f := realNode(t, func(c *settings.Config) { c.Devices = c.Devices[1:] })
	a := startAdding(t, mustConnect(t, f), vecadd(t))
	added := changes(t)(ask.AddDevice(f.socket, softDevice("new")))
	if *added.Number != 1 || added.Device.State != "up" || added.Device.Memory != 64<<20 {
		t.Errorf("added as #%d: %+v", *added.Number, added.Device)
	}
	changes(t)(ask.DrainDevice(f.socket, "Small"))
	eventually(t, "the old one is empty", isState(t, f, 0, "drained"))
	a.goesOn(t)
	if s := statusOf(t, f); s.Devices[1].BusyTime == 0 {
		eventually(t, "the new one is used", func() bool { return statusOf(t, f).Devices[1].BusyTime > 0 })
	}
	if p := mustConnect(t, f); p.welcome.Devices != 2 { // drained devices are there
		t.Errorf("a new program sees %d devices", p.welcome.Devices)
	}
	a.end(t)
}

// A worker that has become its user cannot open files any more: it is given the lock of
// a device that comes.
func TestDeviceIsAddedForAWorkerOfAUser(t *testing.T) {
	_, alice := needUsers(t)
	f := realNode(t, func(c *settings.Config) { c.Swap.Dir = t.TempDir(); c.Devices = c.Devices[:1] })
	p := startAdder(t, f, alice)
	p.add()
	changes(t)(ask.AddDevice(f.socket, softDevice("new")))
	changes(t)(ask.DrainDevice(f.socket, "Big"))
	eventually(t, "the old one is empty", isState(t, f, 0, "drained"))
	p.add()
	if s := statusOf(t, f); len(s.Clients) != 1 || s.Clients[0].Device == nil || *s.Clients[0].Device != 1 {
		t.Errorf("%+v", s.Clients)
	}
}

// Devices that are removed keep their numbers and come back, as they were or as others.
// Programs that came before, meanwhile and afterwards use what is there.
func TestDevicesComeBack(t *testing.T) {
	f := realNode(t, nil)
	image := vecadd(t)
	before := mustConnect(t, f)
	if err := before.add(image); err != nil {
		t.Fatal(err)
	}
	changes(t)(ask.RemoveDevice(f.socket, "Big", false))
	eventually(t, "it is removed", isState(t, f, 0, "removed"))
	meanwhile := mustConnect(t, f)
	if meanwhile.welcome.Devices != 1 {
		t.Errorf("a program sees %d devices", meanwhile.welcome.Devices)
	}
	for _, p := range []*program{before, meanwhile} {
		if err := p.add(image); err != nil {
			t.Error(err)
		}
	}
	if back := changes(t)(ask.ResumeDevice(f.socket, "Big")); *back.Number != 0 || back.Device.State != "up" || back.Device.Memory != 256<<20 {
		t.Errorf("back as #%d: %+v", *back.Number, back.Device)
	}
	changes(t)(ask.RemoveDevice(f.socket, "Small", false))
	eventually(t, "the other one is removed", isState(t, f, 1, "removed"))
	after := mustConnect(t, f)
	for _, p := range []*program{before, meanwhile, after} {
		if err := p.add(image); err != nil {
			t.Error(err)
		}
	}
	other := softDevice("Small")
	other.Memory = 32 << 20
	if back := changes(t)(ask.AddDevice(f.socket, other)); *back.Number != 1 || back.Device.Memory != 32<<20 {
		t.Errorf("another one came as #%d: %+v", *back.Number, back.Device)
	}
	changes(t)(ask.DrainDevice(f.socket, "Big"))
	eventually(t, "the first one is empty", isState(t, f, 0, "drained"))
	for _, p := range []*program{before, meanwhile, after} {
		if err := p.add(image); err != nil {
			t.Error(err)
		}
	}
}

// A device is removed under a program that has more memory than any other device: its
// kernels get what they point to from then on.
func TestLargeProgramGoesOnWithLess(t *testing.T) {
	f := realNode(t, nil)
	p := mustConnect(t, f)
	image := vecadd(t)
	if err := errors.Join(p.do(&wire.MemAlloc{Addr: p.attached.ArenaBase + 64<<20, Size: 192 << 20}, nil, true), p.add(image)); err != nil {
		t.Fatal(err)
	}
	changes(t)(ask.DrainDevice(f.socket, "Big"))
	eventually(t, "it is empty", isState(t, f, 0, "drained"))
	done := make(chan error, 1)
	go func() { done <- p.add(image) }()
	eventually(t, "the program waits for it", func() bool { return statusOf(t, f).Clients[0].Parked })
	changes(t)(ask.RemoveDevice(f.socket, "Big", false))
	within(t, "the program goes on", func() error { return <-done })
	eventually(t, "it is removed", isState(t, f, 0, "removed"))
}

// A device for which programs wait that can use no other is not removed, but by force.
func TestRemovalWaitsForThoseWhoDepend(t *testing.T) {
	f := run(t, testConfig()) // the tests' workers need all that they have
	p := mustConnect(t, f)
	if result, err := p.Call(&wire.MemAlloc{Size: 200 << 20}, nil); result != 0 || err != nil {
		t.Fatal(result, err)
	}
	changes(t)(ask.DrainDevice(f.socket, "Big"))
	answer := make(chan int32, 1)
	go func() {
		result, _ := p.Call(&wire.Synchronise{}, nil)
		answer <- result
	}()
	eventually(t, "the program waits", func() bool { return statusOf(t, f).Clients[0].Parked })
	removing := changes(t)(ask.RemoveDevice(f.socket, "Big", false))
	if removing.Device.State != "drained" || !removing.Device.Removing {
		t.Errorf("%+v", removing.Device)
	}
	// Resumed, it is as if nothing had been.
	changes(t)(ask.ResumeDevice(f.socket, "Big"))
	if result := <-answer; result != 0 {
		t.Errorf("the program got %d", result)
	}
	if err := p.Post(&wire.SyncPoint{}); err != nil { // it lets go
		t.Fatal(err)
	}
	changes(t)(ask.RemoveDevice(f.socket, "Big", false))
	eventually(t, "it is removed: nobody waits for it", isState(t, f, 0, "removed"))
	changes(t)(ask.ResumeDevice(f.socket, "Big"))
	changes(t)(ask.DrainDevice(f.socket, "Big"))
	go func() {
		result, _ := p.Call(&wire.Synchronise{}, nil)
		answer <- result
	}()
	eventually(t, "the program waits again", func() bool { return statusOf(t, f).Clients[0].Parked })
	if forced := changes(t)(ask.RemoveDevice(f.socket, "Big", true)); forced.Device.State != "removed" {
		t.Errorf("%+v", forced.Device)
	}
	if result := <-answer; result != 1 { // what the tests' worker says when it is denied
		t.Errorf("the program got %d", result)
	}
}

// A program is moved to and fro while it runs.
func TestMoveByHand(t *testing.T) {
	f := realNode(t, nil)
	a := startAdding(t, mustConnect(t, f), vecadd(t))
	for i, to := range []string{"Small", "#0", "Small"} {
		moved := changes(t)(ask.MoveClient(f.socket, 1, to))
		if moved.Client == nil || moved.Client.ID != 1 {
			t.Fatalf("%+v", moved)
		}
		eventually(t, "the program is on "+to, func() bool {
			c := statusOf(t, f).Clients[0]
			return c.Device != nil && *c.Device == *moved.Number && c.Moves.ByHand == uint64(i+1)
		})
		a.goesOn(t)
	}
	changes(t)(ask.DrainDevice(f.socket, "Big"))
	for device, want := range map[string]string{
		"Big": `device "Big" is drained: resume it first`, "Bag": `there is no device "Bag": did you mean "Big"?`, "#2": "there is no device #2: give one of #0 to #1",
	} {
		if _, err := ask.MoveClient(f.socket, 1, device); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v\nwant %s", device, err, want)
		}
	}
	a.end(t)
}

// A client that is ended by hand is told who did it and why, and gives everything back.
func TestEndByHand(t *testing.T) {
	f := realNode(t, nil)
	p := mustConnect(t, f)
	a := startAdding(t, p, vecadd(t))
	a.goesOn(t)
	if _, err := ask.EndClient(f.socket, 7, ""); err == nil || !strings.Contains(err.Error(), "there is no client 7: muster ps lists those there are") {
		t.Errorf("a client that is not there: %v", err)
	}
	if _, err := ask.EndClient(f.socket, 1, "one\ntwo"); err == nil || !strings.Contains(err.Error(), "the reason must be one line") {
		t.Errorf("a reason of two lines: %v", err)
	}
	ended := changes(t)(ask.EndClient(f.socket, 1, "the demo needs the GPU"))
	if ended.Client == nil || ended.Client.ID != 1 {
		t.Fatalf("%+v", ended)
	}
	eventually(t, "nothing is left of it", func() bool { s := statusOf(t, f); return len(s.Clients) == 0 })
	<-a.done
	if a.err == nil || !strings.Contains(a.err.Error(), "ended it (muster kill): the demo needs the GPU") {
		t.Errorf("the program was told %v", a.err)
	}
}

// Programs come while devices come and go: each finds out what there is, whatever
// happened while its worker started.
func TestProgramsComeWhileDevicesDo(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a few seconds")
	}
	f := realNode(t, nil)
	image := vecadd(t)
	var stop atomic.Bool
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for !stop.Load() {
				p, err := connect(f.socket, hello(), 0)
				if err != nil {
					t.Error(err)
					return
				}
				for range 3 {
					if err := p.add(image); err != nil {
						t.Error(err)
					}
				}
				p.leave()
			}
		})
	}
	for i := range need.Rounds(6, 20) {
		changes(t)(ask.AddDevice(f.socket, softDevice("new")))
		changes(t)(ask.DrainDevice(f.socket, []string{"Big", "Small"}[i%2]))
		eventually(t, "the old one is empty", isState(t, f, i%2, "drained"))
		changes(t)(ask.ResumeDevice(f.socket, []string{"Big", "Small"}[i%2]))
		changes(t)(ask.RemoveDevice(f.socket, "new", false))
		eventually(t, "the new one is removed", isState(t, f, 2, "removed"))
	}
	stop.Store(true)
	group.Wait()
}

// --- who may, and what is refused ------------------------------------------------

// say sends bytes to the node's socket and returns the answer.
func say(t *testing.T, socket string, text []byte) string {
	t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(4 * time.Minute))
	_, _ = conn.Write(text)
	_ = conn.CloseWrite()
	answer, _ := io.ReadAll(io.LimitReader(conn, 1<<20))
	return strings.TrimSuffix(string(answer), "\n")
}

func TestRequestsAreStrict(t *testing.T) {
	cfg := testConfig()
	opts := testOptions()
	opts.Open = func(c control.DeviceConfig) (device.Device, error) {
		if c.Name == "Broken" {
			return nil, errors.New("it is on fire")
		}
		return openSoft(c)
	}
	f := runWith(t, cfg, opts)
	before := statusOf(t, f)
	const noRequest = `a request is one JSON object, as {"request":"status"}`
	for _, c := range []struct{ request, want string }{
		{`{"request":"statos"}`, `there is no request "statos": did you mean status?`},
		{`{"request":"x"}`, `there is no request "x": it is one of adopt, checkpoint, configure, device-add, device-drain, device-remove, device-resume, end, grant-admit, grant-limit, grant-revoke, grants, monitor, move, peer, restore, revive, status, stop`},
		{`{"request":"status","device":"Big"}`, `the request cannot be read: unknown field "device"`},
		{`{"Request":"status"}`, `the request cannot be read: unknown field "Request": write "request"`},
		{`{"request":"status","request":"status"}`, `the request cannot be read: the name "request" is given twice`},
		{`{"request":"monitor","memory":-1}`, `the request cannot be read: cannot unmarshal number -1 into Go struct field .memory of type uint64`},
		{`{"request":"monitor","device":0}`, `the request cannot be read: unknown field "device"`},
		{`{"request":7}        `, noRequest},
		{`{"request":"status"`, noRequest},
		{`{"request":"peer","question":{"version":4,"node":"n","slots":1}}`, `only the node's gateway asks for other nodes`},
		{`{"request":"peer","question":{"slots":1,"more":2}}`, `the request cannot be read: unknown field "more"`},
		{`{"request":"configure","settings":{"policy":"easy"}}`, `policy: must be one of fcfs, sjf, credit, not "easy"`},
		{`{"request":"configure","settings":{"above":2}}`, `above: this node borrows no virtual GPUs of others (peers and offload in its configuration)`},
		{`{"request":"configure","settings":{"slots":2}}`, `the request cannot be read: unknown field "slots"`},
		{`{"request":"configure","vgpus":2}`, `the request cannot be read: unknown field "vgpus"`},
		{`{"request":"device-drain"}`, `there is no device "": muster device list names those there are`},
		{`{"request":"device-drain","device":"Bog"}`, `there is no device "Bog": did you mean "Big"?`},
		{`{"request":"device-drain","device":"#2"}`, `there is no device #2: give one of #0 to #1`},
		{`{"request":"device-drain","device":"#-1"}`, `there is no device #-1: give one of #0 to #1`},
		{`{"request":"device-drain","device":"#99999999999999999999"}`, `there is no device #99999999999999999999: give one of #0 to #1`},
		{`{"request":"device-drain","device":7}`, `the request cannot be read: cannot unmarshal number into Go struct field DeviceRequest.device of type string`},
		{`{"request":"device-drain","device":"Big","force":true}`, `device-drain cannot be forced`},
		{`{"request":"device-drain","device":"Big","now":true}`, `the request cannot be read: unknown field "now"`},
		{`{"request":"move","client":1,"device":"Big"}`, `there is no client 1: muster ps lists those there are`},
		{`{"request":"move","client":-1,"device":"Big"}`, `the request cannot be read: cannot unmarshal number -1 into Go struct field MoveRequest.client of type vgpu.ClientID`},
		{`{"request":"device-add"}`, `there are no devices of kind "": only soft, cuda and remote`},
		{`{"request":"device-add","add":{"kind":"hard"}}`, `there are no devices of kind "hard": only soft, cuda and remote`},
		{`{"request":"device-add","add":{"kind":"soft"}}`, `"" is no name for a device: give 1 to 200 characters that can be printed`},
		{`{"request":"device-add","add":{"kind":"soft","name":"a\u001b[2J"}}`, `"a?[2J" is no name for a device: give 1 to 200 characters that can be printed`},
		{`{"request":"device-add","add":{"kind":"soft","name":"a","memory":1}}`, `a software GPU's memory must be a multiple of 2MiB, above 0`},
		{`{"request":"device-add","add":{"kind":"soft","name":"a","memory":2097152,"speed":2}}`, `speed must be above 0 and at most 1, not 2`},
		{`{"request":"device-add","add":{"kind":"soft","name":"a","memory":2097152,"speed":1,"workers":100000}}`, `workers must be a whole number from 1 to 1024, not 100000`},
		{`{"request":"device-add","add":{"kind":"soft","name":"a","memory":2097152,"speed":1,"workers":1,"gone":true}}`, `a device that is gone cannot be added`},
		{`{"request":"device-add","add":{"kind":"cuda","memory":2097152}}`, `a CUDA device has a number of the driver's and, if need be, a reserve; nothing else`},
		{`{"request":"device-add","add":{"kind":"soft","name":"a","memory":67108864,"speed":1,"workers":1},"reserve":67108864}`,
			`the device cannot be opened: of its memory of 64 MiB nothing is left for programs: give it a smaller reserve`},
		{`{"request":"device-add","add":{"kind":"soft","name":"a","memory":67108864,"speed":1,"workers":1},"reserve":18446744073709551615}`,
			`the device cannot be opened: of its memory of 64 MiB nothing is left for programs: give it a smaller reserve`},
		{`{"request":"device-add","add":{"kind":"soft","name":"Broken","memory":67108864,"speed":1,"workers":1}}`, `the device cannot be opened: it is on fire`},
		{"{" + strings.Repeat(" ", ask.MaxRequest) + `"request":"status"}`, noRequest},
		{`{"request":"` + strings.Repeat("x", 2*ask.MaxRequest) + `"}`, noRequest},
	} {
		got := say(t, f.socket, []byte(c.request+"\n"))
		want, _ := json.Marshal(map[string]string{"error": c.want})
		var is, must map[string]string
		_ = json.Unmarshal([]byte(got), &is)
		_ = json.Unmarshal(want, &must)
		if is["error"] != must["error"] {
			t.Errorf("%.100s\ngot  %s\nwant %s", c.request, got, want)
		}
	}
	after := statusOf(t, f)
	after.Up = before.Up
	if toJSON(t, before) != toJSON(t, after) {
		t.Errorf("something has changed:\n%s", toJSON(t, after))
	}
}

// Somebody who sends without end is answered after what a request may have, and closed.
func TestRequestWithoutEnd(t *testing.T) {
	f := run(t, testConfig())
	conn, err := net.Dial("unix", f.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = conn.Write([]byte(`{"request":"device-drain","device":"`))
	sent := make(chan struct{})
	go func() { // until the node closes the connection
		defer close(sent)
		for chunk := bytes.Repeat([]byte("x"), 1<<10); ; {
			if _, err := conn.Write(chunk); err != nil {
				return
			}
		}
	}()
	var answer map[string]string
	if err := json.NewDecoder(conn).Decode(&answer); err == nil && answer["error"] == "" {
		t.Errorf("the answer is %v", answer)
	}
	within(t, "the connection is closed", func() error { <-sent; return nil })
	statusOf(t, f)
}

// Users who do not own the node may change none of its devices, and move their own
// programs only.
func TestOthersMayNotChangeDevices(t *testing.T) {
	_, alice := needUsers(t)
	bob := alice + 1
	f := realNode(t, func(c *settings.Config) { c.Swap.Dir = t.TempDir() })
	startAdder(t, f, alice).add()
	startAdder(t, f, bob).add()
	asks := func(uid uint32, request string) string {
		t.Helper()
		out, err := as(uid, "asker", "MUSTER_TEST_SOCKET="+f.socket, "MUSTER_TEST_REQUEST="+request).Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	before := statusOf(t, f)
	for _, request := range []string{
		`{"request":"device-drain","device":"Big"}`, `{"request":"device-remove","device":"Big","force":true}`, `{"request":"device-resume","device":"Big"}`,
		`{"request":"device-add","add":{"kind":"soft","name":"a","memory":67108864,"speed":1,"workers":1}}`,
	} {
		if got := asks(alice, request); !strings.Contains(got, "whose node it is, may change its devices, not ") {
			t.Errorf("%s: %s", request, got)
		}
	}
	target := `"device":"#1"`
	if *before.Clients[0].Device == 1 {
		target = `"device":"#0"`
	}
	mine := fmt.Sprintf(`{"request":"move","client":%d,%s}`, before.Clients[0].ID, target)
	if got := asks(bob, mine); !strings.Contains(got, "only that user, user ") {
		t.Errorf("bob may move alice's program: %s", got)
	}
	if got := asks(alice, mine); !strings.Contains(got, `"number":`) {
		t.Errorf("alice may not move her program: %s", got)
	}
	for i, d := range statusOf(t, f).Devices {
		if d.State != "up" || len(statusOf(t, f).Devices) != 2 {
			t.Errorf("device %d: %+v", i, d)
		}
	}
}

// asker sends a request and prints the answer.
func asker() error {
	conn, err := net.Dial("unix", os.Getenv("MUSTER_TEST_SOCKET"))
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := fmt.Fprintln(conn, os.Getenv("MUSTER_TEST_REQUEST")); err != nil {
		return err
	}
	_, err = io.Copy(os.Stdout, conn)
	return err
}

// However many devices are added, a node has a bounded number; and those that were
// removed make room for others.
func TestManyDevicesAreAdded(t *testing.T) {
	f := run(t, testConfig())
	p := mustConnect(t, f)
	added := 0
	for i := range 300 {
		if _, err := ask.AddDevice(f.socket, softDevice(fmt.Sprint("d", i))); err == nil {
			added++
		} else if !strings.HasSuffix(err.Error(), "the node has 16 devices, as many as it may: remove one first (muster device remove)") {
			t.Fatal(i, err)
		}
	}
	if added != settings.MaxDevices-2 {
		t.Errorf("%d devices were added", added)
	}
	for i := range 300 {
		number := fmt.Sprintf("#%d", i%settings.MaxDevices)
		if removed := changes(t)(ask.RemoveDevice(f.socket, number, false)); removed.Device.State != "removed" {
			t.Fatalf("%+v", removed.Device)
		}
		if got := changes(t)(ask.AddDevice(f.socket, softDevice(fmt.Sprint("e", i)))); *got.Number != i%settings.MaxDevices {
			t.Fatalf("the %dth is device #%d", i, *got.Number)
		}
	}
	s := statusOf(t, f)
	if len(s.Devices) != settings.MaxDevices {
		t.Errorf("the node has %d devices", len(s.Devices))
	}
	p.synchronise(t)
	if late := mustConnect(t, f); late.welcome.Devices != settings.MaxDevices {
		t.Errorf("a program sees %d devices", late.welcome.Devices)
	}
}

// A device that can do less than programs were told is not added under them.
func TestLesserDeviceWaitsForPrograms(t *testing.T) {
	cfg := testConfig()
	opts := testOptions()
	opts.Open = func(c control.DeviceConfig) (device.Device, error) {
		d, err := openSoft(c)
		if err != nil || c.Name != "Old" {
			return d, err
		}
		return oldDevice{d}, nil
	}
	f := runWith(t, cfg, opts)
	p := mustConnect(t, f)
	_, err := ask.AddDevice(f.socket, softDevice("Old"))
	if err == nil || !strings.Contains(err.Error(), "Old has compute capability 3.5, and programs were told ") || !strings.Contains(err.Error(), "(client 1 is one)") {
		t.Errorf("%v", err)
	}
	p.leave()
	eventually(t, "the program has gone", func() bool { return len(statusOf(t, f).Clients) == 0 })
	changes(t)(ask.AddDevice(f.socket, softDevice("Old")))
	mustConnect(t, f).synchronise(t) // it is told what the least can do
}

// oldDevice is one of an older kind.
type oldDevice struct{ device.Device }

func (d oldDevice) Info() device.Info {
	info := d.Device.Info()
	info.Compute = device.Compute{Major: 3, Minor: 5}
	return info
}

func TestWhatDevicesCannotDo(t *testing.T) {
	info := device.Info{Compute: device.Compute{Major: 8, Minor: 0}, Attributes: map[int]int{1: 1024, shown.AttrTextureAlignment: 512}}
	for _, c := range []struct {
		shown map[int]int
		want  string
	}{
		{nil, ""},
		{map[int]int{shown.AttrComputeMajor: 7, shown.AttrComputeMinor: 5, 1: 1024, shown.AttrTextureAlignment: 512}, ""},
		{map[int]int{shown.AttrComputeMajor: 8, shown.AttrComputeMinor: 0, 1: 512, shown.AttrTextureAlignment: 1024}, ""},
		{map[int]int{shown.AttrComputeMajor: 8, shown.AttrComputeMinor: 6}, "has compute capability 8.0, and programs were told 8.6"},
		{map[int]int{1: 2048}, "has 1024 for CUDA's device attribute 1, and programs were told 2048"},
		{map[int]int{shown.AttrTextureAlignment: 256}, "has 512 for CUDA's device attribute 14, and programs were told 256"},
	} {
		if got := shown.CannotDo(info, c.shown); got != c.want {
			t.Errorf("%v: %q, want %q", c.shown, got, c.want)
		}
	}
}

// Locks are each worker's own: the daemon keeps none of those that it opened.
func TestLocksAreNotKeptOpen(t *testing.T) {
	f := realNode(t, nil)
	count := func() (n int) {
		all, _ := filepath.Glob("/proc/self/fd/*")
		for _, path := range all {
			if target, _ := os.Readlink(path); strings.HasPrefix(target, "/memfd:muster-lock") {
				n++
			}
		}
		return n
	}
	before := count()
	p := mustConnect(t, f)
	changes(t)(ask.AddDevice(f.socket, softDevice("new")))
	addVectors(t, p)
	if n := count() - before; n != 1 {
		t.Errorf("%d more locks are open, after one device was added", n)
	}
}

// A device that is lost is nobody's any more, and comes back when it can be opened.
func TestLostDeviceComesBack(t *testing.T) {
	d := begun(t, testConfig(), testOptions())
	d.loop.Ask(func() { d.stock.Lose(1, "it fell off the bus"); d.stock.Lose(1, "again") })
	me := socket.Peer{User: d.rights.Own}
	says := func(request string) string {
		reply, err := d.desk.Handle([]byte(request), me)
		return fmt.Sprint(toJSON(t, reply), err)
	}
	if got := says(`{"request":"device-drain","device":"Small"}`); !strings.HasSuffix(got, `device "Small" is lost: add it again when it is back`) {
		t.Error(got)
	}
	if infos := d.stock.Load().Infos(); len(infos) != 1 || infos[0].Name != "Big" {
		t.Errorf("%d devices are there", len(infos))
	}
	if got := says(`{"request":"device-resume","device":"Small"}`); !strings.Contains(got, `"state": "up"`) || !strings.Contains(got, `"number": 1`) {
		t.Error(got)
	}
	d.loop.Ask(func() { d.stock.Lose(1, "it fell off the bus") })
	if got := says(`{"request":"device-remove","device":"Small"}`); !strings.Contains(got, `"state": "removed"`) {
		t.Error(got)
	}
	if got := says(`{"request":"device-remove","device":"Small"}`); !strings.Contains(got, "device #1 (Small) has been removed already") {
		t.Error(got)
	}
}

// Whatever is asked for is answered, by a document or an error, and nobody but the
// owner changes anything.
func FuzzRequests(f *testing.F) {
	for _, line := range []string{
		`{"request":"status"}`, `{"request":"device-drain","device":"#0"}`, `{"request":"device-resume","device":"Big"}`, `{"request":"device-remove","device":"Small","force":true}`,
		`{"request":"device-add","add":{"kind":"soft","name":"a","memory":67108864,"speed":1,"workers":1},"reserve":1}`, `{"request":"move","client":1,"device":"Big"}`,
		`{"request":"move","client":1e30}`, `{"Request":"STATUS","request":"move"}`, `{`, `[]`, `null`, `{}{}`,
	} {
		f.Add(line, true)
		f.Add(line, false)
	}
	opts := testOptions()
	opts.Open = func(c control.DeviceConfig) (device.Device, error) {
		if c.Name == "Big" || c.Name == "Small" {
			return openSoft(c)
		}
		return nil, errors.New("it cannot be opened")
	}
	d, err := newDaemon(testConfig(), opts)
	if err == nil {
		err = d.equip(&survival.Left{})
	}
	if err != nil {
		f.Fatal(err)
	}
	d.staff.pool, d.health.socket = workers.NewPool([]string{"/bin/true"}, d.staff.bounds, 0, nil, d.log), &door.Listener{}
	go d.run()
	f.Cleanup(func() { d.loop.Do(d.ending.drain); <-d.loop.Ended(); d.stock.CloseLocks() })
	f.Fuzz(func(t *testing.T, line string, owner bool) {
		who := socket.Peer{User: settings.Account{UID: d.rights.Own.UID + 1, Name: "ben"}}
		if owner {
			who.User = d.rights.Own
		}
		raw := []byte(line)
		if !json.Valid(raw) {
			return
		}
		devices := func() (all string) {
			d.loop.Ask(func() { all = fmt.Sprint(d.dispatcher.View().Devices) })
			return all
		}
		before := devices()
		reply, err := d.desk.Handle(raw, who)
		if err == nil {
			if _, err := json.Marshal(reply); err != nil {
				t.Error(err)
			}
		}
		if !owner && devices() != before {
			t.Errorf("%q of another user has changed devices", line)
		}
	})
}

// begun is a daemon whose loop runs, without a socket.
func begun(t *testing.T, cfg settings.Config, opts Options) *daemon {
	t.Helper()
	d, err := newDaemon(cfg, opts)
	if err == nil {
		err = d.begin()
	}
	if err != nil {
		t.Fatal(err)
	}
	go d.run()
	t.Cleanup(func() {
		d.loop.Do(d.ending.drain)
		<-d.loop.Ended()
		d.spares.Stop()
		d.staff.pool.Stop()
		d.stock.CloseLocks()
	})
	return d
}
