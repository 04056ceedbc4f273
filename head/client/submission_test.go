package client

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/model/slurmopt"
	"muster/wire/api"
)

func submission(t *testing.T, f Submitter, words ...string) (*api.Submission, error) {
	t.Helper()
	argv := append([]string{slurmopt.Submit}, words...)
	o, words, err := slurmopt.ParseCommand(argv)
	if err != nil {
		t.Fatal(err)
	}
	s, _, err := f.Submission(argv, o, words)
	return s, err
}

// A submission has what only the submitter's machine knows: the script, its name, where it is, and
// what times mean.
func TestSubmission(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "train.sh")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n#SBATCH -n 4\necho\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	from := Submitter{Environment: []string{"A=1", "B=2"}, Now: time.Date(2026, 11, 17, 15, 0, 0, 0, time.UTC)}
	s, err := submission(t, from, "--begin=now+1hour", "--chdir="+dir, "--head=unix:@there", "--export=B,C=3,D", script, "fast")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"--job-name=train.sh", "--begin=now+3600", "--chdir=" + dir} {
		if !slices.Contains(s.Options, want) {
			t.Errorf("no %s in %q", want, s.Options)
		}
	}
	if !slices.Equal(s.Arguments, []string{"fast"}) || !slices.Equal(s.Environment, []string{"B=2", "C=3"}) || s.Directory != dir || !strings.Contains(s.Script, "echo") {
		t.Errorf("%+v", s)
	}
	s, err = submission(t, from, "--head=unix:@there", "--", "/bin/echo", "x")
	if err != nil || !slices.Contains(s.Environment, "MUSTER_HEAD=unix:@there") || !slices.Contains(s.Environment, "A=1") || s.Script != "" {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err = submission(t, from, "--export=NONE", "--wrap=make -j8"); err != nil || len(s.Environment) > 0 || s.Script != "#!/bin/sh\nmake -j8\n" {
		t.Errorf("%+v, %v", s, err)
	}
}

// A script that cannot run is refused before it is submitted, with what to do about it.
func TestScriptsAreChecked(t *testing.T) {
	if _, err := submission(t, Submitter{}); !errors.Is(err, ErrNoScript) {
		t.Errorf("no script: %v", err)
	}
	if _, err := submission(t, Submitter{}, t.TempDir()); err == nil || !strings.Contains(err.Error(), "is no file: name a script") {
		t.Errorf("a folder: %v", err)
	}
	for text, want := range map[string]string{
		"": "stdin is empty", "echo\n": "starts with #!", "#!/bin/sh\r\n": "line ends of DOS", "#!/bin/sh\n\x00": "zero byte",
		"#!/bin/sh\n#SBATCH --gress=gpu:1\n": "stdin: ", "#!/bin/sh\n" + strings.Repeat("#", api.MaxSubmission): "larger than a job may be",
	} {
		if _, err := submission(t, Submitter{Stdin: strings.NewReader(text)}, "-n", "1"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %s", text, err, want)
		}
	}
	// JSON would alter these.
	if _, err := submission(t, Submitter{Environment: []string{"A=1", "B=\xe9"}}, "--wrap=id"); err == nil || !strings.Contains(err.Error(), "the variable B is not valid UTF-8: unset it") {
		t.Errorf("a variable in Latin-1: %v", err)
	}
	if _, err := submission(t, Submitter{Environment: []string{"A=1", "B=\xe9"}}, "--export=A", "--wrap=id"); err != nil {
		t.Errorf("a variable that the job does not get: %v", err)
	}
	if _, err := submission(t, Submitter{}, "-J", "\xe9", "--wrap=id"); err == nil || !strings.Contains(err.Error(), "the job's options: this is not valid UTF-8") {
		t.Errorf("a name in Latin-1: %v", err)
	}
	if s, err := submission(t, Submitter{Stdin: strings.NewReader("#!/bin/sh\n")}); err != nil || !slices.Contains(s.Options, "--job-name=stdin") {
		t.Errorf("%+v, %v", s, err)
	}
}
