package setup

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"muster/internal/misuse"
	"muster/slurm/fetch"
	"muster/slurm/release"
)

// Complete fills in what the user left out, from the machine: the release of Slurm unless it is named,
// this program, and where Slurm's headers are. It refuses what makes no sense.
func (o *Options) Complete(version string) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	if o.Release, err = releaseOf(version); err != nil {
		return err
	}
	if o.Muster == "" {
		if o.Muster, err = os.Executable(); err != nil {
			return fmt.Errorf("finding this program: %w: name it with --muster", err)
		}
	}
	if o.Include == "" {
		o.Include = findHeaders(o.Release)
	}
	return nil
}

// check refuses options that contradict each other, or that other machines could not use.
func (o *Options) check() error {
	switch {
	case o.GPUs < 0:
		return misuse.Errorf("--gpus %d: give 0 or more", o.GPUs)
	case o.Muster != "" && !filepath.IsAbs(o.Muster) || o.Library != "" && !filepath.IsAbs(o.Library):
		return misuse.Errorf("--muster and --library are paths that begin with /: they are used on all nodes")
	case o.Authority != "" && o.Agents == "":
		return misuse.Errorf("--authority is for nodes that lend: give --agents, too")
	case o.Authority != "" && !filepath.IsAbs(o.Authority):
		return misuse.Errorf("--authority %s: the driver's service needs a path that begins with /", o.Authority)
	case (o.Agents == "") != (o.Grants == ""):
		return misuse.Errorf("--agents and --grants go together: nodes lend, and jobs find there what they were lent")
	}
	return nil
}

// releaseOf is the release that the user names, or else the one of this machine's scontrol.
func releaseOf(version string) (*release.Release, error) {
	if version != "" {
		r, err := release.Of(version)
		if err != nil {
			return nil, misuse.Errorf("--version: %v", err)
		}
		return r, nil
	}
	out, err := exec.Command("scontrol", "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("which release of Slurm is it? scontrol does not run (%w): name it with --version", err)
	}
	return release.Of(string(out))
}

// findHeaders is the folder with a release's headers: the machine's, or of the fetched release.
func findHeaders(r *release.Release) string {
	const system = "/usr/include"
	if _, err := os.Stat(system + "/slurm/spank.h"); err == nil {
		return system
	}
	if tree, err := fetch.Cached(r, fetch.Options{}); err == nil {
		return tree.Include()
	}
	return system
}

// WriteSummary says how many files were changed, or would be, and what is left to the user.
func (p *Plan) WriteSummary(w io.Writer, dryRun, removed bool) error {
	text := ""
	switch {
	case len(p.Changes) == 0:
		text = "nothing is to be changed\n"
	case dryRun:
		text = fmt.Sprintf("%d files would be changed\n", len(p.Changes))
	case removed:
		text = fmt.Sprintf("%d files were changed; restart slurmctld: Slurm then does without Muster\n", len(p.Changes))
	default:
		text = fmt.Sprintf("%d files were changed; restart slurmctld, then run muster slurm doctor\n", len(p.Changes))
	}
	for _, left := range p.Left {
		text += fmt.Sprintf("left to you: %s\n", left)
	}
	_, err := io.WriteString(w, text)
	return err
}

// WriteFindings writes what the doctor found, with what to do, and counts what is wrong.
func WriteFindings(w io.Writer, findings []Finding) (wrong int, err error) {
	for _, f := range findings {
		word := "good "
		switch {
		case f.Wrong:
			wrong++
			word = "wrong"
		case f.Odd:
			word = "odd  "
		}
		text := fmt.Sprintf("%s  %s\n", word, f.What)
		if f.Remedy != "" {
			text += fmt.Sprintf("       do: %s\n", f.Remedy)
		}
		if _, err := io.WriteString(w, text); err != nil {
			return wrong, err
		}
	}
	return wrong, nil
}
