package client

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"muster/internal/passthrough"
	"muster/internal/units"
	"muster/mapping"
	"muster/model/slurmopt"
	"muster/wire/api"
)

// Submitter is where a job is submitted from, as far as the job depends on it.
type Submitter struct {
	// Stdin has the script if the command line names none; nil if it has none, as a terminal.
	Stdin       io.Reader
	Environment []string
	Now         time.Time
}

// ErrNoScript is that a command line has neither a script nor a command.
var ErrNoScript = errors.New("name a script, or put a command behind --")

// Submission makes a submission of a command line in Slurm's words, and of the script that it names.
// o and words are what the command line alone says (slurmopt.ParseCommand); the options that are returned
// have those of the script too.
func (f Submitter) Submission(argv []string, o *slurmopt.Options, words []string) (*api.Submission, *slurmopt.Options, error) {
	s := &api.Submission{Key: rand.Text()}
	name, err := "", error(nil)
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
		script, called, err := f.script(file)
		if err != nil {
			return nil, nil, err
		}
		if o, err = slurmopt.ParseScript(script, argv); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", called, err)
		}
		s.Script, name = script, called
	}
	if o.GPU.Mapping != "" {
		if err := mapping.CheckSetting(o.GPU.Mapping); err != nil {
			return nil, nil, fmt.Errorf("--mapping: %w", err)
		}
	}
	if s.Directory, err = filepath.Abs(o.Batch.Directory); err != nil {
		return nil, nil, fmt.Errorf("asking where this is (give --chdir): %w", err)
	}
	s.Options = f.withView(words, o, name, s.Directory)
	s.Environment = exported(f.environment(&o.Client), o.Batch.Export)
	return s, o, checkEncoding(s)
}

// Allocation makes the submission of an allocation, for a command of which the head is told the name.
func (f Submitter) Allocation(argv []string, o *slurmopt.Options, words []string) (*api.Submission, error) {
	program := *o
	if program.Client.Program = true; len(o.Command) == 0 {
		program.Command = []string{"interactive"} // its name is salloc's
	}
	s, _, err := f.Submission(argv, &program, words)
	if err != nil {
		return nil, err
	}
	s.Allocation, s.Arguments = true, o.Command
	return s, nil
}

// checkEncoding refuses what JSON would alter on its way to the head.
func checkEncoding(s *api.Submission) error {
	for _, v := range s.Environment {
		if name, _, _ := strings.Cut(v, "="); !utf8.ValidString(v) {
			return fmt.Errorf("the variable %s is not valid UTF-8: unset it, or name those that the job needs with --export", strings.ToValidUTF8(name, "?"))
		}
	}
	for _, part := range []struct {
		name  string
		texts []string
	}{{"script", []string{s.Script}}, {"options", s.Options}, {"directory", []string{s.Directory}}, {"command", s.Arguments}} {
		if slices.ContainsFunc(part.texts, func(text string) bool { return !utf8.ValidString(text) }) {
			return fmt.Errorf("the job's %s: this is not valid UTF-8: convert it with iconv", part.name)
		}
	}
	return nil
}

// environment is the submitter's environment. It names the head that was named on the command line,
// so that commands inside the job ask the same head.
func (f Submitter) environment(c *slurmopt.Client) []string {
	environment := f.Environment
	if c.Head != "" {
		environment = passthrough.Set(environment, "MUSTER_HEAD", c.Head)
	}
	if dir, err := filepath.Abs(c.TLSDir); c.TLSDir != "" && err == nil {
		environment = passthrough.Set(environment, "MUSTER_TLS_DIR", dir)
	}
	return environment
}

// withView adds what only the submitter's machine knows: the script's name, its folder, and what
// times mean here and now.
func (f Submitter) withView(words []string, o *slurmopt.Options, name, directory string) []string {
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
	for _, m := range []struct {
		option string
		moment *slurmopt.Moment
	}{{"--begin", &o.Batch.Begin}, {"--deadline", &o.Batch.Deadline}} {
		if m.moment.Set {
			wait := m.moment.Time(f.Now).Sub(f.Now).Round(time.Second)
			say(m.option, fmt.Sprintf("now+%d", max(0, int64(wait/time.Second))))
		}
	}
	return words
}

// script reads a script, from standard input if it is -, and says how the job is called. As with
// sbatch, one that is not here is looked for where programs are.
func (f Submitter) script(file string) (script, name string, err error) {
	if file == "-" {
		if f.Stdin == nil {
			return "", "", ErrNoScript
		}
		text, err := io.ReadAll(io.LimitReader(f.Stdin, api.MaxSubmission+1))
		if err != nil {
			return "", "", fmt.Errorf("reading the script from standard input: %w", err)
		}
		return checkScript(text, "stdin")
	}
	opened, err := os.Open(file)
	if errors.Is(err, os.ErrNotExist) && !strings.Contains(file, "/") {
		if path, lost := exec.LookPath(file); lost == nil {
			opened, err = os.Open(path)
		}
	}
	if err != nil {
		return "", "", err
	}
	defer opened.Close()
	if info, err := opened.Stat(); err == nil && !info.Mode().IsRegular() {
		return "", "", fmt.Errorf("%s is no file: %w", file, ErrNoScript)
	}
	text, err := io.ReadAll(io.LimitReader(opened, api.MaxSubmission+1))
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
		return "", "", fmt.Errorf("%s is larger than a job may be (%s): put its data into files", name, units.BriefSize(api.MaxSubmission))
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
