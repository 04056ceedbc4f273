package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"muster/head/api"
	headclient "muster/head/client"
	"muster/internal/passthrough"
	"muster/model"
	"muster/model/slurmopt"
	"muster/report/jobtable"
	"muster/report/screen"
)

const submitHelp = `Submit a job to the cluster, as sbatch does. A script is read now and run once, on the
first of the job's nodes, with its arguments; its lines that start with #MUSTER or
#SBATCH have options, too. Where the same option is given more than once, the command
line wins, then #MUSTER, then #SBATCH. Without a script, or with -, the script is read
from standard input. Behind -- stands a command instead: all of the job's processes run
it.

What the job asks for:
  -N, --nodes=4                 nodes
  -n, --ntasks=16               processes, anywhere unless -N says on how many nodes
      --ntasks-per-node=8       processes on each node
  -c, --cpus-per-task=6         cores for each process
      --mem=4G, --mem-per-cpu=2G   memory on each node, or for each core
      --gres=gpu:2              GPUs of each node, in the node itself
      --gres=gpu:k20:2          of a type
      --gres=gpu:2:4G           4 GiB of each of them, which others share
      --gres=rgpu:4             GPUs for the job, of any node: the others are borrowed
      --gres=rgpu:4:1G          1 GiB of each of four GPUs, which others share
  -G, --gpus, --gpus-per-node, --gpus-per-task   GPUs in other words
      --or='-n 64 -t 2:00:00'   another request that would do; may be repeated
  -t, --time=1:30:00            time limit: minutes, hours:minutes:seconds, days-hours
  -w, --nodelist=n[1-4]; -x, --exclude=n3; --exclusive; --contiguous

When and how it runs:
  -J, --job-name; -p, --partition; -A, --account; -q, --qos; --comment
  -o, --output=out-%j.txt; -e, --error; -i, --input; --open-mode=append|truncate
  -D, --chdir=DIR               where it runs (default: here)
      --export=ALL|NONE|A,B=c   which variables it gets (default: all of yours)
  -a, --array=1-10:2%4          many tasks of one script, at most 4 at a time
  -d, --dependency=afterok:17   also after, afterany, afternotok, aftercorr, singleton; all of a,b or any of a?b
  -b, --begin=now+1hour         not before: 16:00, tomorrow, 2026-11-30T16:00
      --deadline=2026-11-30     it must have ended by then
      --reservation=NAME        on the nodes of a window of the head's, while it lasts
  -H, --hold                    it waits for muster release
      --nice=100; --priority=N (administrators)
      --requeue                 it may be started anew when its node fails
      --signal=B:USR1@60        a signal so many seconds before the time limit

How it is submitted:
      --parsable                print the number alone
      --json                    print the head's answer
  -W, --wait                    wait for its end, and exit as it did
      --test-only               check the options and submit nothing
      --wrap='COMMAND LINE'     make a script of this
  -Q, --quiet

Options of sbatch without effect here are named in a note; those that would change what
a job gets and are not supported are refused.`

func newSubmit() *cobra.Command {
	return &cobra.Command{
		Use:   "submit [OPTION...] [SCRIPT [ARGUMENT...] | -- COMMAND [ARGUMENT...]]",
		Short: "Submit a job to the cluster",
		Long:  submitHelp + askHelp,
		Example: `  muster submit -n 4 --gres=rgpu:4:2G -t 30 train.sh
  muster submit -N 2 --gpus-per-node=1 -- ./simulate --steps 1000
  muster submit -a 1-100%10 -o out-%A_%a.txt task.sh
  muster submit -d afterok:$(muster submit --parsable prepare.sh) train.sh
  muster submit --wait --wrap 'make -j8'`,
		// The options are Slurm's, with its rules of writing them.
		DisableFlagParsing: true,
		Args:               cobra.ArbitraryArgs,
		RunE:               func(c *cobra.Command, args []string) error { return submit(c, args) },
	}
}

func submit(c *cobra.Command, args []string) error {
	argv := append([]string{slurmopt.Submit}, args...)
	o, err := slurmopt.Parse(argv)
	if err != nil {
		return usageErrorf("%v", err)
	}
	if o.Client.Help {
		return c.Help()
	}
	s, o, err := readSubmission(c, argv, o)
	if err != nil {
		return err
	}
	if !o.Client.Quiet {
		printNotes(c, o.Notes)
	}
	if o.Client.TestOnly {
		if !o.Client.Quiet {
			fmt.Fprintln(c.ErrOrStderr(), "The options are good. When the job would start is not known before it is submitted.")
		}
		return nil
	}
	flags := askFlags{head: o.Client.Head, tlsDir: o.Client.TLSDir}
	h, err := flags.open()
	if err != nil {
		return err
	}
	answer, err := h.Submit(c.Context(), s)
	if err != nil {
		return err
	}
	if !o.Client.Quiet {
		printNotes(c, slices.DeleteFunc(answer.Notes, func(n string) bool { return slices.Contains(o.Notes, n) }))
	}
	switch {
	case o.Client.JSON:
		if err := printJSON(c, answer); err != nil {
			return err
		}
	case o.Client.Parsable:
		fmt.Fprintln(c.OutOrStdout(), answer.Job)
	case !o.Client.Quiet:
		fmt.Fprintln(c.OutOrStdout(), "Submitted batch job", answer.Job)
	}
	if !o.Client.Wait {
		return nil
	}
	return waitForEnd(c, h, answer.Job)
}

func printNotes(c *cobra.Command, notes []string) {
	for _, n := range notes {
		fmt.Fprintf(c.ErrOrStderr(), "muster: note: %s\n", n)
	}
}

// readSubmission makes a submission of a command line, and of the script that it names.
func readSubmission(c *cobra.Command, argv []string, o *slurmopt.Options) (*api.Submission, *slurmopt.Options, error) {
	s := &api.Submission{Key: rand.Text()}
	name := ""
	switch {
	case o.Client.Wrap:
		s.Script, name = "#!/bin/sh\n"+o.Command[2]+"\n", "wrap"
	case o.Client.Program:
		s.Arguments, name = o.Command, filepath.Base(o.Command[0])
	default:
		file := "-"
		if len(o.Command) > 0 {
			file, s.Arguments = o.Command[0], o.Command[1:]
		}
		script, called, err := readScript(c.InOrStdin(), file)
		if err != nil {
			return nil, nil, err
		}
		if o, err = slurmopt.ParseScript(script, argv); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", called, err)
		}
		s.Script, name = script, called
	}
	words, err := slurmopt.JobWords(argv)
	if err != nil {
		return nil, nil, err
	}
	if s.Directory, err = filepath.Abs(o.Batch.Directory); err != nil {
		return nil, nil, fmt.Errorf("asking where this is (give --chdir): %w", err)
	}
	s.Options = withUserView(words, o, name, s.Directory)
	s.Environment = exported(environmentOf(&o.Client), o.Batch.Export)
	return s, o, nil
}

// environmentOf is this command's environment, in which the head that was named on the
// command line is named too: commands inside the job ask the same.
func environmentOf(c *slurmopt.Client) []string {
	environment := os.Environ()
	if c.Head != "" {
		environment = passthrough.Set(environment, "MUSTER_HEAD", c.Head)
	}
	if dir, err := filepath.Abs(c.TLSDir); c.TLSDir != "" && err == nil {
		environment = passthrough.Set(environment, "MUSTER_TLS_DIR", dir)
	}
	return environment
}

// withUserView adds what only this machine knows: the script's name, its folder, and
// what times mean here and now.
func withUserView(words []string, o *slurmopt.Options, name, directory string) []string {
	say := func(option, value string) {
		words = slices.DeleteFunc(words, func(w string) bool { return strings.HasPrefix(w, option+"=") })
		words = append(words, option+"="+value)
	}
	if o.Name == "" {
		say("--job-name", name)
	}
	if o.Batch.Directory != "" {
		say("--chdir", directory)
	}
	now := time.Now()
	for _, m := range []struct {
		option string
		moment *slurmopt.Moment
	}{{"--begin", &o.Batch.Begin}, {"--deadline", &o.Batch.Deadline}} {
		if m.moment.Set {
			wait := m.moment.Time(now).Sub(now).Round(time.Second)
			say(m.option, fmt.Sprintf("now+%d", max(0, int64(wait/time.Second))))
		}
	}
	return words
}

// readScript reads a script, from standard input if it is -, and says how the job is
// called. As with sbatch, one that is not here is looked for where programs are.
func readScript(stdin io.Reader, file string) (script, name string, err error) {
	if file == "-" {
		if f, ok := stdin.(*os.File); ok && screen.IsTerminal(f) {
			return "", "", usageErrorf("name a script, or put a command behind --")
		}
		text, err := io.ReadAll(io.LimitReader(stdin, api.MaxSubmission+1))
		if err != nil {
			return "", "", fmt.Errorf("reading the script from standard input: %w", err)
		}
		return checkScript(text, "stdin")
	}
	f, err := os.Open(file)
	if errors.Is(err, os.ErrNotExist) && !strings.Contains(file, "/") {
		if path, lost := exec.LookPath(file); lost == nil {
			f, err = os.Open(path)
		}
	}
	if err != nil {
		return "", "", err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && !info.Mode().IsRegular() {
		return "", "", fmt.Errorf("%s is no file: name a script, or put a command behind --", file)
	}
	text, err := io.ReadAll(io.LimitReader(f, api.MaxSubmission+1))
	if err != nil {
		return "", "", err
	}
	return checkScript(text, filepath.Base(file))
}

func checkScript(text []byte, name string) (string, string, error) {
	script := string(text)
	first, _, _ := strings.Cut(script, "\n")
	switch {
	case len(text) > api.MaxSubmission:
		return "", "", fmt.Errorf("%s is larger than a job may be (%s): put its data into files", name, model.BriefSize(api.MaxSubmission))
	case len(text) == 0:
		return "", "", fmt.Errorf("%s is empty: a script starts with #! and what runs it, such as #!/bin/sh", name)
	case !strings.HasPrefix(script, "#!"):
		return "", "", fmt.Errorf("%s: a script starts with #! and what runs it, such as #!/bin/sh; put a program and its arguments behind --", name)
	case strings.HasSuffix(first, "\r"):
		return "", "", fmt.Errorf("%s has the line ends of DOS (\\r\\n), which shells do not understand: convert it with dos2unix", name)
	case strings.IndexByte(script, 0) >= 0:
		return "", "", fmt.Errorf("%s has a zero byte: is it a program? put that behind --", name)
	}
	return script, name, nil
}

// exported are the variables that a job gets.
func exported(environment, export []string) []string {
	if export == nil {
		return environment
	}
	if len(export) == 1 && export[0] == "NONE" {
		return nil
	}
	var chosen []string
	if slices.Contains(export, "ALL") {
		chosen = slices.Clone(environment)
	}
	for _, item := range export {
		name, value, assigned := strings.Cut(item, "=")
		if !assigned {
			at := slices.IndexFunc(environment, func(s string) bool { return strings.HasPrefix(s, name+"=") })
			if at < 0 {
				continue // as with sbatch, one that is not set is not exported
			}
			value = environment[at][len(name)+1:]
		}
		chosen = passthrough.Set(chosen, name, value)
	}
	return chosen
}

// waitForEnd waits for a job, or for all tasks of an array, and exits as it did: of
// several with the highest status.
func waitForEnd(c *cobra.Command, h *headclient.Head, job uint64) error {
	jobs, err := h.AwaitEnd(c.Context(), strconv.FormatUint(job, 10))
	if err != nil {
		return err
	}
	worst := 0
	for i := range jobs {
		status := statusOf(&jobs[i])
		worst = max(worst, status)
		if status != 0 && jobs[i].Why != "" {
			fmt.Fprintf(c.ErrOrStderr(), "muster: job %s: %s: %s\n", jobtable.Name(&jobs[i]), jobs[i].State, jobs[i].Why)
		}
	}
	if worst > 0 {
		return exitStatus(worst)
	}
	return nil
}

func headGone(err error) bool { return errors.Is(err, headclient.ErrUnreachable) }

// statusOf is the exit status that tells how a job ended, as a shell does.
func statusOf(j *api.Job) int {
	switch {
	case j.Signal > 0:
		return 128 + j.Signal
	case j.ExitCode != 0:
		return j.ExitCode
	case j.State != api.Completed:
		return 1
	}
	return 0
}
