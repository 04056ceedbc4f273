package programs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"muster/cmd/muster/cli"
	"muster/internal/passthrough"
	"muster/internal/wholefile"
	"muster/node/trace"
	"muster/wire/timeline"
)

const traceHelp = `Run a program as muster run does, and show where its time went: its calls of CUDA and
what they waited for, copies and kernels as the device ran them, swaps, moves and waits
for a device, and when others had it. The timeline is written to a file that
https://ui.perfetto.dev and chrome://tracing open in the browser, without uploading it.
The five costliest things are printed as sentences, with what to do about them.

Processes that the program starts on this machine are in the same timeline. It is written
however the program ends. Names of programs of other users are not shown.

--limit says how many calls of a process are kept, and how much of what the node did; of
more, the first and the last half are, and what was left out is said. Sums count all of
them. docs/trace.md explains what is seen, and what tracing costs.

All flags of muster run are understood, and mean the same.`

// traceFlags are those of muster trace that muster run does not have.
type traceFlags struct {
	run    runFlags
	output string
	limit  int
}

// defaultTrace is where the timeline goes.
const defaultTrace = "muster-trace.json"

func NewTrace() *cobra.Command {
	var f traceFlags
	c := &cobra.Command{
		Use:   "trace [-o FILE] [--limit N] [FLAGS OF muster run] [--] PROGRAM [ARGUMENT...]",
		Short: "Run a program and show where its time went",
		Long:  traceHelp,
		Example: `  muster trace -- ./vectoradd 1000000
  muster trace -o train.json -- python3 train.py
  muster trace --node gpu1.example.org --tls-dir ~/certs/user-alice -- ./vectoradd`,
		Args: namesProgram,
		RunE: func(c *cobra.Command, args []string) error { return f.trace(c, args) },
	}
	f.run.add(c)
	c.Flags().StringVarP(&f.output, "output", "o", defaultTrace, "write the timeline to this `file`")
	c.Flags().IntVar(&f.limit, "limit", 200_000, "keep at most this `number` of calls of a process, and as much of what the node did")
	return c
}

// maxTraceLimit is the most records that a process may have: 4 GiB of them.
const maxTraceLimit = 1 << 26

func (f *traceFlags) trace(c *cobra.Command, args []string) error {
	if f.limit < 1 || f.limit > maxTraceLimit {
		return cli.UsageErrorf("--limit %d: give a number from 1 to %d", f.limit, maxTraceLimit)
	}
	out, err := os.Create(f.output)
	if err != nil {
		return wholefile.CannotWrite(f.output, err)
	}
	defer out.Close()
	folder, err := os.MkdirTemp("", "muster-trace-")
	if err != nil {
		return fmt.Errorf("a folder for records: %w", err)
	}
	defer os.RemoveAll(folder)
	if folder, err = filepath.Abs(folder); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	environment := passthrough.Set(os.Environ(), "MUSTER_TIMELINE", folder)
	environment = passthrough.Set(environment, "MUSTER_TIMELINE_RECORDS", strconv.Itoa(f.limit))
	state, err := passthrough.Run(self, append(f.runArguments(c), args...), environment)
	if err == nil {
		err = f.show(c, out, folder, state.Success())
	}
	if err != nil {
		fmt.Fprintf(c.ErrOrStderr(), "%s: %v\n", c.CommandPath(), err)
		if state == nil || state.Success() {
			return cli.ExitStatus(1)
		}
	}
	os.RemoveAll(folder) // a program that was killed by a signal has us end likewise, at once
	return cli.ExitAs(c, state, nil)
}

// runArguments are those of muster run that does the same without a trace.
func (f *traceFlags) runArguments(c *cobra.Command) []string {
	arguments := []string{"muster", "run"}
	c.Flags().Visit(func(flag *pflag.Flag) {
		if flag.Name != "output" && flag.Name != "limit" {
			arguments = append(arguments, "--"+flag.Name+"="+flag.Value.String())
		}
	})
	return append(arguments, "--")
}

// show writes the timeline, and says what it shows. A program that failed before it called
// CUDA, or was never started, has said why itself.
func (f *traceFlags) show(c *cobra.Command, out *os.File, folder string, success bool) error {
	recorded, err := timeline.ReadFolder(folder)
	if err != nil {
		return err
	}
	t := trace.New(recorded.Files, recorded.Skipped)
	t.AddElements(recorded.Elements)
	err = t.WritePerfetto(out)
	if err == nil {
		if err = out.Sync(); errors.Is(err, syscall.EINVAL) { // a pipe cannot be synced
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("the timeline cannot be written: %w", err)
	}
	if len(t.Processes) > 0 || len(t.Elements) > 0 || success {
		t.Write(c.ErrOrStderr(), f.output)
	}
	return nil
}
