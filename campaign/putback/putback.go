// Package putback puts defects back that were mended, to show that campaigns find them. A defect is a
// patch in testdata, whose first lines say what plays it and what is found:
//
//	run: --content --part world --pieces zero --faults 300 --seed 1
//	finds: cannot be read
//
// The patch changes copies of sources, which the go command builds in place of the originals
// (-overlay): the tree stays as it is.
package putback

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Defect is a defect that can be put back.
type Defect struct {
	Name  string
	Run   []string // arguments of the campaign that finds it
	Finds string   // what its report has
	patch string   // the file, an absolute path
}

// All reads the defects of a folder.
func All(dir string) ([]Defect, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	if err != nil {
		return nil, err
	}
	var all []Defect
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		d := Defect{Name: strings.TrimSuffix(filepath.Base(file), ".patch")}
		if d.patch, err = filepath.Abs(file); err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			if words, ok := strings.CutPrefix(line, "run: "); ok {
				d.Run = strings.Fields(words)
			} else if words, ok := strings.CutPrefix(line, "finds: "); ok {
				d.Finds = strings.TrimSpace(words)
			}
		}
		if len(d.Run) == 0 || d.Finds == "" {
			return nil, fmt.Errorf("%s: begin with the lines run: and finds:", file)
		}
		all = append(all, d)
	}
	return all, nil
}

// files are the sources that the patch changes, relative to the module.
func (d *Defect) files() ([]string, error) {
	text, err := os.ReadFile(d.patch)
	if err != nil {
		return nil, err
	}
	var list []string
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, "+++ b/"); ok {
			list = append(list, strings.TrimSpace(name))
		}
	}
	return list, nil
}

// Overlay writes changed copies of the sources below root into dir, and the file that tells the go
// command of them.
func (d *Defect) Overlay(root, dir string) (overlay string, err error) {
	files, err := d.files()
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return "", err
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return "", err
		}
		if err := os.WriteFile(to, text, 0o644); err != nil {
			return "", err
		}
		replace[filepath.Join(root, name)] = to
	}
	cmd := exec.Command("git", "apply", "--whitespace=nowarn", d.patch)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir)) // dir may lie in a repository
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s no longer applies: %w: %s: write it anew, by putting the defect into today's sources", filepath.Base(d.patch), err, bytes.TrimSpace(out))
	}
	overlay = filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	return overlay, os.WriteFile(overlay, text, 0o644)
}

// Compiles says whether the packages that the patch changes compile with it. C, which only campaigns
// compile, is left out.
func (d *Defect) Compiles(root, dir string) error {
	overlay, err := d.Overlay(root, dir)
	if err != nil {
		return err
	}
	files, err := d.files()
	if err != nil {
		return err
	}
	var packages []string
	for _, name := range files {
		if filepath.Ext(name) == ".go" {
			packages = append(packages, "./"+filepath.Dir(name))
		}
	}
	if len(packages) == 0 {
		return nil
	}
	args := append([]string{"build", "-buildvcs=false", "-overlay", overlay}, packages...)
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s no longer compiles: %w: %s: write it anew, by putting the defect into today's sources", filepath.Base(d.patch), err, out)
	}
	return nil
}

// Play builds the campaign and muster with the defect, and plays it. It returns the report, and an
// error unless the campaign found the defect.
func (d *Defect) Play(root, dir string) (report string, err error) {
	overlay, err := d.Overlay(root, dir)
	if err != nil {
		return "", err
	}
	for to, from := range map[string]string{"chaos": "./campaign", "muster": "./cmd/muster"} {
		if to == "muster" && !d.real() {
			continue
		}
		cmd := exec.Command("go", "build", "-buildvcs=false", "-overlay", overlay, "-o", filepath.Join(dir, to), from)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("building %s with %s: %w: %s", from, d.Name, err, out)
		}
	}
	args := append([]string{"--dir", filepath.Join(dir, "episodes")}, d.Run...)
	if d.real() {
		if err := os.Symlink(filepath.Join(root, "bin/lib"), filepath.Join(dir, "lib")); err != nil {
			return "", err
		}
		args = append([]string{"--muster", filepath.Join(dir, "muster")}, args...)
	}
	cmd := exec.Command(filepath.Join(dir, "chaos"), args...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return string(out), fmt.Errorf("%s was put back, and chaos %s finds nothing", d.Name, strings.Join(d.Run, " "))
	case !asExit(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), d.Finds):
		return string(out), fmt.Errorf("%s was put back, and chaos %s ends with %v without %q", d.Name, strings.Join(d.Run, " "), err, d.Finds)
	}
	return string(out), nil
}

func asExit(err error, to **exec.ExitError) bool {
	exit, ok := err.(*exec.ExitError)
	*to = exit
	return ok
}

// real says whether the defect is found in running processes.
func (d *Defect) real() bool {
	line := strings.Join(d.Run, " ")
	return strings.Contains(line, "--part cluster") || strings.Contains(line, "--cluster")
}
