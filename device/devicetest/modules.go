package devicetest

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"slices"
	"strings"
	"time"

	"muster/device"
)

var moduleTests = []test{
	{"functions", always, testFunctions},
	{"parameters", always, testParameters},
	{"variables", always, testVariables},
	{"variables of two modules", always, testTwoModules},
	{"same loads, same addresses", func(o Options) bool { return !o.FixedVariables }, testSameAddresses},
	{"variables at given addresses", always, testPlacedVariables},
	{"bad images", always, testBadImages},
	{"cubin", func(o Options) bool { return o.Cubin == nil }, testCubin},
	{"fat binary", func(o Options) bool { return o.Fatbin == nil }, testFatbin},
	{"unload", always, testUnload},
	{"printf", func(o Options) bool { return !o.Prints }, testPrint},
	{"linking", always, testLink},
}

func testFunctions(b *bench) {
	o := b.open()
	want := []string{"count", "grind", "meet", "params", "reverse", "small", "spin", "step", "stop", "touch", "where"}
	same(b, "functions", o.module.Functions(), want)
	_, err := o.module.Function("stepp")
	b.refused(err, device.ErrNotFound)
	_, err = o.module.Function("")
	b.refused(err, device.ErrNotFound)

	info := b.dev.Info()
	f := o.function("small").Info()
	if f.Name != "small" || f.MaxThreads != 64 || f.Shared != 1024 || f.ParamSize != 8 || f.PTXVersion != 70 {
		b.Errorf("small: %+v", f)
	}
	f = o.function("step").Info()
	if f.MaxThreads != info.Limits.Threads || f.Shared != 0 || f.Registers < 1 || f.Registers > 255 || f.Binary != info.Compute.Arch() {
		b.Errorf("step: %+v", f)
	}
	if f = o.function("stop").Info(); len(f.Params) != 0 || f.ParamSize != 0 {
		b.Errorf("stop: %+v", f)
	}
}

func testParameters(b *bench) {
	o := b.open()
	f := o.function("params")
	same(b, "layout", f.Info().Params, []device.Param{{Offset: 0, Size: 8}, {Offset: 8, Size: 1}, {Offset: 10, Size: 2}, {Offset: 12, Size: 4}, {Offset: 16, Size: 8}, {Offset: 24, Size: 12}, {Offset: 36, Size: 4}})
	if f.Info().ParamSize != 40 {
		b.Errorf("%d bytes of parameters, want 40", f.Info().ParamSize)
	}
	addr := o.mapped(0, o.g)
	data := o.pack(f, addr, uint8(0xfe), uint16(0xfedc), uint32(0xfedcba98), uint64(0x0123456789abcdef), [3]uint32{11, 22, 33}, float32(1.5))
	o.ok(o.stream.Launch(f, device.Launch{Grid: line(1), Block: line(1), Params: data}))
	clear(data) // the context must have copied what it needs
	got := make([]uint64, 7)
	b.ok(binary.Read(bytes.NewReader(o.get(addr, 56)), binary.LittleEndian, got))
	same(b, "parameters", got, []uint64{0xfe, 0xfedc, 0xfedcba98, 0x0123456789abcdef, 11, 33, 0x3fc00000})
}

func (o *opened) variable(m device.Module, name string) device.Global {
	o.Helper()
	g, err := m.Global(name)
	o.ok(err)
	return g
}

func (o *opened) load(image []byte) device.Module {
	o.Helper()
	m, err := o.Load(image)
	o.ok(err)
	return m
}

func (o *opened) sum(m device.Module) {
	o.Helper()
	f, err := m.Function("sum")
	o.ok(err)
	o.ok(o.stream.Launch(f, device.Launch{Grid: line(1), Block: line(1)}))
}

func testVariables(b *bench) {
	o := b.open()
	m := o.load(variables)
	var names []string
	sizes := map[string]uint64{}
	for _, g := range m.Globals() {
		names = append(names, g.Name)
		sizes[g.Name] = g.Size
		if one := o.variable(m, g.Name); one != g {
			b.Errorf("%s is %+v in the list and %+v by itself", g.Name, g, one)
		}
		if b.arena().Contains(g.Address, 1) {
			b.Errorf("%s lies in the arena, at %s", g.Name, hex(g.Address))
		}
	}
	same(b, "variables", names, []string{"factor", "pointer", "table", "total"})
	same(b, "sizes", []uint64{sizes["factor"], sizes["pointer"], sizes["table"], sizes["total"]}, []uint64{4, 8, 16, 8})
	_, err := m.Global("tabel")
	b.refused(err, device.ErrNotFound)

	table, total, factor := o.variable(m, "table"), o.variable(m, "total"), o.variable(m, "factor")
	same(b, "first values", o.getWords(table.Address, 4), []uint32{10, 20, 30, 40})
	o.sum(m)
	same(b, "total", o.getWords(total.Address, 2), []uint32{700, 0})
	o.putWords(table.Address, 1, 1, 1, 1)
	o.putWords(factor.Address, 2)
	o.sum(m)
	same(b, "total", o.getWords(total.Address, 2), []uint32{708, 0})
}

// The same image loaded twice is two modules.
func testTwoModules(b *bench) {
	o := b.open()
	first, second := o.load(variables), o.load(variables)
	a, z := o.variable(first, "total"), o.variable(second, "total")
	if a.Address == z.Address {
		b.Fatalf("two modules share a variable at %s", hex(a.Address))
	}
	o.sum(first)
	o.sum(first)
	o.sum(second)
	same(b, "first", o.getWords(a.Address, 1), []uint32{1400})
	same(b, "second", o.getWords(z.Address, 1), []uint32{700})
}

func testSameAddresses(b *bench) {
	addresses := func() []device.Global {
		o := b.open()
		all := slices.Concat(o.load(variables).Globals(), o.load(variables).Globals())
		b.ok(o.Close())
		return all
	}
	same(b, "addresses of a second context", addresses(), addresses())
}

// A device that can LoadAt puts variables at given addresses whatever was loaded
// and unloaded before, and refuses addresses that are in use.
func testPlacedVariables(b *bench) {
	placer := b.dev.Can()
	if placer.LoadAt == nil {
		b.Skip("this backend chooses addresses itself")
	}
	first := b.open()
	gone := first.load(variables)
	kept := first.load(variables)
	b.ok(gone.Unload())
	want := kept.Globals()

	o := b.openOn(b.dev, device.Config{Arena: b.arena()})
	m, err := placer.LoadAt(o.Context, variables, want)
	b.ok(err)
	same(b, "addresses", m.Globals(), want)
	o.sum(m)
	same(b, "contents", o.getWords(o.variable(m, want[0].Name).Address, 1), first.getWords(want[0].Address, 1))
	_, err = placer.LoadAt(o.Context, variables, want)
	b.refused(err, device.ErrOutOfMemory)
	other := slices.Clone(want)
	other[0].Name += "x"
	b.ok(m.Unload())
	_, err = placer.LoadAt(o.Context, variables, other)
	b.refused(err, device.ErrInvalidValue)
	m, err = placer.LoadAt(o.Context, variables, want) // what was refused took nothing
	b.ok(err)
	b.ok(m.Unload())
	m, err = placer.LoadAt(o.Context, basic, nil)
	b.ok(err)
	b.ok(m.Unload())
}

func testBadImages(b *bench) {
	o := b.open()
	for what, image := range map[string]string{
		"no bytes":     "",
		"only zeros":   "\x00\x00\x00\x00",
		"prose":        "this is not a module",
		"half a file":  string(basic[:len(basic)/2]),
		"wrong opcode": strings.Replace(string(basic), "mad.lo.u32", "mda.lo.u32", 1),
		"wrong name":   strings.Replace(string(basic), "[%rd1], %r15", "[%rd1], %q15", 1),
	} {
		if _, err := o.Load([]byte(image)); !isError(err, device.ErrInvalidImage) {
			b.Errorf("%s: answered %v", what, err)
		}
	}
	o.load(append(bytes.Clone(basic), 0)) // as C programs pass it
}

func testCubin(b *bench) {
	o := b.open()
	_, err := o.Load(b.options.Cubin)
	b.refused(err, device.ErrNoKernelImage)
	if !strings.Contains(err.Error(), "PTX") {
		b.Errorf("the refusal does not say what to do: %v", err)
	}
}

func testFatbin(b *bench) {
	o := b.open()
	o.module = o.load(b.options.Fatbin)
	addr := o.mapped(0, o.g)
	o.putWords(addr, 5)
	o.launch(o.stream, "step", 1, 1, addr, uint32(2), uint32(1))
	same(b, "word", o.getWords(addr, 1), []uint32{17})
}

func testUnload(b *bench) {
	o := b.open()
	free, _, err := o.Memory()
	b.ok(err)
	m := o.load(variables)
	f, err := m.Function("sum")
	b.ok(err)
	total := o.variable(m, "total")
	o.sum(m)
	o.finish()
	b.ok(m.Unload())
	o.freeAgain(free)
	b.refused(o.stream.CopyOut(make([]byte, 8), total.Address), device.ErrInvalidValue)
	b.refused(o.stream.Launch(f, device.Launch{Grid: line(1), Block: line(1)}), device.ErrClosed)
	_, err = m.Function("sum")
	b.refused(err, device.ErrClosed)
	_, err = m.Global("total")
	b.refused(err, device.ErrClosed)
	b.refused(m.Unload(), device.ErrClosed)
}

func testPrint(b *bench) {
	var text bytes.Buffer
	o := b.openOn(b.dev, device.Config{Arena: b.arena(), Print: func(t []byte) { text.Write(t) }})
	m := o.load(printing)
	f, err := m.Function("hello")
	b.ok(err)
	e := o.newEvent()
	poll := func(done func() (bool, error)) {
		for over := false; !over; runtime.Gosched() {
			b.ok(b.ctx.Err())
			var err error
			over, err = done()
			b.ok(err)
		}
	}
	for _, way := range []struct {
		name string
		wait func()
	}{
		{"the stream is synchronised", o.finish},
		{"the event is synchronised", func() { b.ok(e.Synchronise(b.ctx)) }},
		{"the context is synchronised", func() { b.ok(o.Synchronise(b.ctx)) }},
		{"the stream is asked", func() { poll(o.stream.Done) }},
		{"the event is asked", func() { poll(e.Done) }},
		{"the stream is watched", func() { poll(watch(o.stream, o.stream.Done)) }},
		{"the event is watched", func() { poll(watch(e, e.Done)) }},
	} {
		b.ok(o.stream.Launch(f, device.Launch{Grid: line(1), Block: line(3)}))
		b.ok(o.stream.Record(e))
		way.wait()
		lines := strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
		slices.Sort(lines)
		same(b, "lines when "+way.name, lines, []string{"thread 0 of 3", "thread 1 of 3", "thread 2 of 3"})
		text.Reset()
	}
}

// watch returns Watch of a stream or an event that has it, else otherwise.
func watch(of interface {
	Watch() func(time.Duration) (bool, error)
}, otherwise func() (bool, error)) func() (bool, error) {
	w := of.Watch()
	if w == nil {
		return otherwise
	}
	return func() (bool, error) { return w(10 * time.Microsecond) }
}

const linkHead = ".version 7.0\n.target sm_70\n.address_size 64\n"

// linkCaller and linkCallee are parts of one program: get(p) writes 40 + 2 to *p.
const linkCaller = linkHead + `
.extern .func (.param .b32 r) more(.param .b32 x);
.extern .global .align 4 .u32 base;
.visible .entry get(.param .u64 p)
{
	.reg .b32 %r<3>;
	.reg .b64 %d<1>;
	ld.global.u32 %r0, [base];
	{
	.param .b32 a;
	st.param.b32 [a], %r0;
	.param .b32 b;
	call.uni (b), more, (a);
	ld.param.b32 %r1, [b];
	}
	ld.param.u64 %d0, [p];
	st.global.u32 [%d0], %r1;
	ret;
}
`

const linkCallee = linkHead + `
.visible .global .align 4 .u32 base = 40;
.visible .func (.param .b32 r) more(.param .b32 x)
{
	.reg .b32 %r<2>;
	ld.param.u32 %r0, [x];
	add.u32 %r1, %r0, 2;
	st.param.b32 [r], %r1;
	ret;
}
`

func testLink(b *bench) {
	o := b.open()
	addr := o.mapped(0, o.g)
	ptx := func(name, text string) device.LinkInput {
		return device.LinkInput{Kind: device.LinkPTX, Name: name, Data: []byte(text)}
	}
	caller, callee := ptx("caller", linkCaller), ptx("callee", linkCallee)
	link := func(check bool, inputs ...device.LinkInput) ([]byte, error) {
		return o.Link(device.Link{Inputs: inputs, Check: check})
	}
	image, err := link(false, caller, callee)
	b.ok(err)
	m := o.load(image)
	f, err := m.Function("get")
	b.ok(err)
	b.ok(o.stream.Launch(f, device.Launch{Grid: line(1), Block: line(1), Params: binary.LittleEndian.AppendUint64(nil, addr)}))
	o.finish()
	same(b, "result", o.getWords(addr, 1), []uint32{42})
	b.ok(m.Unload())

	image, err = link(true, caller)
	b.ok(err)
	same(b, "image of a check", image, nil)
	_, err = link(true, ptx("wrong", linkHead+"nonsense"))
	b.refused(err, device.ErrInvalidPTX)
	_, err = link(true, ptx("new", ".version 99.0\n.target sm_70\n.address_size 64\n"))
	b.refused(err, device.ErrPTXVersion)
	if _, err = link(false, caller); err != nil { // no input defines what it calls: NVIDIA's driver accepts that
		b.refused(err, device.ErrInvalidImage)
	}
	image, err = link(false)
	b.ok(err)
	b.ok(o.load(image).Unload())
	b.ok(o.Close())
	_, err = link(false, callee)
	b.refused(err, device.ErrClosed)
}
