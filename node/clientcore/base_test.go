package clientcore

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"muster/device"
	"muster/internal/scripts"
	"muster/internal/seeds"
	"muster/vmm"
	"muster/wire"
	"muster/wire/control"
)

// bases are those that the scripts make.
func bases(t testing.TB) (all []Base) {
	t.Helper()
	for _, file := range scripts.Files(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s := &script{t: t}
		var last *Base
		for _, e := range scripts.Parse(string(text)) {
			if s.run(strings.Fields(e.Event)); s.base != last && s.base != nil {
				all = append(all, *s.base)
			}
			last = s.base
		}
	}
	if len(all) < 10 {
		t.Fatalf("the scripts make %d bases", len(all))
	}
	return all
}

// joined are blobs as one slice, each with its size before it.
func joined(blobs [][]byte) (all []byte) {
	for _, b := range blobs {
		all = binary.LittleEndian.AppendUint16(all, uint16(len(b)))
		all = append(all, b...)
	}
	return all
}

// parted are blobs of joined.
func parted(all []byte) (blobs [][]byte) {
	for len(all) >= 2 {
		n := min(int(binary.LittleEndian.Uint16(all)), len(all)-2)
		blobs = append(blobs, all[2:2+n])
		all = all[2+n:]
	}
	return blobs
}

// A client is made of a base, or the base is refused; one that is made has the same
// base, is on no device, and can be worked with by whoever rebuilds it.
func FuzzRestoreBase(f *testing.F) {
	for _, b := range bases(f) {
		f.Add(b.Client, joined(b.Blobs))
	}
	f.Fuzz(func(t *testing.T, client, blobs []byte) { restoreAndUse(t, Base{Client: client, Blobs: parted(blobs)}) })
}

// restoreAndUse says whether a client could be made of a base, and looks at that.
func restoreAndUse(t *testing.T, given Base) bool {
	t.Helper()
	was := joined(given.Blobs)
	c, err := RestoreBase(given, noMemory)
	if err != nil {
		if !errors.Is(err, ErrSaved) {
			t.Errorf("refused with %v", err)
		}
		return false
	}
	if !c.Detached() {
		t.Error("the client is on a device")
	}
	if !bytes.Equal(joined(given.Blobs), was) {
		t.Error("the blobs were changed")
	}
	for _, slot := range c.WaitingSlots() {
		if slot < 0 || slot >= wire.Slots {
			t.Errorf("the program waits in slot %d", slot)
		}
	}
	if c.CanFold() {
		holdsItsBase(t, c)
	}
	rebuild(t, c)
	return true
}

// Values of bases are changed one or a few at a time, which leaves more of their sense
// than a fuzzer does.
func TestHostileBases(t *testing.T) {
	seed, _ := seeds.First(t)
	r := rand.New(rand.NewPCG(seed, 0))
	rounds := 4000
	if testing.Short() {
		rounds = 400
	}
	all, taken := bases(t), 0
	for range rounds {
		b := all[r.IntN(len(all))]
		var tree any
		d := json.NewDecoder(bytes.NewReader(b.Client))
		d.UseNumber()
		if err := d.Decode(&tree); err != nil {
			t.Fatal(err)
		}
		for range 1 + r.IntN(2) {
			tree = spoil(r, tree)
		}
		client, err := json.Marshal(tree)
		if err != nil {
			t.Fatal(err)
		}
		restored := func() bool {
			defer func() {
				if problem := recover(); problem != nil {
					t.Logf("%s", client)
					panic(problem)
				}
			}()
			return restoreAndUse(t, Base{Client: client, Blobs: b.Blobs})
		}
		if restored() {
			taken++
		}
		if t.Failed() {
			t.Fatalf("%s", client)
		}
	}
	if t.Logf("%d of %d were taken", taken, rounds); taken == 0 || taken == rounds {
		t.Error("that is not what this test is for")
	}
}

// spoil changes one value of a document.
func spoil(r *rand.Rand, tree any) any {
	switch v := tree.(type) {
	case map[string]any:
		if keys := slices.Sorted(maps.Keys(v)); len(keys) > 0 && r.IntN(20) > 0 {
			k := keys[r.IntN(len(keys))]
			v[k] = spoil(r, v[k])
			return v
		}
	case []any:
		if len(v) == 0 || r.IntN(4) == 0 {
			return append(v, []any{json.Number("0"), json.Number("1"), nil, ""}[r.IntN(4)])
		}
		i := r.IntN(len(v))
		if r.IntN(4) == 0 {
			return append(v[:i:i], v[i+1:]...)
		}
		v[i] = spoil(r, v[i])
		return v
	case json.Number:
		return json.Number([]string{"0", "1", "2", "3", "-1", "255", "4294967296", "9223372036854775807", "-9223372036854775808", "18446744073709551615"}[r.IntN(10)])
	case bool:
		return !v
	case string:
		if b := []byte(v); len(b) > 0 {
			b[r.IntN(len(b))] = "AB/09z "[r.IntN(7)]
			return string(b)
		}
		return "x"
	}
	return []any{nil, map[string]any{}, []any{}, json.Number("7"), map[string]any{"5": map[string]any{}}, map[string]any{"1": nil}}[r.IntN(6)]
}

// holdsItsBase fails if the client that is made of a client's base has another one.
func holdsItsBase(t *testing.T, c *Core) {
	t.Helper()
	first, err := c.base(nil, Outcome{})
	if err != nil {
		t.Fatal(err)
	}
	again, err := RestoreBase(*first, noMemory)
	if err != nil {
		t.Fatalf("its own base is refused: %v", err)
	}
	second, err := again.base(nil, Outcome{})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Client, second.Client) || !slices.EqualFunc(first.Blobs, second.Blobs, bytes.Equal) {
		t.Fatalf("%s\nbecame\n%s", first.Client, second.Client)
	}
}

// rebuild does to a client what whoever rebuilds it does. No event may panic. Outcomes
// are those of an executor that refuses all.
func rebuild(t *testing.T, c *Core) {
	t.Helper()
	c.Leased(5)
	c.Answered(func(slot int) bool { return slot%2 == 0 })
	devices := slices.Clone(c.config.Devices)
	devices = append(devices, Device{Place: vmm.Device(len(devices)), Name: "another", Memory: 64 * scriptMiB})
	if err := c.Equip(devices); err != nil {
		return
	}
	c.Held()
	c.Allocations()
	_, _, _, _ = c.Dirty(), c.Blobs(), c.Spent(), c.Stats()
	launch := wire.Launch{Function: 1, GridX: 1, GridY: 1, GridZ: 1, BlockX: 32, BlockY: 1, BlockZ: 1, Params: make([]byte, 8)}
	for _, event := range []func() ([]Op, error){
		func() ([]Op, error) { return c.RefuseAgain(c.Now, wire.Header{Op: wire.OpLaunch, Slot: -1}, 2) },
		func() ([]Op, error) {
			return c.UrgentMessage(Message{Header: wire.Header{Op: wire.OpHostNext, Slot: 1}})
		},
		func() ([]Op, error) {
			return c.Message(c.Now, Message{Header: wire.Header{Op: wire.OpLaunch, Slot: -1}, Body: launch.Append(nil)})
		},
		func() ([]Op, error) {
			return c.Control(c.Now, control.Grant{Device: 0, Memory: 64 * scriptMiB, Lease: c.Lease.Number + 1})
		},
		func() ([]Op, error) { return c.Fold(c.Now) },
		func() ([]Op, error) { return c.Control(c.Now, control.Revoke{Reason: "memory"}) },
		func() ([]Op, error) { return c.Adopted(c.Now) },
		func() ([]Op, error) { return c.Lost(c.Now, control.Lost{Device: 0, Reason: "unplugged"}, true) },
		func() ([]Op, error) {
			return c.Message(c.Now, Message{Header: wire.Header{Op: wire.OpReset, Slot: 1}})
		},
	} {
		ops, err := event()
		for err == nil && len(ops) > 0 && ops[len(ops)-1].Kind.Asks() {
			last := ops[len(ops)-1]
			ops, err = c.Outcome(c.Now, &last, Outcome{Err: device.ErrOutOfMemory})
		}
		if err != nil {
			return
		}
	}
}

// What does not fit together is refused, with what it is.
func TestRestoreBaseRefuses(t *testing.T) {
	s := &script{t: t}
	for _, e := range []string{"client 2", "alloc 0 4M", "load 1 2", "done", "function 1", "next 3", "launch 1", "grant 0 64M 1", "done", "done", "done", "fold", "done"} {
		s.run(strings.Fields(e))
	}
	good := *s.base
	if len(good.Blobs) != 3 { // an image, and two variables
		t.Fatalf("%d blobs", len(good.Blobs))
	}
	with := func(old, new string) Base {
		t.Helper()
		if !strings.Contains(string(good.Client), old) {
			t.Fatalf("the base has no %s: %s", old, good.Client)
		}
		return Base{Client: bytes.Replace(good.Client, []byte(old), []byte(new), 1), Blobs: good.Blobs}
	}
	for _, c := range []struct {
		name string
		base Base
		want string
	}{
		{"nothing", Base{}, "not a saved client: not a JSON object"},
		{"no blobs", Base{Client: good.Client}, "not a saved client: 3 blobs are missing and 0 too many"},
		{"a blob too many", Base{Client: good.Client, Blobs: append(slices.Clone(good.Blobs), nil)}, "not a saved client: 0 blobs are missing and 1 too many"},
		{"another image", Base{Client: good.Client, Blobs: [][]byte{{1}, good.Blobs[1], good.Blobs[2]}}, "not a saved client: 1 bytes of images and 16 of contents, where 2 and 16 are counted"},
		{"other contents", Base{Client: good.Client, Blobs: [][]byte{good.Blobs[0], good.Blobs[1], nil}}, `not a saved client: variable "v1" of module 1 has 0 bytes of contents, and 8 bytes`},
		{"a slot that there is not", with(`"Slots":[3]`, fmt.Sprintf(`"Slots":[%d]`, wire.Slots)), fmt.Sprint("not a saved client: the program waits in slot ", wire.Slots)},
		{"a slot before the first", with(`"Slots":[3]`, `"Slots":[-1]`), "not a saved client: the program waits in slot -1"},
		{"a slot twice", with(`"Slots":[3]`, `"Slots":[3,3]`), "not a saved client: the program waits twice in slot 3"},
	} {
		if _, err := RestoreBase(c.base, noMemory); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	// A client that is saved on a device is no base.
	data, err := s.core.Save()
	if err != nil {
		t.Fatal(err)
	}
	core, err := Restore(data, noMemory)
	if err != nil {
		t.Fatal(err)
	}
	blobs := [][]byte{}
	state := core.savers.state()
	state.blobs(func(b []byte) []byte { blobs = append(blobs, b); return b })
	if _, err := RestoreBase(Base{Client: data, Blobs: blobs}, noMemory); !errors.Is(err, ErrSaved) || !strings.Contains(err.Error(), "it is on a device") {
		t.Errorf("a client that is on a device: %v", err)
	}
}
