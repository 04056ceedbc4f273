package lab

import (
	"context"
	"errors"
	"runtime"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	"muster/internal/screen"
	"muster/internal/wholefile"
	"muster/ptx/onekernel"
	"muster/ptx/simt"
	"muster/ptx/simt/heap"
	"muster/ptx/simt/memcheck"
	"muster/ptx/simt/shape"
	"muster/report"
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
	kernel               string
	launch               onekernel.LaunchWords
	args                 []string
	heap                 uint64
	check                string
	errorStatus          int
	all, asJSON, lowered bool
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
		Args: cli.OneArgument("one file with PTX, or -"),
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args[0]) },
	}
	c.Flags().StringVar(&f.kernel, "kernel", "", "the `name` of the kernel")
	c.Flags().StringVar(&f.launch.Grid, "grid", "", "how many blocks: `X[,Y[,Z]]`")
	c.Flags().StringVar(&f.launch.Block, "block", "", "how many threads a block: `X[,Y[,Z]]`")
	c.Flags().IntVar(&f.launch.Shared, "shared", 0, "dynamic shared memory of a block, in `bytes`")
	c.Flags().StringArrayVar(&f.args, "arg", nil, "the next `argument` of the kernel; may be given several times")
	c.Flags().BoolVar(&f.all, "all", false, "print all elements of buffers, and all lines of a profile")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print one JSON document")
	c.Flags().BoolVar(&f.launch.Cooperative, "cooperative", false, "run all blocks at the same time: they may wait for each other")
	c.Flags().IntVar(&f.launch.Stack, "stack", shape.DefaultStack, "`bytes` a thread has for recursive and indirect calls, a multiple of 16")
	c.Flags().Uint64Var(&f.heap, "heap", heap.DefaultSize, "`bytes` of memory that the kernel can allocate with malloc")
	c.Flags().StringVar(&f.launch.Engine, "engine", simt.Auto.String(), "what runs the kernel: interpret, compile, or auto for both; `name`")
	c.Flags().BoolVar(&f.launch.Profile, "profile", false, "say which lines of the PTX took the time (docs/debugging.md)")
	c.Flags().BoolVar(&f.lowered, "lowered", false, "print what the software GPU made of the PTX: its own instructions, registers and blocks (docs/debugging.md)")
	c.Flags().BoolVar(&f.launch.Disasm, "disasm", false, "print the machine code of the kernel beside the lines of the PTX (docs/debugging.md)")
	c.Flags().StringVar(&f.check, "check", "", "look for these `defects`: race, init and memory with commas between, or all (docs/debugging.md)")
	c.Flags().IntVar(&f.errorStatus, "error-exitcode", 1, "exit with this `status` if --check finds a defect; 0: as without --check")
	c.Flags().IntVar(&f.launch.Workers, "workers", runtime.NumCPU(), "processors to use; results of a kernel without races do not depend on it")
	return c
}

// run does the whole of muster ptx run.
func (f *ptxRunFlags) run(c *cobra.Command, path string) error {
	launch, err := f.launch.Launch()
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
	k, err := onekernel.Open(c.InOrStdin(), path, f.kernel)
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

// execute runs the kernel and gives out what came of it.
func (f *ptxRunFlags) execute(c *cobra.Command, k *onekernel.Kernel) error {
	checks, err := f.checks()
	if err != nil {
		return err
	}
	ctx, stop := cli.UntilSignal(c.Context())
	defer stop()
	run, err := k.Run(ctx, onekernel.Watch{
		Out: c.OutOrStdout(), Told: c.ErrOrStderr(), Gather: f.asJSON, Checks: checks, WriteFile: wholefile.Write,
		Bar: report.NewProgress(c.ErrOrStderr(), screen.IsTerminal(c.ErrOrStderr()), "lane operations", 0),
	})
	switch {
	case run == nil && errors.Is(err, context.Canceled):
		return cli.Interruptedf("the kernel had not ended")
	case run == nil:
		return err
	}
	show := onekernel.Show{All: f.all, Profile: f.launch.Profile, Lowered: f.lowered, Disasm: f.launch.Disasm}
	if f.asJSON {
		return errors.Join(cli.PrintJSON(c, run.Document(show)), err, f.status(run))
	}
	if shown := run.Write(c.OutOrStdout(), c.ErrOrStderr(), show); err == nil {
		err = shown
	}
	if err != nil {
		return err
	}
	return f.status(run)
}

// checks reads what --check asks for.
func (f *ptxRunFlags) checks() (memcheck.Checks, error) {
	if f.check == "" {
		return memcheck.Checks{}, nil
	}
	checks, err := memcheck.Parse(f.check)
	if err != nil {
		return checks, cli.UsageErrorf("--check: %v", err)
	}
	if f.errorStatus < 0 || f.errorStatus > 255 {
		return checks, cli.UsageErrorf("--error-exitcode %d: give a number from 0 to 255", f.errorStatus)
	}
	return checks, nil
}

// status is how the command ends after a check.
func (f *ptxRunFlags) status(run *onekernel.Run) error {
	if f.errorStatus == 0 || !run.Defective() {
		return nil
	}
	return cli.ExitStatus(f.errorStatus)
}
