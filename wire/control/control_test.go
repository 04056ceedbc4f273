package control

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/wire/envelope"
)

func pair(t *testing.T) (*DaemonEnd, *WorkerEnd) {
	t.Helper()
	daemon, child, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	worker, err := OpenWorkerEnd(child)
	if err != nil {
		t.Fatal(err)
	}
	child.Close()
	t.Cleanup(func() { daemon.Close(); worker.Close() })
	return daemon, worker
}

// filled returns a message of a type, with a value in every field.
func filled(kind reflect.Type) any {
	v := reflect.New(kind).Elem()
	fill(v)
	return v.Interface()
}

func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0))
		fill(v.Index(1))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.String:
		v.SetString("text with \"quotes\" and <signs>")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(math.MaxInt64)
	case reflect.Uint8, reflect.Uint64:
		v.SetUint(math.MaxUint64)
	case reflect.Float64:
		v.SetFloat(0.1)
	default:
		panic(v.Kind())
	}
}

// One end receives what the other sends, whatever the fields hold.
func TestEveryKindTravels(t *testing.T) {
	daemon, worker := pair(t)
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for name, kind := range kindsToWorker {
		for _, m := range []ToWorker{filled(kind).(ToWorker), reflect.Zero(kind).Interface().(ToWorker)} {
			var with []*os.File
			for checkFiles(m, len(with)) != nil {
				with = append(with, file)
			}
			if err := daemon.Send(m, with...); err != nil {
				t.Fatal(name, err)
			}
			got, files, err := worker.Receive()
			if err != nil || len(files) != len(with) || !reflect.DeepEqual(got, m) {
				t.Errorf("%s: sent %+v, got %+v, %d files, %v", name, m, got, len(files), err)
			}
			closeAll(files)
		}
	}
	for name, kind := range kindsToDaemon {
		for _, m := range []ToDaemon{filled(kind).(ToDaemon), reflect.Zero(kind).Interface().(ToDaemon)} {
			if err := worker.Send(m); err != nil {
				t.Fatal(name, err)
			}
			if got, err := daemon.Receive(); err != nil || !reflect.DeepEqual(got, m) {
				t.Errorf("%s: sent %+v, got %+v, %v", name, m, got, err)
			}
		}
	}
}

// What a person sees who looks at the connection.
func TestBytes(t *testing.T) {
	for _, c := range []struct {
		m    message
		want string
	}{
		{Grant{Lease: 2, Device: 1, Memory: 4096}, `{"kind":"grant","message":{"lease":2,"device":1,"memory":4096}}`},
		{Want{Memory: 4096, Estimate: time.Millisecond, Pinned: -1}, `{"kind":"want","message":{"memory":4096,"estimate":1000000,"pinned":-1}}`},
		{Busy{}, `{"kind":"busy","message":{}}`},
	} {
		if got, err := encode(c.m); err != nil || string(got) != c.want {
			t.Errorf("%s, %v\nwant %s", got, err, c.want)
		}
	}
}

func TestDecodingIsStrict(t *testing.T) {
	for _, c := range []struct{ packet, want string }{
		{`{"kind":"busy","message":{}}`, ""},
		{` {"message": {"for": 5}, "kind": "idle"} `, ""},
		{``, "not a JSON object"},
		{`null`, "not a JSON object"},
		{`["busy"]`, "not a JSON object"},
		{`{"kind":"busy"`, "unexpected EOF"},
		{`{"kind":"busy","message":{}}{}`, "something follows the object"},
		{`{"kind":"busy","message":{}}]`, "something follows the object"},
		{`{"kind":"busy","message":{},"on":true}`, `unknown field "on"`},
		{`{"kind":"busy"}`, "busy: not a JSON object"},
		{`{"kind":"busy","message":null}`, "busy: not a JSON object"},
		{`{"kind":"busy","message":{"for":1}}`, `busy: unknown field "for"`},
		{`{"kind":"","message":{}}`, `its kind is "", which is not known here`},
		{`{"kind":"shrink","message":{}}`, `its kind is "shrink", which is not known here`},
		{`{"kind":"grant","message":{"lease":1}}`, `its kind is "grant", which is not known here`}, // known in the other direction only
		{`{"kind":"idle","message":{"for":-1}}`, "idle with a negative idle time: -1ns"},
		{`{"kind":"ran","message":{"kernels":-1}}`, "ran with a negative number of kernels: -1"},
		{`{"kind":"ran","message":{"busy":-5}}`, "ran with a negative busy time: -5ns"},
		{`{"kind":"ran","message":{"busy":1e30}}`, "ran: cannot unmarshal number 1e30 into Go struct field Ran.busy of type time.Duration"},
		{`{"kind":"report","message":{"stats":{"swaps":-5}}}`, "report: cannot unmarshal number -5 into Go struct field Stats.stats.swaps of type uint64"},
		{`{"kind":"want","message":{"estimate":-5}}`, "want with a negative estimate: -5ns"},
		{`{"kind":"want","message":{"pinned":-2}}`, "want with pinned to device -2: give -1 for any"},
	} {
		_, err := decode[ToDaemon]([]byte(c.packet), kindsToDaemon)
		checkRefusal(t, c.packet, c.want, err)
	}
	for _, c := range []struct{ packet, want string }{
		{`{"kind":"grant","message":{"device":-1}}`, "grant with a negative device: -1"},
		{`{"kind":"lost","message":{"device":-1}}`, "lost with a negative device: -1"},
		{`{"kind":"serve","message":{"user":{"uid":-1}}}`, "serve with a negative user: -1"},
		{`{"kind":"serve","message":{"user":{"uid":1,"groups":[1,-2]}}}`, "serve with a negative group: -2"},
		{`{"kind":"serve","message":{"devices":[{"index":-1}]}}`, "serve with a negative index: -1"},
		{`{"kind":"serve","message":{"devices":[{"speed":-1}]}}`, "serve with a speed of -1"},
		{`{"kind":"serve","message":{"max_idle":1}}`, `serve: unknown field "max_idle"`},
		{`{"kind":"want","message":{}}`, `its kind is "want", which is not known here`},
		{`{"kind":"add_device","message":{"device":-1}}`, "add_device with a negative device: -1"},
		{`{"kind":"add_device","message":{"config":{"workers":-1}}}`, "add_device with a negative workers: -1"},
		{`{"kind":"add_device","message":{"config":{"lock":3}}}`, `add_device: unknown field "lock"`},
	} {
		_, err := decode[ToWorker]([]byte(c.packet), kindsToWorker)
		checkRefusal(t, c.packet, c.want, err)
	}
}

func checkRefusal(t *testing.T, packet, want string, err error) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("%s: %v", packet, err)
	case want != "" && (!errors.Is(err, ErrRefused) || err.Error() != ErrRefused.Error()+": "+want):
		t.Errorf("%s: %v\nwant %s", packet, err, want)
	}
}

// Descriptors come with Serve, one with AddDevice, Hold, Checkpoint and Restore, and none
// with anything else.
func TestFilesComeWithSomeMessages(t *testing.T) {
	daemon, worker := pair(t)
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := daemon.Send(Serve{Client: 7}, file, file); err != nil {
		t.Fatal(err)
	}
	m, files, err := worker.Receive()
	if err != nil || len(files) != 2 || m.(Serve).Client != 7 {
		t.Fatal(m, files, err)
	}
	closeAll(files)
	if err := daemon.Send(AddDevice{Device: 3}, file); err != nil {
		t.Fatal(err)
	}
	m, files, err = worker.Receive()
	if err != nil || len(files) != 1 || m.(AddDevice).Device != 3 {
		t.Fatal(m, files, err)
	}
	closeAll(files)
	for _, m := range []ToWorker{Checkpoint{Hold: true}, Restore{}} {
		if err := daemon.Send(m, file); err != nil {
			t.Fatal(err)
		}
		got, files, err := worker.Receive()
		if err != nil || len(files) != 1 || got != m {
			t.Fatal(got, files, err)
		}
		closeAll(files)
	}
	for _, c := range []struct {
		m     ToWorker
		files []*os.File
	}{
		{Watch{On: true}, []*os.File{file}}, {AddDevice{}, nil}, {AddDevice{}, []*os.File{file, file}}, {Hold{}, nil}, {Hold{}, []*os.File{file, file}},
		{Checkpoint{}, nil}, {Checkpoint{}, []*os.File{file, file}}, {Restore{}, nil}, {Proceed{}, []*os.File{file}},
	} {
		if err := daemon.Send(c.m, c.files...); err != nil {
			t.Fatal(err)
		}
		if m, files, err := worker.Receive(); !errors.Is(err, ErrRefused) || files != nil {
			t.Error(c.m.Kind(), len(c.files), m, files, err)
		}
	}
	if err := worker.send(Busy{}, []*os.File{file}); err != nil {
		t.Fatal(err)
	}
	if m, err := daemon.Receive(); !errors.Is(err, ErrRefused) {
		t.Error(m, err)
	}
	if err := worker.Send(Idle{}); err != nil {
		t.Fatal(err)
	}
	if m, err := daemon.Receive(); m != (Idle{}) || err != nil {
		t.Error("after a refusal:", m, err)
	}
}

// However long a reason is, the rest of the message arrives.
func TestLongReasonsAreCut(t *testing.T) {
	daemon, worker := pair(t)
	long := strings.Repeat("\x01", 1<<20)
	for _, m := range []ToDaemon{Failed{Lease: 3, Reason: long}, CannotServe{Reason: long}, Checkpointed{Error: long}, Restored{Error: long}} {
		if err := worker.Send(m); err != nil {
			t.Fatal(err)
		}
		got, err := daemon.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if f, ok := got.(Failed); ok && (f.Lease != 3 || f.Reason != long[:maxReason]) {
			t.Errorf("lease %d and %d bytes arrived", f.Lease, len(f.Reason))
		}
	}
	for _, m := range []ToWorker{Deny{Reason: long}, Revoke{Reason: long}, Lost{1, long}, Committed{Reason: long}} {
		if err := daemon.Send(m); err != nil {
			t.Fatal(err)
		}
		if _, _, err := worker.Receive(); err != nil {
			t.Error(m.Kind(), err)
		}
	}
	if err := daemon.Send(Serve{SwapDir: long}); err == nil {
		t.Error("a message was sent that cannot be received")
	}
}

// A worker's last messages arrive, even if it ends with something unread.
func TestLastWordsArrive(t *testing.T) {
	daemon, worker := pair(t)
	if err := errors.Join(daemon.Send(Ping{Number: 1}), worker.Send(Report{}), worker.Send(CannotServe{Reason: "why"}), worker.Close()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []ToDaemon{Report{}, CannotServe{Reason: "why"}} {
		if got, err := daemon.Receive(); !reflect.DeepEqual(got, want) {
			t.Errorf("got %v, %v\nwant %v", got, err, want)
		}
	}
	if got, err := daemon.Receive(); err == nil || errors.Is(err, ErrRefused) {
		t.Error("after the end:", got, err)
	}
}

// Any goroutine may send.
func TestManySenders(t *testing.T) {
	daemon, worker := pair(t)
	const senders, each = 8, 100
	var all sync.WaitGroup
	for i := range senders {
		all.Go(func() {
			for k := range each {
				if err := worker.Send(Grow{Memory: uint64(i*each + k)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	seen := map[uint64]bool{}
	for range senders * each {
		m, err := daemon.Receive()
		if err != nil {
			t.Fatal(err)
		}
		seen[m.(Grow).Memory] = true
	}
	all.Wait()
	if len(seen) != senders*each {
		t.Errorf("%d of %d messages arrived", len(seen), senders*each)
	}
	worker.Close()
	if m, err := daemon.Receive(); err == nil || errors.Is(err, ErrRefused) {
		t.Error("the end of the connection is:", m, err)
	}
}

// Whatever is decoded keeps its meaning when it is encoded again.
func FuzzDecode(f *testing.F) {
	for _, kinds := range []map[string]reflect.Type{kindsToWorker, kindsToDaemon} {
		for _, name := range slices.Sorted(maps.Keys(kinds)) {
			b, err := encode(filled(kinds[name]).(message))
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b)
		}
	}
	f.Add([]byte(`{"kind":"ran","message":{"kernels":-1,"busy":9223372036854775808}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := decode[ToWorker](b, kindsToWorker); err == nil {
			again(t, m, kindsToWorker)
		} else if !errors.Is(err, ErrRefused) {
			t.Error(err)
		}
		if m, err := decode[ToDaemon](b, kindsToDaemon); err == nil {
			again(t, m, kindsToDaemon)
			if ran, ok := any(m).(Ran); ok && (ran.Kernels < 0 || ran.Busy < 0) {
				t.Errorf("%+v", ran)
			}
		} else if !errors.Is(err, ErrRefused) {
			t.Error(err)
		}
	})
}

func again[M message](t *testing.T, m M, kinds map[string]reflect.Type) {
	t.Helper()
	b, err := encode(m)
	if err != nil {
		return // longer than a message may be
	}
	second, err := decode[M](b, kinds)
	if err != nil || !reflect.DeepEqual(any(second), any(shortened(m))) {
		// Empty and absent lists, and bytes that are no text, are encoded alike.
		if third, _ := encode(second); err != nil || string(third) != string(b) {
			t.Errorf("%s of %+v: %+v, %v", b, m, second, err)
		}
	}
}

// --- who sends and who receives ------------------------------------------------

// uses is what a package does with the types of this one.
type uses struct{ makes, handles map[string]bool }

// usesOf parses the sources of packages, without their tests.
func usesOf(t *testing.T, dirs ...string) uses {
	t.Helper()
	u := uses{map[string]bool{}, map[string]bool{}}
	var paths []string
	for _, dir := range dirs {
		found, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(found) == 0 {
			t.Fatal("no sources in", dir, err)
		}
		paths = append(paths, found...)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		u.read(f)
	}
	return u
}

// read notes composite literals (the package makes a message) and the types of type switches and
// assertions (the package handles one).
func (u uses) read(f *ast.File) {
	local := ""
	for _, i := range f.Imports {
		if i.Path.Value == `"muster/wire/control"` {
			local = "control"
			if i.Name != nil {
				local = i.Name.Name
			}
		}
	}
	note := func(to map[string]bool, e ast.Expr) {
		if s, ok := e.(*ast.SelectorExpr); ok && local != "" {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == local {
				to[s.Sel.Name] = true
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CompositeLit:
			note(u.makes, n.Type)
		case *ast.TypeAssertExpr:
			note(u.handles, n.Type)
		case *ast.TypeSwitchStmt:
			for _, c := range n.Body.List {
				for _, e := range c.(*ast.CaseClause).List {
					note(u.handles, e)
				}
			}
		}
		return true
	})
}

// missing lists the kinds that no package sends or none handles.
func missing(kinds map[string]reflect.Type, sender, receiver uses, names string) []string {
	var broken []string
	from, to, _ := strings.Cut(names, " -> ")
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		typ := kinds[name].Name()
		if !sender.makes[typ] {
			broken = append(broken, fmt.Sprintf("%s never makes a control.%s", from, typ))
		}
		if !receiver.handles[typ] {
			broken = append(broken, fmt.Sprintf("%s has no case for control.%s", to, typ))
		}
	}
	return broken
}

func TestEveryKindHasASenderAndAReceiver(t *testing.T) {
	daemon, worker := usesOf(t, "../../node", "../../node/spares", "../../node/workers", "../../node/lending"), usesOf(t, "../../node/worker", "../../node/clientcore") // which decides what a worker says
	for _, b := range append(missing(kindsToWorker, daemon, worker, "node -> node/worker"), missing(kindsToDaemon, worker, daemon, "node/worker -> node")...) {
		t.Error(b)
	}
}

// The check above finds what is missing: in this source, all but two.
func TestMissingSendersAreFound(t *testing.T) {
	const source = `package p
		import c "muster/wire/control"
		import "other/control"
		func f(m c.ToWorker) { g(c.Ping{}); g(control.Deny{}); switch m.(type) { case c.Ping: case control.Deny: }; _ = m.(c.Watch) }`
	f, err := parser.ParseFile(token.NewFileSet(), "p.go", source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	u := uses{map[string]bool{}, map[string]bool{}}
	u.read(f)
	got := strings.Join(missing(envelope.Of[ToWorker](Ping{}, Deny{}, Watch{}), u, u, "a -> b"), "; ")
	if want := "a never makes a control.Deny; b has no case for control.Deny; a never makes a control.Watch"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// A type that is meant to be sent and is not among the kinds would be refused by
// every receiver.
func TestAllTypesAreAmongTheKinds(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "messages.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string][]string{}
	for _, d := range f.Decls {
		if method, ok := d.(*ast.FuncDecl); ok && method.Recv != nil {
			if name, ok := method.Recv.List[0].Type.(*ast.Ident); ok {
				declared[method.Name.Name] = append(declared[method.Name.Name], name.Name)
			}
		}
	}
	for marker, kinds := range map[string]map[string]reflect.Type{"toWorker": kindsToWorker, "toDaemon": kindsToDaemon} {
		var known []string
		for _, typ := range kinds {
			known = append(known, typ.Name())
		}
		slices.Sort(known)
		slices.Sort(declared[marker])
		if !slices.Equal(known, declared[marker]) {
			t.Errorf("%s: declared %v\nknown %v", marker, declared[marker], known)
		}
	}
}
