package main

import (
	"bytes"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	"muster/cmd/muster/programs"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"muster": main, "muster-rsh": main})
}

func TestScripts(t *testing.T) {
	// Shells start background commands with SIGINT ignored, and no shell below them could trap it. A
	// signal that this process handles is not ignored by those that it starts.
	if signal.Ignored(syscall.SIGINT) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGINT)
	}
	folders := map[string]string{}
	for name, path := range map[string]string{
		"SAMPLES": "../../workload/testdata", "KERNELS": "../../ptx/testdata/kernels", "FATBINS": "../../ptx/fatbin/testdata",
	} {
		full, err := filepath.Abs(path)
		if err != nil {
			t.Fatal(err)
		}
		folders[name] = full
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			for name, path := range folders {
				env.Setenv(name, path)
			}
			return scriptSetup(env)
		},
	})
}

// scriptSetup prepares for a script what all of them need.
func scriptSetup(env *testscript.Env) error {
	// Under the race detector each command would end a second later, for goroutines that may still race.
	env.Setenv("GORACE", "halt_on_error=1 atexit_sleep_ms=0")
	env.Defer(func() { endSupervisors(env.WorkDir) })
	return startFakeHead(env)
}

// Every command must be good enough to work from: a line, a text and an example.
func TestEveryCommandHasHelp(t *testing.T) {
	root := newRoot(&bytes.Buffer{}, &bytes.Buffer{}, func(string) string { return "" })
	cli.EachCommand(root, func(c *cobra.Command) {
		if c.Short == "" || c.Long == "" || c.Example == "" {
			t.Errorf("%s: needs Short, Long and Example", c.CommandPath())
		}
		if !c.HasSubCommands() && c.RunE == nil {
			t.Errorf("%s: needs RunE, so that failure and wrong usage can be told apart", c.CommandPath())
		}
	})
}

func TestVariable(t *testing.T) {
	sim := &cobra.Command{Use: "sim"}
	root := &cobra.Command{Use: "muster"}
	root.AddCommand(sim)
	if got := cli.Variable(sim, "jobs-csv"); got != "MUSTER_SIM_JOBS_CSV" {
		t.Errorf("got %s", got)
	}
}

// Variables that stand for no flag are found, those of sub-commands are known.
func TestUnknownVariables(t *testing.T) {
	got := cli.UnknownVariables(programs.NewNode(), []string{"NODE_VGPUS=8", "NODE_VGPU=8", "NODE_COLOUR=red", "NODE_REPLAY_JSON=true", "NODELIST=a", "MUSTER_NODE_X=1"})
	if want := []string{"NODE_VGPU (did you mean NODE_VGPUS?)", "NODE_COLOUR"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// What the exit status is does not depend on which command fails, so it is
// tested on one that does nothing else.
func TestExitStatus(t *testing.T) {
	var seeds int
	defer func(before []func() *cobra.Command) { hidden = before }(hidden)
	hidden = append(hidden, func() *cobra.Command {
		c := &cobra.Command{Use: "try", RunE: func(_ *cobra.Command, args []string) error {
			switch seeds {
			case 1:
				return errors.New("it broke")
			case 2:
				return cli.UsageErrorf("2 is no good")
			}
			return nil
		}}
		c.Flags().IntVar(&seeds, "seeds", 0, "")
		c.Flags().String("need", "", "")
		if err := c.MarkFlagRequired("need"); err != nil {
			t.Fatal(err)
		}
		return c
	})
	const see = "muster try --help says how it is used\n"
	for _, c := range []struct {
		args, env string
		status    int
		stderr    string
	}{
		{"try --need x", "", cli.ExitDone, ""},
		{"try --need x --seeds 1", "", cli.ExitFailed, "muster try: it broke\n"},
		{"try --need x --seeds 2", "", cli.ExitUsage, "muster try: 2 is no good\n" + see},
		{"try", "", cli.ExitUsage, "muster try: required flag(s) \"need\" not set\n" + see},
		{"try --seeds 1", "MUSTER_TRY_NEED=x", cli.ExitFailed, "muster try: it broke\n"},
		{"try --need x", "MUSTER_TRY_SEEDS=1", cli.ExitFailed, "muster try: it broke\n"},
		{"try --need x --seeds 0", "MUSTER_TRY_SEEDS=1", cli.ExitDone, ""},
		{"try --need x", "MUSTER_TRY_SEEDS=many", cli.ExitUsage,
			"muster try: the environment variable MUSTER_TRY_SEEDS is \"many\": give a whole number\n" + see},
		{"try --need x --seeds many", "", cli.ExitUsage, "muster try: --seeds \"many\": give a whole number\n" + see},
		{"try --need x --sead 1", "", cli.ExitUsage, "muster try: there is no flag --sead: did you mean --seeds?\n" + see},
		{"try --colour", "", cli.ExitUsage, "muster try: there is no flag --colour\n" + see},
		{"try --need", "", cli.ExitUsage, "muster try: flag needs an argument: --need\n" + see},
		{"sbatch job.sh", "", cli.ExitUsage, "muster: there is no command \"sbatch\": what it does in Slurm is done by muster submit\nmuster --help says how it is used\n"},
		{"try -z", "", cli.ExitUsage, "muster try: there is no flag -z\n" + see},
		{"try more", "", cli.ExitUsage, "muster try: \"more\" is one argument too many: it takes flags only\n" + see},
	} {
		seeds = 0
		var stdout, stderr bytes.Buffer
		env := func(name string) string {
			key, value, _ := strings.Cut(c.env, "=")
			if name == key {
				return value
			}
			return ""
		}
		if status := run(strings.Fields(c.args), strings.NewReader(""), &stdout, &stderr, env); status != c.status || stderr.String() != c.stderr || stdout.Len() > 0 {
			t.Errorf("%s muster %s: status %d, stdout %q, stderr %q\nwant %d, %q", c.env, c.args, status, &stdout, &stderr, c.status, c.stderr)
		}
	}
}
