package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"muster/device/codefile"
	"muster/device/onekernel"
	"muster/internal/wholefile"
	"muster/ptx/simt"
	"muster/report"
	"muster/report/screen"
)

const ptxRunHelp = `Run one kernel on the software GPU and print what it computed.

FILE is PTX text, a fat binary, or a program that holds one; - is standard input.
--kernel may be left out where there is one kernel, and may be the name without
what C++ adds to it. Of several PTX texts in a fat binary, the one for the newest
GPU that the software GPU can run is taken.

` + onekernel.ArgumentHelp + `

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
each ran (the hottest 20, or all with --all); --lowered which instructions the software
GPU made of them, with its registers, blocks and the places where threads that have parted
meet; --disasm which machine code these were compiled to.

--json prints one document instead: what ran, the counts, what was printed and
the buffers with all their elements. Numbers that JSON has no form for are the
strings "nan", "inf" and "-inf"; elements of b types are strings, too.`

// ptxRunFlags are the flags of muster ptx run.
type ptxRunFlags struct {
	kernel, grid, block string
	shared, stack       int
	args                []string
	heap                uint64
	cooperative         bool
	workers             int
	engine              string
	check               string
	errorStatus         int
	all, asJSON         bool
	disasm, profile     bool
	lowered             bool
}

func newPtxRun() *cobra.Command {
	var f ptxRunFlags
	c := &cobra.Command{
		Use: `run FILE [--kernel NAME] --grid X[,Y[,Z]] --block X[,Y[,Z]] [--shared BYTES] [--arg ARGUMENT]...
                     [--check race,init,memory] [--profile] [--disasm] [--all] [--json]`,
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
	c.Flags().BoolVar(&f.all, "all", false, "print all elements of buffers, and all lines of a profile")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print one JSON document")
	c.Flags().BoolVar(&f.cooperative, "cooperative", false, "run all blocks at the same time: they may wait for each other")
	c.Flags().IntVar(&f.stack, "stack", simt.DefaultStack, "`bytes` a thread has for recursive and indirect calls, a multiple of 16")
	c.Flags().Uint64Var(&f.heap, "heap", simt.DefaultHeap, "`bytes` of memory that the kernel can allocate with malloc")
	c.Flags().StringVar(&f.engine, "engine", simt.Auto.String(), "what runs the kernel: interpret, compile, or auto for both; `name`")
	c.Flags().BoolVar(&f.profile, "profile", false, "say which lines of the PTX took the time (docs/debugging.md)")
	c.Flags().BoolVar(&f.lowered, "lowered", false, "print what the software GPU made of the PTX: its own instructions, registers and blocks (docs/debugging.md)")
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
	args, err := onekernel.ParseArguments(f.args)
	if err != nil {
		return err
	}
	for _, a := range args {
		if err := checkFolder(a.File()); err != nil {
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
	name, err := onekernel.Find(path, modules, f.kernel)
	if err != nil {
		return err
	}
	k, err := onekernel.Load(modules, name)
	if err != nil {
		return err
	}
	defer k.Release() // the process ends anyway
	k.Launch, k.Heap = launch, f.heap
	if err := k.Prepare(args); err != nil {
		return err
	}
	return f.execute(c, k)
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

// execute runs the kernel and gives out what came of it.
func (f *ptxRunFlags) execute(c *cobra.Command, k *onekernel.Kernel) error {
	bar := report.NewProgress(c.ErrOrStderr(), screen.IsTerminal(c.ErrOrStderr()), "lane operations", 0)
	var printed strings.Builder
	out := bufio.NewWriter(c.OutOrStdout())
	k.Launch.Print = func(text []byte) {
		if f.asJSON {
			printed.Write(text)
			return
		}
		bar.Done()      // two would write to one terminal
		out.Write(text) // its error is told by Flush
	}
	checker, defects, err := f.checker(c, k, bar.Done)
	if err != nil {
		return err
	}
	k.Launch.Check = checker
	x, err := k.Start()
	if err != nil {
		return err
	}
	unsample := func() {}
	if k.Launch.Profile != nil {
		unsample = onekernel.Sample(k.Launch.Profile)
	}
	began := time.Now()
	err = untilInterrupted(c.Context(), x, func() error {
		bar.Set(int64(x.Stats().LaneOps))
		return out.Flush()
	})
	seconds := time.Since(began).Seconds()
	unsample()
	bar.Done()
	if flush := out.Flush(); err == nil {
		err = flush
	}
	fault := k.Explain(&err)
	if err != nil && fault == nil {
		return err
	}
	if err == nil {
		err = k.WriteFiles(c.ErrOrStderr(), wholefile.Write)
	}
	if checker != nil && !f.asJSON {
		onekernel.WriteSummary(c.ErrOrStderr(), checker)
	}
	if f.asJSON {
		doc := k.Document(x.Stats(), seconds, printed.String(), fault)
		doc.SetDefects(*defects)
		if f.profile {
			doc.SetProfile(k.Launch.Profile.Lines())
		}
		if f.lowered {
			doc.SetLowered(k.Lowered())
		}
		if f.disasm {
			doc.SetCode(x.Listings())
		}
		return errors.Join(printJSON(c, doc), err, f.status(checker))
	}
	if f.lowered {
		fmt.Fprint(c.ErrOrStderr(), k.Lowered())
	}
	if f.disasm {
		onekernel.WriteListings(c.ErrOrStderr(), k.Name(), x.Listings())
	}
	if f.profile {
		onekernel.WriteProfile(c.ErrOrStderr(), k.Name(), k.Launch.Profile.Lines(), f.all)
	}
	if err != nil {
		return err
	}
	if err := k.WriteBuffers(c.OutOrStdout(), c.ErrOrStderr(), f.all); err != nil {
		return err
	}
	ops := float64(x.Stats().LaneOps)
	fmt.Fprintf(c.ErrOrStderr(), "%s: %s lane operations in %.3g s\n", k.Name(), report.Number(ops), seconds)
	return f.status(checker)
}

// untilInterrupted runs a kernel to its end, or until Ctrl-C.
func untilInterrupted(ctx context.Context, x *simt.Execution, pause func() error) error {
	ctx, stop := untilSignal(ctx)
	defer stop()
	err := onekernel.RunToEnd(ctx, x, pause)
	if err != nil && errors.Is(err, ctx.Err()) {
		return interruptedf("the kernel had not ended")
	}
	return err
}

// checker makes the checker that --check asks for; nil if none is wanted. What it finds is told as it
// comes, after quiet has been called, and gathered.
func (f *ptxRunFlags) checker(c *cobra.Command, k *onekernel.Kernel, quiet func()) (*simt.Checker, *[]*simt.Defect, error) {
	found := new([]*simt.Defect)
	if f.check == "" {
		return nil, found, nil
	}
	checks, err := simt.ParseChecks(f.check)
	if err != nil {
		return nil, nil, usageErrorf("--check: %v", err)
	}
	if f.errorStatus < 0 || f.errorStatus > 255 {
		return nil, nil, usageErrorf("--error-exitcode %d: give a number from 0 to 255", f.errorStatus)
	}
	return k.Checker(checks, func(d *simt.Defect) {
		*found = append(*found, d)
		if !f.asJSON {
			quiet()
			onekernel.WriteDefect(c.ErrOrStderr(), d)
		}
	}), found, nil
}

// status is how the command ends after a check.
func (f *ptxRunFlags) status(c *simt.Checker) error {
	if c == nil || f.errorStatus == 0 || c.Found() == 0 {
		return nil
	}
	return exitStatus(f.errorStatus)
}
