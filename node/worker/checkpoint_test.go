package worker

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"muster/device/soft"
	"muster/node/checkpoint"
	"muster/node/worker/hostcopy/hostcopytest"
	"muster/vmm"
	"muster/wire"
	"muster/wire/control"
)

// try gives the worker an order, and waits for the answer. It returns false if the
// worker has died meanwhile.
func try[A control.ToDaemon](c *client, m control.ToWorker, files ...*os.File) (answer A, ok bool) {
	c.t.Helper()
	d := c.daemon
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answers = nil
	to := d.control
	_ = to.Send(m, files...)
	for len(d.answers) == 0 && d.control == to {
		d.changed.Wait()
	}
	if len(d.answers) == 0 {
		return answer, false
	}
	if answer, ok = d.answers[0].(A); !ok {
		c.t.Errorf("%s is answered with %+v", m.Kind(), d.answers[0])
	}
	return answer, true
}

// give is try for an order that can be given again.
func give[A control.ToDaemon](c *client, m control.ToWorker, files ...*os.File) A {
	c.t.Helper()
	for {
		for _, f := range files {
			_, err := f.Seek(0, io.SeekStart)
			if _, writes := m.(control.Checkpoint); writes && err == nil {
				err = f.Truncate(0)
			}
			if err != nil {
				c.t.Fatal(err)
			}
		}
		if answer, ok := try[A](c, m, files...); ok {
			return answer
		}
	}
}

// save has the client written to a file, and returns the answer.
func (c *client) save(path string) control.Checkpointed {
	c.t.Helper()
	f, err := os.Create(path)
	if err != nil {
		c.t.Fatal(err)
	}
	defer f.Close()
	return give[control.Checkpointed](c, control.Checkpoint{}, f)
}

// checkpoint saves the client, which must work, and reads the file.
func (c *client) checkpoint(path string) *checkpoint.File {
	c.t.Helper()
	answer := c.save(path)
	if answer.Error != "" || answer.Held {
		c.t.Fatalf("%+v", answer)
	}
	return c.opened(path, answer.Bytes)
}

// opened reads a file that a worker wrote.
func (c *client) opened(path string, size uint64) *checkpoint.File {
	c.t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		c.t.Fatal(err)
	}
	saved, err := checkpoint.Open(bytes.NewReader(data), int64(len(data)))
	if err != nil || uint64(len(data)) != size {
		c.t.Fatalf("a file of %d bytes, of which %d were told: %v", len(data), size, err)
	}
	return saved
}

func (c *client) restore(path string) control.Restored {
	c.t.Helper()
	f, err := os.Open(path)
	if err != nil {
		c.t.Fatal(err)
	}
	defer f.Close()
	return give[control.Restored](c, control.Restore{}, f)
}

// transplant holds the client, saves it as a whole, ends its worker, and gives what was
// saved to another. The program, which is this process, does nothing meanwhile but what
// its other goroutines do with the ring.
func (c *client) transplant(path string) {
	c.t.Helper()
	for saved := false; !saved; {
		saved = c.tryTransplant(path)
	}
}

// tryTransplant returns false if the worker has died before the client was saved: it
// goes on then.
func (c *client) tryTransplant(path string) bool {
	c.t.Helper()
	f, err := os.Create(path)
	if err != nil {
		c.t.Fatal(err)
	}
	defer f.Close()
	held, ok := try[control.Checkpointed](c, control.Checkpoint{Hold: true}, f)
	if !ok {
		return false
	}
	if !held.Held || held.Error != "" {
		c.t.Fatalf("%+v", held)
	}
	c.frozen.Lock()
	defer c.frozen.Unlock()
	done, ok := try[control.Checkpointed](c, control.Proceed{Save: true})
	if !ok {
		return false
	}
	if done.Held || done.Error != "" {
		c.t.Fatalf("%+v", done)
	}
	c.opened(path, done.Bytes)
	c.dismiss()
	c.revive(path)
	return true
}

// revive gives the client a new worker with what was saved.
func (c *client) revive(path string) {
	c.t.Helper()
	ring, arena := createShared(c.t)
	program := duplicates(c.t, []*os.File{ring, arena}) // dismiss closes the others
	c.revived = true
	c.enrol(ring, arena)
	f, err := os.Open(path)
	if err != nil {
		c.t.Fatal(err)
	}
	if answer := give[control.Restored](c, control.Restore{Whole: true}, f); answer.Error != "" {
		c.t.Fatal(answer.Error)
	}
	f.Close()
	if err := remap(c.shared, program[0], program[1]); err != nil {
		c.t.Fatal(err)
	}
	for _, f := range program {
		f.Close()
	}
	c.tell(control.Proceed{})
}

// A client is saved while its kernels run, goes on, and is brought back to where it
// was, on either kind of host copies.
func TestCheckpointAndRestore(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		t.Run(fmt.Sprintf("in a file=%v", dir != ""), func(t *testing.T) {
			turn := 0
			c := newClient(t, options{swapDir: dir, identity: "me",
				devices: []soft.Profile{{Name: "one", Memory: 64 * mib, Speed: 1, Workers: 1}, {Name: "two", Memory: 64 * mib, Speed: 1, Workers: 1}},
				grant:   func(m control.Want) (int, uint64) { turn++; return turn % 2, m.Memory }})
			path := filepath.Join(t.TempDir(), "file")
			v := newVectors(c, 300_000)
			zero := c.alloc(16 * mib)
			v.round(1)
			v.launch(0) // under way when the order comes
			saved := c.checkpoint(path)
			if n := saved.Bytes[checkpoint.Memory]; n < 3_600_000 || n > 4*mib {
				t.Errorf("%d bytes of memory were written: what is zero must cost nothing", n)
			}
			v.round(2) // it goes on, on another device
			c.in(zero, bytes.Repeat([]byte{1}, 16*mib))
			c.post(&wire.MemFree{Addr: v.b})
			more := c.alloc(mib)
			c.in(more, bytes.Repeat([]byte{2}, mib))
			c.must(&wire.Synchronise{}, nil)
			if answer := c.restore(path); answer.Error != "" || answer.Bytes != 16*mib+3*4*300_000 {
				t.Fatalf("%+v", answer)
			}
			want := floats(v.n, func(i int) float32 { return float32(i+1) + float32(2*i) })
			if got := v.out(v.c, uint64(4*v.n)); !bytes.Equal(got, want) {
				t.Error("the sum is not what it was")
			}
			if got := c.out(zero, 16*mib); !bytes.Equal(got, make([]byte, 16*mib)) {
				t.Error("what was zero is not any more")
			}
			if r := c.call(&wire.CopyOut{Src: more}, nil); r != invalidValue && r != 0 {
				t.Errorf("memory that was not there: %d", r)
			}
			v.round(3)
			// And once more: what was restored can be saved.
			c.checkpoint(path)
			v.round(4)
			c.restore(path)
			want = floats(v.n, func(i int) float32 { return float32(i+3) + float32(2*i) })
			if got := v.out(v.c, uint64(4*v.n)); !bytes.Equal(got, want) {
				t.Error("the sum is not what it was, the second time")
			}
		})
	}
}

// A fault ends a client's work for good, until a checkpoint is restored: all that the
// program had is there again.
func TestRestoreHealsAFault(t *testing.T) {
	c := newClient(t, options{identity: "me"})
	path := filepath.Join(t.TempDir(), "file")
	v := newVectors(c, 1000)
	c.post(&wire.StreamCreate{Stream: 7})
	v.round(1)
	c.checkpoint(path)
	a := v.a
	v.a = 0x10
	v.launch(7)
	if r := c.call(&wire.Synchronise{}, nil); r != illegalAddress {
		t.Fatalf("synchronise answered %d", r)
	}
	if answer := c.save(filepath.Join(t.TempDir(), "other")); !strings.Contains(answer.Error, "a fault has ended the program's work") {
		t.Errorf("a client with a fault was saved: %+v", answer)
	}
	if answer := c.restore(path); answer.Error != "" {
		t.Fatal(answer.Error)
	}
	if status := c.shared.Status(); status != 0 {
		t.Errorf("the program sees the fault %d", status)
	}
	v.a = a
	if got, want := v.out(v.c, 4000), floats(1000, func(i int) float32 { return float32(i+1) + float32(2*i) }); !bytes.Equal(got, want) {
		t.Error("the sum is lost")
	}
	v.launch(7)
	c.must(&wire.StreamSynchronise{Stream: 7}, nil)
	v.round(2)
}

// Variables of modules are part of a client.
func TestCheckpointHasVariables(t *testing.T) {
	for _, replays := range []bool{false, true} {
		c := newClient(t, options{identity: "me", replays: replays})
		path := filepath.Join(t.TempDir(), "file")
		addr := c.alloc(4096)
		f := c.load(1, []byte(countingPTX), "add_count")
		add := func() {
			c.post(&wire.Launch{Function: f, GridX: 1, GridY: 1, GridZ: 1, BlockX: 32, BlockY: 1, BlockZ: 1, Params: params(addr, addr, 32)})
			c.must(&wire.Synchronise{}, nil)
		}
		var g wire.ModuleGlobalReply
		add()
		c.must(&wire.ModuleGlobal{Module: 1, Name: "count"}, &g)
		before := c.out(g.Addr, g.Size)
		c.checkpoint(path)
		c.in(g.Addr, bytes.Repeat([]byte{9}, int(g.Size)))
		c.must(&wire.Synchronise{}, nil)
		if answer := c.restore(path); answer.Error != "" {
			t.Fatal(answer.Error)
		}
		var again wire.ModuleGlobalReply
		c.must(&wire.ModuleGlobal{Module: 1, Name: "count"}, &again)
		if again != g || !bytes.Equal(c.out(g.Addr, g.Size), before) {
			t.Errorf("the variable was at %+v and is at %+v", g, again)
		}
	}
}

// An order waits for functions of the program's, and for nothing else: the program goes
// on meanwhile.
func TestCheckpointWaitsForFunctions(t *testing.T) {
	c := newClient(t, options{identity: "me"})
	v := newVectors(c, 1000)
	v.round(0)
	c.post(&wire.HostFunction{Cookie: 1})
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	next, err := c.p.Start(wire.Header{Op: wire.OpHostNext}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := next.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := c.daemon.end().Send(control.Checkpoint{}, f); err != nil {
		t.Fatal(err)
	}
	c.must(&wire.MemAlloc{Addr: testBase + 512*mib, Size: mib}, nil)
	if n := said[control.Checkpointed](c); n != 0 {
		t.Fatal("a client was saved while a function was under way")
	}
	c.post(&wire.HostDone{Cookie: 1})
	if m := hear[control.Checkpointed](c, 1); m.Error != "" {
		t.Error(m.Error)
	}
	v.round(1)
}

// A message that waits for a device is not part of the checkpoint, and is done
// afterwards.
func TestCheckpointWhileAMessageWaits(t *testing.T) {
	c := newClient(t, options{identity: "me"})
	path := filepath.Join(t.TempDir(), "file")
	v := newVectors(c, 1000)
	v.in(v.a, floats(v.n, func(int) float32 { return 1 }))
	v.in(v.b, floats(v.n, func(int) float32 { return 2 }))
	c.daemon.mu.Lock()
	c.daemon.silent = func() {}
	c.daemon.mu.Unlock()
	v.launch(0)
	want := hear[control.Want](c, 1)
	c.checkpoint(path)
	c.daemon.mu.Lock()
	c.daemon.silent = nil
	c.daemon.take(want)
	c.daemon.mu.Unlock()
	sum := floats(v.n, func(int) float32 { return 3 })
	if got := v.out(v.c, uint64(4*v.n)); !bytes.Equal(got, sum) {
		t.Error("the kernel was not run")
	}
	c.restore(path)
	if got := v.out(v.c, uint64(4*v.n)); bytes.Equal(got, sum) {
		t.Error("the checkpoint has what was done later")
	}
}

// What cannot be restored changes nothing.
func TestRefusedRestoreChangesNothing(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	c := newClient(t, options{identity: "me", swapRoom: 20 * mib, memory: 30 * mib})
	v := newVectors(c, 1000)
	v.round(1)
	c.checkpoint(file("good"))
	good, err := os.ReadFile(file("good"))
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, data []byte) {
		if err := os.WriteFile(file(name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("empty", nil)
	write("cut", good[:len(good)-100])
	bad := bytes.Clone(good)
	bad[len(bad)-1000] ^= 1
	write("damaged", bad)
	version := bytes.Clone(good)
	version[16]++
	write("version", version)
	forge := func(name, core string, all []vmm.Range, at uint64) {
		var out bytes.Buffer
		w := checkpoint.NewWriter(&out, checkpoint.About{Identity: "me", ArenaBase: testBase, ArenaSize: 1 << 30})
		if core != "" {
			w.Core([]byte(core))
		}
		w.Allocations(all)
		w.Piece(checkpoint.Memory, at, []byte{1})
		if err := w.End(); err != nil {
			t.Fatal(err)
		}
		write(name, out.Bytes())
	}
	one := []vmm.Range{{Addr: testBase, Size: 4096}}
	forge("memory alone", "", one, testBase)
	forge("nonsense", `{"Version":4}`, one, testBase)
	saved, err := checkpoint.Open(bytes.NewReader(good), int64(len(good)))
	if err != nil {
		t.Fatal(err)
	}
	forge("other memory", string(saved.Core), one, testBase)
	other := newClient(t, options{identity: "somebody else"})
	newVectors(other, 1000).round(1)
	other.checkpoint(file("other run"))
	large := newClient(t, options{identity: "me"})
	newVectors(large, 1000)
	large.alloc(28 * mib)
	large.checkpoint(file("large"))
	larger := newClient(t, options{identity: "me"})
	larger.alloc(100 * mib)
	larger.checkpoint(file("larger"))
	for name, want := range map[string]string{
		"empty": "it has 0 bytes", "cut": "it breaks off", "damaged": "it is damaged", "version": "it has version 2", "memory alone": "musterRestore",
		"nonsense": "not a saved client", "other memory": "its memory is not that of its client", "other run": "another run of a program",
		"large": "the node has no swap room", "larger": "does not fit into that of this client (30 MiB in all)",
	} {
		if answer := c.restore(file(name)); !strings.Contains(answer.Error, want) {
			t.Errorf("%s: %+v\nwant %s", name, answer, want)
		}
		if got, want := v.out(v.c, 4000), floats(1000, func(i int) float32 { return float32(i+1) + float32(2*i) }); !bytes.Equal(got, want) {
			t.Fatalf("after %s the client is another", name)
		}
		v.round(1)
	}
	if answer := c.restore(file("good")); answer.Error != "" {
		t.Error(answer.Error)
	}
}

// Whatever the state in a file says, restoring it is refused, or harms that client alone:
// the worker does not fall over, and calls come back.
func TestHostileClientsInFiles(t *testing.T) {
	rounds := 200
	if testing.Short() {
		rounds = 40
	}
	dir := t.TempDir()
	first := newClient(t, options{identity: "me"})
	v := newVectors(first, 1000)
	first.post(&wire.StreamCreate{Stream: 7})
	first.post(&wire.EventCreate{Event: 3})
	first.load(2, []byte(countingPTX), "add_count")
	v.round(1)
	saved := first.checkpoint(filepath.Join(dir, "good"))
	chance := rand.New(rand.NewPCG(7, 7))
	taken := 0
	for i := range rounds {
		core := mutate(saved.Core, chance)
		var out bytes.Buffer
		w := checkpoint.NewWriter(&out, saved.About)
		w.Core(core)
		w.Allocations(saved.Allocations)
		if err := saved.Each(checkpoint.Memory, func(at uint64, data []byte) error { w.Piece(checkpoint.Memory, at, data); return nil }); err != nil {
			t.Fatal(err)
		}
		if err := w.End(); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "bad")
		if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			c := newClient(t, options{identity: "me", lenient: true})
			if c.restore(path).Error != "" {
				return
			}
			taken++
			p := *v
			p.client = c
			p.launch(7) // whatever comes of it
			for _, m := range []wire.Message{&wire.Synchronise{}, &wire.EventQuery{Event: 3}, &wire.ModuleGlobal{Module: 2, Name: "count"}, &wire.Reset{}} {
				if _, err := c.p.Call(m, nil); err != nil {
					return // the client was ended
				}
			}
		})
	}
	t.Logf("%d of %d were taken", taken, rounds)
}

// mutate changes a few of the numbers and words in JSON.
func mutate(text []byte, chance *rand.Rand) []byte {
	text = bytes.Clone(text)
	tokens := regexp.MustCompile(`\b(true|false|null|-?[0-9]+)\b`).FindAllIndex(text, -1)
	for range 1 + chance.IntN(3) {
		at := tokens[chance.IntN(len(tokens))]
		word := []string{"true", "false", "null", "0", "1", "-1", "2", "7", "4096", "2097152", "4294967295", "9223372036854775807", "18446744073709551615"}[chance.IntN(13)]
		if len(word) <= at[1]-at[0] {
			word = strings.Repeat(" ", at[1]-at[0]-len(word)) + word
			copy(text[at[0]:], word)
			continue
		}
		text = slices.Concat(text[:at[0]], []byte(word), text[at[1]:])
		return text
	}
	return text
}

// A disk that is full is no harm to the client: neither that of the checkpoint nor
// that of the swap area.
func TestFullDiskOfCheckpoints(t *testing.T) {
	disk := hostcopytest.SmallDisk(t, mib)
	swap := hostcopytest.SmallDisk(t, 16*mib)
	c := newClient(t, options{identity: "me", swapDir: swap})
	path := filepath.Join(t.TempDir(), "file")
	v := newVectors(c, 300_000)
	v.round(1)
	if answer := c.save(filepath.Join(disk, "file")); !strings.Contains(answer.Error, "no space left on device") {
		t.Errorf("%+v", answer)
	}
	v.round(2)
	c.checkpoint(path)
	for _, addr := range []uint64{v.a, v.b, v.c} {
		c.post(&wire.MemFree{Addr: addr})
	}
	c.must(&wire.Synchronise{}, nil)
	empty := hostcopytest.Fill(t, swap)
	if answer := c.restore(path); !strings.Contains(answer.Error, "the disk of the swap area") {
		t.Errorf("%+v", answer)
	}
	empty()
	if answer := c.restore(path); answer.Error != "" {
		t.Error(answer.Error)
	}
	v.round(3)
}

// A program goes on with another worker: calls that it made before are answered,
// messages that nobody had read are read, and what it has is where it was.
func TestWholeClientGoesOnElsewhere(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		c := newClient(t, options{swapDir: dir, identity: "me"})
		path := filepath.Join(t.TempDir(), "file")
		v := newVectors(c, 200_000)
		c.post(&wire.EventCreate{Event: 1})
		c.post(&wire.EventRecord{Event: 1})
		v.round(1)
		pinned := c.shared.Arena()[c.shared.Geometry().Staging+c.shared.Geometry().Bounce:]
		copy(pinned, "pinned memory")
		function, err := c.p.Start(wire.Header{Op: wire.OpHostNext}, nil) // waits all the while
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if held := give[control.Checkpointed](c, control.Checkpoint{Hold: true}, f); !held.Held {
			t.Fatalf("%+v", held)
		}
		// The program goes on until it is stopped, too.
		v.in(v.a, floats(v.n, func(int) float32 { return 5 }))
		v.launch(0)
		waits, err := c.p.Start(wire.Header{Op: wire.OpSynchronise}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if done := give[control.Checkpointed](c, control.Proceed{Save: true}); done.Error != "" {
			t.Fatal(done.Error)
		}
		f.Close()
		c.dismiss()
		clear(c.shared.Arena()[:mib]) // nothing of the old memory is used
		c.revive(path)
		if r, _, err := waits.Wait(); r != 0 || err != nil {
			t.Fatal("synchronise:", r, err)
		}
		want := floats(v.n, func(i int) float32 { return 5 + float32(2*i) })
		if got := v.out(v.c, uint64(4*v.n)); !bytes.Equal(got, want) {
			t.Error("the kernel that was on its way was not run")
		}
		if got := pinned[:13]; string(got) != "pinned memory" {
			t.Errorf("pinned memory has %q", got)
		}
		v.round(2)
		var reply wire.EventElapsedReply
		c.post(&wire.EventCreate{Event: 2})
		c.post(&wire.EventRecord{Event: 2})
		c.must(&wire.EventElapsed{Start: 1, End: 2}, &reply)
		if reply.Milliseconds <= 0 || reply.Milliseconds > 60_000 {
			t.Errorf("%v ms between two events", reply.Milliseconds)
		}
		c.post(&wire.HostFunction{Cookie: 77})
		var next wire.HostNextReply
		if _, payload, err := function.Wait(); err != nil || next.Decode(payload) != nil || next.Cookie != 77 {
			t.Errorf("cookie %d, %v", next.Cookie, err)
		}
		c.post(&wire.HostDone{Cookie: 77})
		c.transplant(path)
		v.round(3)
	}
}

// A worker that dies after a restore leaves what was restored; one that dies while it
// restores leaves what was there before, at whichever operation that is.
func TestWorkerDiesAroundARestore(t *testing.T) {
	if testing.Short() {
		t.Skip("the whole run does this, without the race detector")
	}
	for _, dir := range []string{"", t.TempDir()} {
		t.Run(fmt.Sprintf("in a file=%v", dir != ""), func(t *testing.T) {
			c := newClient(t, options{swapDir: dir, identity: "me", recovers: true})
			path := filepath.Join(t.TempDir(), "file")
			v := newVectors(c, 300_000)
			sum := func(what string, k int) {
				t.Helper()
				want := floats(v.n, func(i int) float32 { return float32(i+k) + float32(2*i) })
				if got := v.out(v.c, uint64(4*v.n)); !bytes.Equal(got, want) {
					t.Fatalf("%s the client is not what it was in round %d", what, k)
				}
			}
			v.round(1)
			c.checkpoint(path)
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			died := int32(0)
			for n := int32(1); ; n++ {
				v.round(2)
				c.must(&wire.Synchronise{}, nil)
				c.doom.Store(n)
				answer, ok := try[control.Restored](c, control.Restore{}, f)
				c.doom.Store(0)
				if ok {
					if answer.Error != "" {
						t.Fatal(answer.Error)
					}
					break
				}
				died++
				sum(fmt.Sprintf("after a death at operation %d of a restore", n), 2)
			}
			if died < 3 || c.died.Load() != died {
				t.Errorf("the worker died %d times, as told, and %d times in all", died, c.died.Load())
			}
			sum("after the restore", 1)
			c.doom.Store(1)
			v.launch(0)
			c.must(&wire.Synchronise{}, nil)
			if c.died.Load() != died+1 {
				t.Error("the worker did not die")
			}
			sum("after the restore and a death", 1)
			v.round(3)
			// One that was rebuilt is saved and restored as any other.
			c.checkpoint(path)
			v.round(4)
			c.doom.Store(1)
			v.round(5)
			if answer := c.restore(path); answer.Error != "" {
				t.Fatal(answer.Error)
			}
			sum("after the second restore", 3)
		})
	}
}

// A worker that dies while it saves its client is no harm to that.
func TestWorkerDiesWhileItSaves(t *testing.T) {
	c := newClient(t, options{identity: "me", recovers: true})
	v := newVectors(c, 1000)
	v.round(1)
	for n := int32(1); ; n++ {
		v.launch(0)
		f, err := os.Create(filepath.Join(t.TempDir(), "file"))
		if err != nil {
			t.Fatal(err)
		}
		c.must(&wire.Synchronise{}, nil)
		c.doom.Store(n)
		answer, ok := try[control.Checkpointed](c, control.Checkpoint{}, f)
		c.doom.Store(0)
		f.Close()
		v.round(int(n) + 1)
		if ok {
			if answer.Error != "" || n == 1 {
				t.Errorf("%+v after %d operations", answer, n)
			}
			return
		}
	}
}

// A client that was restored as a whole can be rebuilt as any other.
func TestWorkerDiesElsewhere(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		c := newClient(t, options{swapDir: dir, identity: "me", recovers: true})
		v := newVectors(c, 200_000)
		v.round(1)
		function, err := c.p.Start(wire.Header{Op: wire.OpHostNext}, nil) // waits all the while
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "file")
		c.transplant(path)
		c.must(&wire.Synchronise{}, nil)
		c.doom.Store(1)
		v.round(2)
		if c.died.Load() != 1 {
			t.Error("the worker did not die")
		}
		c.checkpoint(path)
		v.round(3)
		if answer := c.restore(path); answer.Error != "" {
			t.Fatal("the client is not known as itself any more:", answer.Error)
		}
		c.post(&wire.HostFunction{Cookie: 77})
		var next wire.HostNextReply
		if _, payload, err := function.Wait(); err != nil || next.Decode(payload) != nil || next.Cookie != 77 {
			t.Errorf("cookie %d, %v", next.Cookie, err)
		}
		c.post(&wire.HostDone{Cookie: 77})
		c.must(&wire.Synchronise{}, nil)
		c.doom.Store(1)
		v.round(4)
		if c.died.Load() != 2 {
			t.Error("the worker did not die again")
		}
	}
}

// A whole client that had a fault has it elsewhere, too, until a reset.
func TestFaultGoesElsewhere(t *testing.T) {
	c := newClient(t, options{identity: "me"})
	v := newVectors(c, 1000)
	c.must(&wire.Reset{}, nil) // worlds are counted
	c.arenaAt = 0
	v = newVectors(c, 1000)
	v.a = 0x10
	v.launch(0)
	if r := c.call(&wire.Synchronise{}, nil); r != illegalAddress {
		t.Fatalf("synchronise answered %d", r)
	}
	c.transplant(filepath.Join(t.TempDir(), "file"))
	if r := c.call(&wire.Synchronise{}, nil); r != illegalAddress {
		t.Fatalf("synchronise answered %d", r)
	}
	c.must(&wire.Reset{}, nil)
	c.arenaAt = 0
	newVectors(c, 1000).round(1)
}

// A held client goes on if the checkpoint is given up.
func TestHeldClientGoesOn(t *testing.T) {
	c := newClient(t, options{identity: "me"})
	v := newVectors(c, 1000)
	v.round(1)
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if held := give[control.Checkpointed](c, control.Checkpoint{Hold: true}, f); !held.Held {
		t.Fatalf("%+v", held)
	}
	c.daemon.revoke("memory") // of what it keeps: waits until it goes on
	c.tell(control.Proceed{})
	v.round(2)
}

// What is printed and not fetched goes with a client.
func TestPrintedTextGoesElsewhere(t *testing.T) {
	c := newClient(t, options{identity: "me"})
	f := c.load(1, kernelFile(t, "print.nvcc90.ptx"), "print_plain")
	c.post(&wire.Launch{Function: f, GridX: 1, GridY: 1, GridZ: 1, BlockX: 1, BlockY: 1, BlockZ: 1})
	c.must(&wire.Synchronise{}, nil)
	if !c.shared.Print() {
		t.Fatal("nothing was printed")
	}
	c.transplant(filepath.Join(t.TempDir(), "file"))
	pending, err := c.p.Start(wire.Header{Op: wire.OpPrintFetch, Data: c.bounce(), Length: 4096}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var reply wire.PrintFetchReply
	if r, payload, err := pending.Wait(); r != 0 || err != nil || reply.Decode(payload) != nil || reply.Size == 0 {
		t.Errorf("%d, %v, %+v", r, err, reply)
	}
}

func BenchmarkCheckpoint(b *testing.B) {
	c := newClient(b, options{identity: "me", devices: []soft.Profile{{Name: "test", Memory: 256 * mib, Speed: 1, Workers: 1}}})
	v := newVectors(c, 16*mib) // 192 MiB
	path := filepath.Join(b.TempDir(), "file")
	b.SetBytes(3 * 64 * mib)
	for i := range b.N {
		c.post(&wire.Fill{Dst: v.a, Pitch: 64 * mib, Value: math.Float32bits(float32(i + 1)), Width: 4, Count: 16 * mib, Height: 1})
		v.launch(0)
		if answer := c.save(path); answer.Error != "" {
			b.Fatal(answer.Error)
		}
	}
}
