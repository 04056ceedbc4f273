package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"muster/device/codefile"
	"muster/model"
	"muster/ptx"
	"muster/ptx/number"
	"muster/ptx/simt"
	"muster/report"
)

const ptxRunHelp = `Run one kernel on the software GPU and print what it computed.

FILE is PTX text, a fat binary, or a program that holds one; - is standard input.
--kernel may be left out where there is one kernel, and may be the name without
what C++ adds to it. Of several PTX texts in a fat binary, the one for the newest
GPU that the software GPU can run is taken.

` + ptxArgHelp + `

What the kernel prints goes to standard output as it comes, then the buffers that
are out or inout: the first 64 elements, or all with --all. How long it took is
told on standard error. A fault (a bad address, a trap, threads that wait for each
other) ends the run with status 1 and says which thread did it, at which line of
the PTX; nothing is printed or written of the buffers then.

--check race,init,memory looks at every access to memory: for two threads that use the
same bytes with nothing that orders them, for reads of what nobody has written (out
buffers count as that: make them inout to read their zeros), and for addresses outside
every buffer. What is found is told on standard error, and the exit status is that of
--error-exitcode. The kernel runs on one processor then, about ten times slower.

--profile tells on standard error which lines of the PTX took the time, and how often
each ran; --disasm which machine code the kernel was compiled to.

--json prints one document instead: what ran, the counts, what was printed and
the buffers with all their elements. Numbers that JSON has no form for are the
strings "nan", "inf" and "-inf"; elements of b types are strings, too.`

// ptxRunFlags are the flags of muster ptx run.
type ptxRunFlags struct {
	kernel, grid, block string
	shared, stack       int
	args                []string
	cooperative         bool
	workers             int
	engine              string
	check               string
	errorStatus         int
	all, asJSON         bool
	disasm, profile     bool
}

func newPtxRun() *cobra.Command {
	var f ptxRunFlags
	c := &cobra.Command{
		Use: `run FILE [--kernel NAME] --grid X[,Y[,Z]] --block X[,Y[,Z]] [--shared BYTES] [--arg ARGUMENT]...
                     [--all] [--json]`,
		Short: "Run a kernel on the software GPU",
		Long:  ptxRunHelp,
		Example: `  muster ptx run vecadd.ptx --kernel vecadd --grid 4 --block 256 \
    --arg 'f32[1000]=iota' --arg 'f32[1000]=0.5' --arg 'out:f32[1000]' --arg s32:1000
  muster ptx run a.out --kernel histogram --grid 8 --block 128 \
    --arg 'u8[]=@photo.raw' --arg 'out=@counts.bin:u32[256]' --arg u32:65536
  clang++ -x cuda --cuda-device-only --cuda-gpu-arch=sm_70 -S -o - hello.cu |
    muster ptx run - --grid 1 --block 32`,
		Args: oneArgument("one file with PTX, or -"),
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args[0]) },
	}
	c.Flags().StringVar(&f.kernel, "kernel", "", "the `name` of the kernel")
	c.Flags().StringVar(&f.grid, "grid", "", "how many blocks: `X[,Y[,Z]]`")
	c.Flags().StringVar(&f.block, "block", "", "how many threads a block: `X[,Y[,Z]]`")
	c.Flags().IntVar(&f.shared, "shared", 0, "dynamic shared memory of a block, in `bytes`")
	c.Flags().StringArrayVar(&f.args, "arg", nil, "the next `argument` of the kernel; may be given several times")
	c.Flags().BoolVar(&f.all, "all", false, "print all elements of buffers")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print one JSON document")
	c.Flags().BoolVar(&f.cooperative, "cooperative", false, "run all blocks at the same time: they may wait for each other")
	c.Flags().IntVar(&f.stack, "stack", simt.DefaultStack, "`bytes` a thread has for recursive and indirect calls, a multiple of 16")
	c.Flags().StringVar(&f.engine, "engine", simt.Auto.String(), "what runs the kernel: interpret, compile, or auto for both; `name`")
	c.Flags().BoolVar(&f.profile, "profile", false, "say which lines of the PTX took the time (docs/debugging.md)")
	c.Flags().BoolVar(&f.disasm, "disasm", false, "print the machine code of the kernel beside the lines of the PTX (docs/debugging.md)")
	c.Flags().StringVar(&f.check, "check", "", "look for these `defects`: race, init and memory with commas between, or all (docs/debugging.md)")
	c.Flags().IntVar(&f.errorStatus, "error-exitcode", 1, "exit with this `status` if --check finds a defect; 0: as without --check")
	c.Flags().IntVar(&f.workers, "workers", runtime.NumCPU(), "processors to use; results of a kernel without races do not depend on it")
	return c
}

// maxCooperative bounds the threads of a cooperative launch: the state of all
// of them is in memory at once.
const maxCooperative = 1 << 17

// run does the whole of muster ptx run.
func (f *ptxRunFlags) run(c *cobra.Command, path string) error {
	launch, err := f.launch()
	if err != nil {
		return err
	}
	args, err := parseKernelArguments(f.args)
	if err != nil {
		return err
	}
	for _, a := range args {
		if err := checkFolder(a.file); err != nil {
			return err
		}
	}
	images, err := codefile.Read(c.InOrStdin(), path)
	if err != nil {
		return err
	}
	modules, err := codefile.Modules(path, images)
	if err != nil {
		return err
	}
	name, err := findKernel(path, modules, f.kernel)
	if err != nil {
		return err
	}
	r, err := loadKernel(modules, name)
	if err != nil {
		return err
	}
	defer r.memory.release() // the process ends anyway
	r.launch, r.args = launch, args
	if err := r.prepare(); err != nil {
		return err
	}
	return f.execute(c, r)
}

// launch reads the flags that say how to run.
func (f *ptxRunFlags) launch() (simt.Launch, error) {
	l := simt.Launch{Shared: f.shared, Stack: f.stack, Workers: f.workers, Cooperative: f.cooperative}
	engine, ok := simt.ParseEngine(f.engine)
	if !ok {
		return l, fmt.Errorf("there is no engine %q: --engine is one of interpret, compile and auto", f.engine)
	}
	l.Engine, l.List = engine, f.disasm
	if f.disasm {
		if engine == simt.Interpret {
			return l, usageErrorf("--disasm: the interpreter has no machine code; leave --engine out")
		}
		l.Engine = simt.Compile
	}
	if f.profile {
		l.Profile = &simt.Profile{}
	}
	var err error
	if l.Grid, err = parseDim("--grid", "blocks", f.grid); err != nil {
		return l, err
	}
	if l.Block, err = parseDim("--block", "threads a block", f.block); err != nil {
		return l, err
	}
	if f.workers < 1 {
		return l, usageErrorf("--workers must be 1 or more, not %d", f.workers)
	}
	if f.cooperative && (l.Grid.Count() > maxCooperative || l.Block.Count() > maxCooperative || l.Grid.Count()*l.Block.Count() > maxCooperative) {
		return l, usageErrorf("--cooperative: at most %d threads can run at the same time", maxCooperative)
	}
	return l, nil
}

// parseDim reads X[,Y[,Z]].
func parseDim(flag, what, text string) (simt.Dim, error) {
	if text == "" {
		return simt.Dim{}, usageErrorf("say how many %s: %s X, X,Y or X,Y,Z", what, flag)
	}
	sides := strings.Split(text, ",")
	d := [3]uint32{1, 1, 1}
	if len(sides) > len(d) {
		return simt.Dim{}, usageErrorf("%s %s: there are three dimensions at most", flag, text)
	}
	for i, side := range sides {
		n, err := strconv.ParseUint(strings.TrimSpace(side), 10, 32)
		if err != nil || n == 0 {
			return simt.Dim{}, usageErrorf("%s %s: %q is no number from 1 on; write X, X,Y or X,Y,Z", flag, text, side)
		}
		d[i] = uint32(n)
	}
	return simt.Dim{X: d[0], Y: d[1], Z: d[2]}, nil
}

// findKernel finds the full name of the kernel that was asked for.
func findKernel(path string, modules []codefile.Module, asked string) (string, error) {
	var names []string
	for i := range modules {
		for _, k := range modules[i].Kernels() {
			if !slices.Contains(names, k.Name) {
				names = append(names, k.Name)
			}
		}
	}
	switch {
	case len(names) == 0:
		return "", fmt.Errorf("%s: there is no kernel inside", path)
	case asked == "" && len(names) == 1:
		return names[0], nil
	case asked == "":
		return "", usageErrorf("say which kernel with --kernel: %s", kernelList(names))
	case slices.Contains(names, asked):
		return asked, nil
	}
	var plain, same []string
	for _, n := range names {
		plain = append(plain, plainName(n))
		if plainName(n) == asked {
			same = append(same, n)
		}
	}
	switch {
	case len(same) == 1:
		return same[0], nil
	case len(same) > 1:
		return "", usageErrorf("--kernel %s: there are several: %s", asked, kernelList(same))
	}
	if near := model.Nearest(asked, append(names, plain...)); near != "" {
		return "", usageErrorf("there is no kernel %q: did you mean %s?", asked, near)
	}
	return "", usageErrorf("there is no kernel %q: there is %s", asked, kernelList(names))
}

// kernelList names kernels, not too many.
func kernelList(names []string) string {
	const most = 20
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more, which muster ptx check lists", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

// plainName takes off what C++ adds to a function's name: _Z3addPfi is add.
// It returns names that it does not understand as they are.
func plainName(name string) string {
	rest, ok := strings.CutPrefix(name, "_Z")
	if !ok {
		return name
	}
	rest = strings.TrimPrefix(rest, "N")
	plain := name
	for {
		digits := strings.IndexFunc(rest, func(r rune) bool { return !unicode.IsDigit(r) })
		if digits < 1 {
			return plain
		}
		n, err := strconv.Atoi(rest[:digits])
		if err != nil || n == 0 || n > len(rest)-digits {
			return plain
		}
		plain, rest = rest[digits:digits+n], rest[digits+n:]
		if !strings.HasPrefix(name, "_ZN") {
			return plain
		}
	}
}

// kernelRun is a kernel with all it needs to run.
type kernelRun struct {
	function *ptx.Function
	program  *simt.Program
	memory   *gpuMemory
	launch   simt.Launch
	args     []*kernelArgument
	buffers  [][]byte // of the arguments; nil for values
}

// loadKernel loads the first module that has the kernel and can run it. The
// other kernels of the module do not matter.
func loadKernel(modules []codefile.Module, name string) (*kernelRun, error) {
	var first error
	for i := range modules {
		m := &modules[i]
		function := m.Tree.Function(name)
		if function == nil || !function.Entry || !function.Defined {
			continue
		}
		memory := &gpuMemory{}
		program, err := simt.Load(m.Image.Name, m.Only(func(k string) bool { return k == name }), memory.place)
		if err == nil {
			return &kernelRun{function: function, program: program, memory: memory}, nil
		}
		if err := memory.release(); err != nil {
			return nil, err
		}
		if first == nil {
			first = err
		}
	}
	return nil, fmt.Errorf("the software GPU cannot run kernel %s:\n%w", name, first)
}

// prepare checks the arguments, fills the memory and makes the kernel ready.
func (r *kernelRun) prepare() error {
	if err := checkArguments(r.function, r.args); err != nil {
		return err
	}
	for _, g := range r.program.Globals() {
		region, _ := r.memory.Find(g.Address)
		copy(region.Bytes[g.Address-region.Base:], g.Data)
	}
	kernel := r.program.Kernel(r.function.Name)
	params := make([]byte, kernel.ParamSize)
	for i, a := range r.args {
		at := params[kernel.Params[i].Offset:]
		if !a.isBuffer() {
			copy(at, a.value)
			r.buffers = append(r.buffers, nil)
			continue
		}
		region, err := r.memory.add(fmt.Sprintf("argument %d, %s", a.number, a.shape()), uint64(a.size()), 1)
		if err != nil {
			return err
		}
		buffer := region.Bytes[:a.size()]
		if a.fill != nil {
			a.fill(buffer)
		}
		r.buffers = append(r.buffers, buffer)
		binary.LittleEndian.PutUint64(at, region.Base)
	}
	r.launch.Params, r.launch.Memory = params, r.memory
	return nil
}

// execute runs the kernel and gives out what came of it.
func (f *ptxRunFlags) execute(c *cobra.Command, r *kernelRun) error {
	bar := report.NewProgress(c.ErrOrStderr(), isTerminal(c.ErrOrStderr()), "lane operations", 0)
	var printed strings.Builder
	out := bufio.NewWriter(c.OutOrStdout())
	r.launch.Print = func(text []byte) {
		if f.asJSON {
			printed.Write(text)
			return
		}
		bar.Done()      // two would write to one terminal
		out.Write(text) // its error is told by Flush
	}
	checker, defects, err := f.checker(c, r, bar.Done)
	if err != nil {
		return err
	}
	r.launch.Check = checker
	x, err := r.program.Kernel(r.function.Name).Start(r.launch)
	if err != nil {
		return usageErrorf("%v", err)
	}
	unsample := func() {}
	if r.launch.Profile != nil {
		unsample = sample(r.launch.Profile)
	}
	began := time.Now()
	err = runToEnd(c.Context(), x, func() error {
		bar.Set(int64(x.Stats().LaneOps))
		return out.Flush()
	})
	seconds := time.Since(began).Seconds()
	unsample()
	bar.Done()
	if flush := out.Flush(); err == nil {
		err = flush
	}
	fault := r.explain(&err)
	if err != nil && fault == nil {
		return err
	}
	if err == nil {
		err = r.writeFiles(c.ErrOrStderr())
	}
	if checker != nil && !f.asJSON {
		writeSummary(c.ErrOrStderr(), checker)
	}
	if f.asJSON {
		doc := r.document(x.Stats(), seconds, printed.String(), fault)
		doc.Defects = defectsJSON(*defects)
		if f.profile {
			doc.Profile = profileJSON(r.launch.Profile.Lines())
		}
		if f.disasm {
			doc.Code = codeJSON(x.Listings())
		}
		return errors.Join(printJSON(c, doc), err, f.status(checker))
	}
	if f.disasm {
		writeListings(c.ErrOrStderr(), r.function.Name, x.Listings())
	}
	if f.profile {
		writeProfile(c.ErrOrStderr(), r.function.Name, r.launch.Profile.Lines(), f.all)
	}
	if err != nil {
		return err
	}
	if err := r.writeBuffers(c.OutOrStdout(), c.ErrOrStderr(), f.all); err != nil {
		return err
	}
	ops := float64(x.Stats().LaneOps)
	fmt.Fprintf(c.ErrOrStderr(), "%s: %s lane operations in %.3g s\n", r.function.Name, report.Number(ops), seconds)
	return f.status(checker)
}

// slice is how many instructions of gangs a worker runs between two looks at
// the rest of the world: a tenth of a second, roughly.
const slice = 1 << 20

// runToEnd runs a kernel until it is done or interrupted, and calls pause now
// and then.
func runToEnd(ctx context.Context, x *simt.Execution, pause func() error) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, func() {
		stop() // a second Ctrl-C ends the program at once
		x.Stop()
	})
	for {
		err := x.RunFor(slice)
		if !errors.Is(err, simt.ErrStopped) {
			return err
		}
		if ctx.Err() != nil {
			return interruptedf("the kernel had not ended")
		}
		if err := pause(); err != nil {
			return err
		}
	}
}

// explain finds the fault in an error, and adds which buffer a bad address is
// near to.
func (r *kernelRun) explain(err *error) *simt.Fault {
	var fault *simt.Fault
	if !errors.As(*err, &fault) {
		return nil
	}
	if near := r.memory.describe(fault.Address); near != "" && fault.Kind == simt.IllegalAddress {
		*err = fmt.Errorf("%w; this is %s", *err, near)
	}
	return fault
}

// writeFiles writes the buffers that go to files.
func (r *kernelRun) writeFiles(stderr io.Writer) error {
	for i, a := range r.args {
		if a.file == "" {
			continue
		}
		if err := writeFile(a.file, func(w io.Writer) error { _, err := w.Write(r.buffers[i]); return err }); err != nil {
			return err
		}
		fmt.Fprintf(stderr, "%s: argument %d, %s\n", a.file, a.number, a.shape())
	}
	return nil
}

// shown is how many elements of a buffer are printed without --all.
const shown = 64

// writeBuffers prints the buffers that are asked for and go to no file.
func (r *kernelRun) writeBuffers(w, stderr io.Writer, all bool) error {
	b := bufio.NewWriter(w)
	for i, a := range r.args {
		if !a.wanted() || a.file != "" {
			continue
		}
		n := a.count
		if !all {
			n = min(n, shown)
		}
		fmt.Fprintf(b, "argument %d, %s:\n", a.number, a.shape())
		writeElements(b, a.typ, r.buffers[i], n)
		if more := a.count - n; more > 0 {
			defer fmt.Fprintf(stderr, "argument %d has %s more: --all prints them\n", a.number, report.Plural(more, "element"))
		}
	}
	return b.Flush()
}

// writeElements prints rows of elements, each with the place of its first.
func writeElements(w io.Writer, t ptx.Type, b []byte, n int) {
	const row = 8
	width := 0
	for i := range n {
		width = max(width, len(number.Format(t, number.Get(t, b, i))))
	}
	place := len(strconv.Itoa(max(0, n-1)))
	for i := range n {
		if i%row == 0 {
			fmt.Fprintf(w, "  %*d:", place, i)
		}
		fmt.Fprintf(w, " %*s", width, number.Format(t, number.Get(t, b, i)))
		if i%row == row-1 || i == n-1 {
			fmt.Fprintln(w)
		}
	}
}

// ptxRunJSON is the document of muster ptx run --json.
type ptxRunJSON struct {
	Kernel       string          `json:"kernel"`
	Grid         [3]uint32       `json:"grid"`
	Block        [3]uint32       `json:"block"`
	Shared       int             `json:"shared_bytes"`
	Workers      int             `json:"workers"`
	Instructions uint64          `json:"instructions"`
	LaneOps      uint64          `json:"lane_ops"`
	Seconds      float64         `json:"time_s"`
	Printed      string          `json:"printed"`
	Fault        *ptxFaultJSON   `json:"fault"`
	Buffers      []ptxBufferJSON `json:"buffers"`
	Defects      []ptxDefectJSON `json:"defects,omitempty"` // of --check

	Profile []ptxProfileJSON `json:"profile,omitempty"` // of --profile
	Code    [][]ptxCodeJSON  `json:"code,omitempty"`    // of --disasm: one list for each shape of blocks
}

type ptxFaultJSON struct {
	Kind        string    `json:"kind"`
	Message     string    `json:"message"`
	Block       [3]uint32 `json:"block"`
	Thread      [3]uint32 `json:"thread"`
	Address     uint64    `json:"address"`
	Line        int       `json:"line"`
	Instruction string    `json:"instruction"`
}

type ptxBufferJSON struct {
	Argument int               `json:"argument"`
	Mode     string            `json:"mode"`
	Type     string            `json:"type"`
	Count    int               `json:"count"`
	File     string            `json:"file"`
	Values   []json.RawMessage `json:"values"`
}

// document makes the JSON document of a run.
func (r *kernelRun) document(stats simt.Stats, seconds float64, printed string, fault *simt.Fault) ptxRunJSON {
	three := func(d simt.Dim) [3]uint32 { return [3]uint32{d.X, d.Y, d.Z} }
	doc := ptxRunJSON{
		Kernel: r.function.Name, Grid: three(r.launch.Grid), Block: three(r.launch.Block), Shared: r.launch.Shared, Workers: r.launch.Workers,
		Instructions: stats.Instructions, LaneOps: stats.LaneOps, Seconds: seconds, Printed: printed, Buffers: []ptxBufferJSON{},
	}
	if fault != nil {
		doc.Fault = &ptxFaultJSON{
			Kind: fault.Kind.String(), Message: fault.Error(), Block: three(fault.Block), Thread: three(fault.Thread),
			Address: fault.Address, Line: fault.Pos.Line, Instruction: fault.Line,
		}
		return doc
	}
	for i, a := range r.args {
		if !a.wanted() {
			continue
		}
		b := ptxBufferJSON{Argument: a.number, Mode: a.mode, Type: a.typ.String(), Count: a.count, File: a.file, Values: []json.RawMessage{}}
		for n := 0; n < a.count && a.file == ""; n++ {
			b.Values = append(b.Values, jsonNumber(a.typ, number.Get(a.typ, r.buffers[i], n)))
		}
		doc.Buffers = append(doc.Buffers, b)
	}
	return doc
}

// jsonNumber writes an element as JSON: as a string where JSON has no number
// for it.
func jsonNumber(t ptx.Type, bits uint64) json.RawMessage {
	text := number.Format(t, bits)
	if isBits(t) || strings.ContainsAny(text, "in") {
		text = strconv.Quote(text)
	}
	return json.RawMessage(text)
}
