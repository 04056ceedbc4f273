package vgpu

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"muster/internal/scripts"
	"muster/internal/seeds"
	"muster/model"
)

// Whatever happened, a recording of it played again gives the same bytes, with
// any number of processors.
func TestRecordingsReplay(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	seeds.Check(t, func(t *rapid.T) {
		m := newMachine(t, drawConfig(t))
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			m.step()
		}
		events := bytes.Count(m.log, []byte("\n")) - 1
		whole, err := AppendEnd(m.log, "the test is over")
		if err != nil {
			t.Fatal(err)
		}
		for _, processors := range []int{1, 2, 7} {
			runtime.GOMAXPROCS(processors)
			r, err := Replay(bytes.NewReader(whole))
			if err != nil || r.Difference != nil || r.Events != events || r.End != "the test is over" || r.Cut {
				t.Fatalf("on %d processors: %+v, %v", processors, r, err)
			}
			if again := recordAgain(t, whole); !bytes.Equal(again, whole) {
				t.Fatalf("on %d processors the recording of the recording differs:\n%s\n%s", processors, again, whole)
			}
		}
	})
}

// recordAgain records the replay of a recording.
func recordAgain(t *rapid.T, recording []byte) (out []byte) {
	var core *Core
	for i, line := range bytes.SplitAfter(recording, []byte("\n")) {
		if len(line) == 0 {
			continue
		}
		line, _ = bytes.CutSuffix(line, []byte("\n"))
		err := func() (err error) {
			if i == 0 {
				h, err := parseHeader(line)
				if err != nil {
					return err
				}
				if core, err = New(h.Config); err != nil {
					return err
				}
				out, err = AppendHeader(out, Header{h.Muster, h.Node, h.Started, core.Config()})
				return err
			}
			e, _, end, err := parseLine(line)
			if err != nil {
				return err
			}
			if end != nil {
				out, err = AppendEnd(out, *end)
				return err
			}
			e.Effects = core.Step(e.Now, e.Event)
			out, err = AppendEntry(out, e)
			return err
		}()
		if err != nil {
			t.Fatalf("line %d: %v", i+1, err)
		}
	}
	return out
}

// sample is a recording with most kinds of effects.
func sample(t testing.TB) []byte {
	t.Helper()
	core, err := New(Config{Devices: []Device{{Name: "gpu", Slots: 1, Memory: 100}}, MaxIdle: DefaultMaxIdle, SlotLimits: map[string]int{"bob": 1, "ann": 2}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := AppendHeader(nil, Header{"muster test", "n1", "2026-01-02T03:04:05Z", core.Config()})
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range []Event{
		Attach{Client: 1, User: "ann", Weight: 1}, Attach{Client: 2, User: "bob", Weight: 1}, Want{1, 60, 0, AnyDevice}, Want{2, 60, 0, AnyDevice}, Idle{1, DefaultMaxIdle}, Tick{},
		Released{Client: 1, Keeps: 0}, Grow{2, 101}, Ran{2, 1, 5}, Lost{0}, Detach{1}, Detach{2},
	} {
		now := Time(i) * DefaultMaxIdle
		if b, err = AppendEntry(b, Entry{now, e, core.Step(now, e)}); err != nil {
			t.Fatal(err)
		}
	}
	if b, err = AppendEnd(b, "the node has ended"); err != nil {
		t.Fatal(err)
	}
	return b
}

// sampleOfMoves has the events that people and earlier daemons cause.
func sampleOfMoves(t testing.TB) []byte {
	t.Helper()
	slow, fast := Device{Name: "slow", Slots: 2, Memory: 100, ContextCost: 1}, Device{Name: "fast", Slots: 1, Speed: 4, Memory: 100, ContextCost: 1}
	core, err := New(Config{Devices: []Device{slow, fast}, Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	b, err := AppendHeader(nil, Header{"muster test", "n1", "2026-01-02T03:04:05Z", core.Config()})
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range []Event{
		Adopt{Client: 1, User: "ann", Weight: 1, Device: 0, Held: true, Memory: 40, Lease: 3, Pinned: AnyDevice, Kernels: 5, Busy: time.Second, Moves: Moves{1, 2, 3}},
		Adopt{Client: 2, User: "bob", Weight: 1, Device: 1, Kept: 1, Lease: 1, Pinned: AnyDevice}, Adopt{Client: 3, User: "cid", Weight: 1, Device: AnyDevice, Pinned: AnyDevice},
		Ran{1, 1, time.Second}, Released{Client: 1, Keeps: 1}, Want{1, 40, 0, AnyDevice}, Released{Client: 1, Keeps: 0}, Move{1, 0}, Drain{0}, Released{Client: 1, Keeps: 0}, Resume{0}, Want{1, 40, 0, AnyDevice},
		Drain{1}, Released{Client: 2, Keeps: 0}, Released{Client: 1, Keeps: 0}, Remove{1}, Returned{1, fast}, Lost{1}, Added{fast}, Want{3, 40, 0, 1}, Lost{1},
	} {
		now := Time(i) * time.Second
		if b, err = AppendEntry(b, Entry{now, e, core.Step(now, e)}); err != nil {
			t.Fatal(err)
		}
	}
	if b, err = AppendEnd(b, "the node has ended"); err != nil {
		t.Fatal(err)
	}
	return b
}

// Recordings of today, to the letter. Old ones must stay readable: if one has
// to change, so has recordingVersion, unless only decisions change.
func TestRecordingToTheLetter(t *testing.T) {
	for _, c := range []struct {
		file            string
		got             []byte
		events, effects int
	}{{"testdata/recording.jsonl", sample(t), 12, 6}, {"testdata/recording_moves.jsonl", sampleOfMoves(t), 21, 9}} {
		if *scripts.Update {
			if err := os.WriteFile(c.file, c.got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(c.file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(c.got, want) {
			t.Errorf("another recording is written now (-update writes it down):\n%s", scripts.FirstDifference(string(want), string(c.got)))
		}
		r, err := Replay(bytes.NewReader(want))
		if err != nil || r.Events != c.events || r.Effects != c.effects || r.Difference != nil || r.End != "the node has ended" || r.Cut || r.Header.Node != "n1" {
			t.Errorf("%s: %+v, %v", c.file, r, err)
		}
	}
}

// Each single change to a decision is found, at its line.
func TestChangedDecisionsAreFound(t *testing.T) {
	lines := strings.SplitAfter(string(sample(t)), "\n")
	changed := 0
	for i, line := range lines {
		event, effects, ok := strings.Cut(line, `,"effects":[`)
		if !ok {
			continue
		}
		for _, other := range []string{strings.Replace(effects, `"client":1`, `"client":2`, 1), strings.Replace(effects, `"memory":60`, `"memory":61`, 1), "]}\n"} {
			if other == effects {
				continue
			}
			changed++
			copied := append([]string{}, lines...)
			copied[i] = event + `,"effects":[` + other
			r, err := Replay(strings.NewReader(strings.Join(copied, "")))
			d := r.Difference
			if err != nil || d == nil || d.Line != i+1 || r.Events != i {
				t.Errorf("line %d: %s: %+v, %v", i+1, copied[i], r, err)
				continue
			}
			if got := fmt.Sprintf(`{"now_ns":%d,"event":%s,"effects":%s}`, d.Now, d.Event, d.Recorded) + "\n"; got != copied[i] {
				t.Errorf("recorded: %s, want %s", got, copied[i])
			}
			if got := fmt.Sprintf(`{"now_ns":%d,"event":%s,"effects":%s}`, d.Now, d.Event, d.Decided) + "\n"; got != line {
				t.Errorf("decided: %s, want %s", got, line)
			}
		}
	}
	if changed < 10 {
		t.Errorf("only %d changes were tried", changed)
	}
	// An event that is missing is found by what follows from it.
	r, err := Replay(strings.NewReader(strings.Join(append(append([]string{}, lines[:3]...), lines[4:]...), "")))
	if err != nil || r.Difference == nil || r.Difference.Line != 4 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestDamagedRecordings(t *testing.T) {
	text := string(sample(t))
	header, _, _ := strings.Cut(text, "\n")
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "the recording is empty, or its first line is not whole: the node was killed before it had written more"},
		{"half a header", text[:40], "the recording is empty, or its first line is not whole: the node was killed before it had written more"},
		{"something else", "name: n1\n", "line 1: this is no recording of a node's dispatcher: its first line does not say so"},
		{"a later version", strings.Replace(text, `"version":1`, `"version":2`, 1), "line 1: the recording is of version 2, and this program reads version 1: use the muster that recorded it"},
		{"a header that is no JSON", strings.Replace(text, `"config":{`, `"config":[`, 1), "line 1: the header: invalid character ':' after array element"},
		{"a policy", strings.Replace(text, `"fcfs"`, `"lifo"`, 1), `line 1: the header: unknown policy "lifo": use fcfs, sjf or credit`},
		{"a device that cannot be", strings.Replace(text, `"slots":1`, `"slots":4611686018427387904`, 1), `line 1: device "gpu": 4611686018427387904 slots: give at most 1024`},
		{"an unknown setting", strings.Replace(header, `"max_passes":64`, `"max_passes":64,"luck":1`, 1) + "\n", "line 1: {\"recording\":"},
		{"an event without a time", strings.Replace(text, `"now_ns":0,`, ``, 1), `line 2: an event has "now_ns", "event" and "effects"`},
		{"an unknown event", strings.Replace(text, `"kind":"attach"`, `"kind":"attack"`, 1), `line 2: event: there is no event "attack"`},
		{"an unknown effect", strings.Replace(text, `"kind":"grant"`, `"kind":"grunt"`, 1), `line 4: effects: effect 1: there is no effect "grunt"`},
		{"more in a line", strings.Replace(text, `{"now_ns":0,`, `{"more":1,"now_ns":0,`, 1), `line 2: {"more":1,"now_ns":0,`},
		{"blanks", strings.Replace(text, `,"effects":[]`, `, "effects":[]`, 1), `line 2: {"now_ns":0,"event":{"kind":"attach","client":1,"user":"ann","weight":1}, "effects":[]} should read {"now_ns":0,`},
		{"half a line", strings.Replace(text, `,"effects":[]}`, ``, 1), "line 2: unexpected end of JSON input"},
		{"an empty line", strings.Replace(text, "\n", "\n\n", 1), "line 2: not a JSON object"},
		{"after the end", text + text, "line 15: something follows the end of the recording"},
		{"half a line after the end", text + "{", "line 15: something follows the end of the recording"},
		{"an end without a reason", header + "\n{\"end\":\"\"}\n", "line 2: the end of the recording has no reason"},
		{"an end with more", header + "\n{\"end\":\"x\",\"now_ns\":1}\n", `line 2: {"end":"x","now_ns":1} should read {"end":"x"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := Replay(strings.NewReader(c.text))
			if err == nil || !strings.HasPrefix(err.Error(), c.want) || r.Difference != nil {
				t.Errorf("%+v\ngot  %v\nwant %s", r, err, c.want)
			}
		})
	}
}

// A node that was killed leaves no last line, and perhaps half of one.
func TestRecordingOfAKilledNode(t *testing.T) {
	text := string(sample(t))
	lines := strings.SplitAfter(text, "\n")
	whole := strings.Join(lines[:5], "")
	for _, c := range []struct {
		text string
		cut  bool
	}{{whole, false}, {whole + lines[5][:20], true}, {whole + strings.TrimSuffix(lines[5], "\n"), true}} {
		r, err := Replay(strings.NewReader(c.text))
		if err != nil || r.Events != 4 || r.End != "" || r.Cut != c.cut || r.Difference != nil {
			t.Errorf("%q: %+v, %v", c.text, r, err)
		}
	}
}

// endless is a reader that repeats a text for ever, and counts.
type endless struct {
	text string
	at   int
	read int
}

func (e *endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = e.text[e.at]
		e.at = (e.at + 1) % len(e.text)
	}
	e.read += len(b)
	return len(b), nil
}

// What never ends is read no further than a line may be long.
func TestEndlessLines(t *testing.T) {
	header, _, _ := strings.Cut(string(sample(t)), "\n")
	for _, c := range []struct {
		name, first string
		line        int
	}{{"from the start", "", 1}, {"an endless header", HeaderPrefix, 1}, {"later", header + "\n", 2}} {
		e := &endless{text: "0"}
		_, err := Replay(io.MultiReader(strings.NewReader(c.first), e))
		var bad *LineError
		if !errors.As(err, &bad) || bad.Line != c.line || !strings.Contains(err.Error(), "longer than 8388608 bytes") || e.read > maxLine+(128<<10) {
			t.Errorf("%s: %v after %d bytes", c.name, err, e.read)
		}
	}
	// Clients that never go would take more and more memory.
	if _, err := replay(io.MultiReader(strings.NewReader(header+"\n"), &crowding{}), 1000); err == nil || err.Error() != "line 1002: more than 1000 clients are attached at a time" {
		t.Error(err)
	}
}

// crowding is a recording in which one client after the other attaches.
type crowding struct {
	left []byte
	next ClientID
}

func (c *crowding) Read(b []byte) (int, error) {
	if len(c.left) == 0 {
		c.next++
		c.left, _ = AppendEntry(nil, Entry{Event: Attach{Client: c.next, User: "ann", Weight: 1}})
	}
	n := copy(b, c.left)
	c.left = c.left[n:]
	return n, nil
}

// A longer recording takes more time, but no more memory at a time.
func TestReplayKeepsOneLine(t *testing.T) {
	header, _, _ := strings.Cut(string(sample(t)), "\n")
	tick, err := AppendEntry(nil, Entry{Event: Tick{}})
	if err != nil {
		t.Fatal(err)
	}
	allocations := func(ticks int) float64 {
		text := header + "\n" + strings.Repeat(string(tick), ticks)
		return testing.AllocsPerRun(1, func() {
			if r, err := Replay(strings.NewReader(text)); err != nil || r.Events != ticks {
				t.Fatalf("%+v, %v", r, err)
			}
		})
	}
	few, many := allocations(1000), allocations(4000)
	if many > 4.1*few {
		t.Errorf("%v allocations for 1000 events and %v for 4000", few, many)
	}
}

// However a recording is damaged, it is refused or played to its end.
func FuzzReplay(f *testing.F) {
	f.Add(sample(f))
	f.Add(sampleOfMoves(f))
	header, _, _ := strings.Cut(string(sample(f)), "\n")
	f.Add([]byte(strings.Replace(header, "fcfs", "credit", 1) + "\n"))
	for seed := range 8 {
		f.Add(rapid.Custom(func(t *rapid.T) []byte {
			m := newMachine(t, drawConfig(t))
			for range 40 {
				m.step()
			}
			return m.log
		}).Example(seed))
	}
	f.Fuzz(func(t *testing.T, recording []byte) {
		r, err := Replay(bytes.NewReader(recording))
		again, err2 := Replay(bytes.NewReader(recording))
		if fmt.Sprint(err) != fmt.Sprint(err2) || r.Events != again.Events || r.Effects != again.Effects || (r.Difference == nil) != (again.Difference == nil) {
			t.Fatalf("%+v, %v\n%+v, %v", r, err, again, err2)
		}
	})
}

// Events of any kind in any order, such as workers that lie would cause if nobody
// checked them: the core goes on, promises no more than there is, and a recording
// of it replays.
func anyEvents(t *rapid.T) {
	m := newMachine(t, drawConfig(t))
	number := rapid.SampledFrom([]uint64{0, 0, 1, 5, 10, 20, 40, 80, 100, math.MaxInt64, math.MaxUint64})
	span := func(what string) time.Duration {
		return rapid.SampledFrom([]time.Duration{0, 1, time.Millisecond, 20 * time.Millisecond, time.Hour, math.MaxInt64, -1, math.MinInt64}).Draw(t, what)
	}
	id := func() ClientID { return ClientID(rapid.IntRange(1, 5).Draw(t, "client")) }
	device := func() DeviceID { return DeviceID(rapid.IntRange(-2, 3).Draw(t, "device")) }
	events := []func() Event{
		func() Event {
			return Attach{Client: id(), User: rapid.SampledFrom([]string{"", "ann", "bob"}).Draw(t, "user"), Weight: rapid.IntRange(-1, 3).Draw(t, "weight")}
		},
		func() Event { return Detach{id()} },
		func() Event { return Want{id(), number.Draw(t, "need"), span("estimate"), device()} },
		func() Event { return Want{id(), uint64(rapid.IntRange(0, 40).Draw(t, "need")), 0, AnyDevice} },
		func() Event { return Grow{id(), number.Draw(t, "need")} },
		func() Event { return Grow{id(), uint64(rapid.IntRange(0, 90).Draw(t, "need"))} },
		func() Event { return Busy{id()} },
		func() Event { return Idle{id(), span("for")} },
		func() Event { return SyncPoint{id()} },
		func() Event { return Released{Client: id(), Keeps: number.Draw(t, "keeps")} },
		func() Event {
			return Ran{id(), rapid.SampledFrom([]int{0, 1, -1, math.MaxInt64}).Draw(t, "kernels"), span("busy")}
		},
		func() Event { return Faulted{id()} },
		func() Event { return Lost{device()} },
		func() Event { return Added{m.cfg.Devices[rapid.IntRange(0, len(m.cfg.Devices)-1).Draw(t, "which")]} },
		func() Event { return Tick{} },
		func() Event { return Move{id(), device()} },
		func() Event { return Drain{device()} },
		func() Event { return Resume{device()} },
		func() Event { return Remove{device()} },
		func() Event {
			return Returned{device(), m.cfg.Devices[rapid.IntRange(0, len(m.cfg.Devices)-1).Draw(t, "which")]}
		},
		func() Event {
			wild := rapid.SampledFrom([]int{0, 1, 5, -1, math.MaxInt64, math.MinInt64})
			return Adopt{Client: id(), User: "ann", Device: device(), Held: rapid.Bool().Draw(t, "held"), Memory: number.Draw(t, "memory"), Kept: number.Draw(t, "kept"),
				Lease: wild.Draw(t, "lease"), Pinned: device(), Kernels: number.Draw(t, "kernels"), Busy: span("busy"), Waited: span("waited"), Preemptions: wild.Draw(t, "preemptions"),
				Moves: Moves{wild.Draw(t, "auto"), wild.Draw(t, "hand"), wild.Draw(t, "drain")}}
		},
	}
	grant := func() GrantID { return rapid.SampledFrom([]GrantID{"", "g", "h"}).Draw(t, "grant") }
	events = append(events,
		func() Event {
			var shares []Share
			for range rapid.IntRange(0, 3).Draw(t, "shares") {
				shares = append(shares, Share{device(), number.Draw(t, "share"), number.Draw(t, "beyond"), model.Reach(rapid.IntRange(0, 2).Draw(t, "reach"))})
			}
			return Admit{grant(), shares, rapid.IntRange(-2, 3).Draw(t, "limit")}
		},
		func() Event { return Withdraw{grant()} },
		func() Event { return Resize{device(), rapid.IntRange(-1, 5).Draw(t, "slots")} },
		func() Event { return Restrict{grant(), rapid.IntRange(-2, 3).Draw(t, "limit")} },
		func() Event {
			return Attach{Client: id(), User: "ann", Grant: grant(), Share: rapid.IntRange(-1, 2).Draw(t, "which")}
		},
		func() Event {
			return Adopt{Client: id(), User: "ann", Grant: grant(), Share: rapid.IntRange(-1, 2).Draw(t, "which"), Device: device(), Held: rapid.Bool().Draw(t, "held"), Memory: number.Draw(t, "memory"), Pinned: device()}
		})
	adopted := map[ClientID]bool{}
	defer func() {
		if r := recover(); r != nil {
			t.Logf("%s", m.log)
			panic(r)
		}
	}()
	for range rapid.IntRange(1, 100).Draw(t, "steps") {
		m.now += max(0, min(span("now"), math.MaxInt64-m.now))
		e := rapid.SampledFrom(events).Draw(t, "event")()
		log, err := AppendEntry(m.log, Entry{m.now, e, m.core.Step(m.now, e)})
		if err != nil {
			t.Fatal(err)
		}
		m.log = log
		m.core.Next()
		if e, ok := e.(Adopt); ok {
			adopted[e.Client] = true
		}
		view := m.core.View()
		leaving := func(d DeviceID) bool {
			return slices.ContainsFunc(view.Clients, func(x ClientView) bool { return x.Device == d && x.Revoking && adopted[x.ID] })
		}
		for _, d := range view.Devices {
			if ((d.Taken > d.Memory || d.Used > d.Slots) && !leaving(d.ID)) || d.Used < 0 || d.Promised < 0 || d.Taken > maxAdoptedUsed {
				t.Fatalf("%+v after %s", d, m.log)
			}
		}
	}
	if r, err := Replay(bytes.NewReader(m.log)); err != nil || r.Difference != nil {
		t.Fatalf("%+v, %v", r, err)
	}
}

func TestAnyEvents(t *testing.T) { seeds.Check(t, anyEvents) }

func FuzzAnyEvents(f *testing.F) { f.Fuzz(rapid.MakeFuzz(anyEvents)) }

// BenchmarkReplay is one event of a recording, read, decided and compared.
func BenchmarkReplay(b *testing.B) {
	header, _, _ := strings.Cut(string(sample(b)), "\n")
	b.Run("append", func(b *testing.B) {
		e := Entry{1, Want{1, 60, 0, AnyDevice}, []Effect{{Kind: Grant, Client: 1, Memory: 60, Lease: 1}}}
		var line []byte
		for b.Loop() {
			line, _ = AppendEntry(line[:0], e)
		}
		b.SetBytes(int64(len(line)))
	})
	b.Run("replay", func(b *testing.B) {
		tick, err := AppendEntry(nil, Entry{Event: Busy{7}})
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(len(tick)))
		r, err := Replay(io.MultiReader(strings.NewReader(header+"\n"), io.LimitReader(&endless{text: string(tick)}, int64(b.N*len(tick)))))
		if err != nil || r.Events != b.N {
			b.Fatal(r, err)
		}
	})
}
