// Package spank is Muster's part inside Slurm. A SPANK plug-in in C gives sbatch, srun and salloc
// the options --rgpu, --rcuda-mode, --gpu-reach, --gpu-beyond, --mapping and --muster-or, and gives a
// job's programs their GPUs. A script for job_submit.lua checks requests and holds jobs for Muster's driver. Both are embedded here as
// sources; the plug-in is compiled against the headers of the release of Slurm that loads it.
//
// The package knows neither the driver nor a running Slurm: package slurm/words defines what the
// parts say to each other, and package slurm/setup installs them.
package spank

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"muster/internal/wholefile"
	"muster/slurm/release"
)

// Library is the file name of the plug-in.
const Library = "spank_muster.so"

//go:embed plugin/spank_muster.c
var source string

//go:embed plugin/muster_words.h
var header string

//go:embed muster.lua
var script string

// StampPrefix begins the stamp that every plug-in of Muster contains.
const StampPrefix = "muster-spank-"

// Stamp is a text that a plug-in contains if it was built from this source for this release. It
// distinguishes an outdated plug-in from the right one.
func Stamp(r *release.Release) string {
	return fmt.Sprintf(StampPrefix+"%x-%s", sha256.Sum256([]byte(header+source)), r.Name)
}

// Settings are the settings of the script, which differ between clusters.
type Settings struct {
	// Admins are the uids of users who may release and place jobs: SlurmUser and the driver's user.
	// Root always may.
	Admins []int
	// All says that all jobs are Muster's, and not only those that ask for its GPUs; Partitions
	// names partitions all of whose jobs are.
	All        bool
	Partitions []string
	// OwnGPUs says that jobs which ask for Slurm's own GPUs (--gres=gpu) are Muster's, too, because
	// nodes lend some of these.
	OwnGPUs bool
	// Licence is the name of a licence of which a job takes one for each whole GPU; "" for none.
	Licence string
	// Gres says that the cluster has the generic resource rgpu.
	Gres bool
	// Alive is a file with the time of the driver's latest round (muster slurm drive --alive).
	// While that is long ago, jobs that ask for none of its GPUs go to Slurm's own scheduler. If
	// Alive is "", they wait.
	Alive string
}

var (
	settingsTable = regexp.MustCompile(`(?s)local settings = \{\n.*?\n\}\n`)
	plainName     = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)
)

// Script is the text of muster.lua with the settings of a cluster.
func Script(s Settings) (string, error) {
	names := slices.Clone(s.Partitions)
	if s.Licence != "" {
		names = append(names, s.Licence)
	}
	for _, name := range names {
		if !plainName.MatchString(name) {
			return "", fmt.Errorf("%q is no name of a partition or a licence: use letters, digits, and the signs _ . -", name)
		}
	}
	var b strings.Builder
	b.WriteString("local settings = {\n")
	admins := map[int]bool{0: true}
	for _, uid := range s.Admins {
		admins[uid] = true
	}
	var list []string
	for _, uid := range slices.Sorted(maps.Keys(admins)) {
		list = append(list, fmt.Sprintf("[%d] = true", uid))
	}
	fmt.Fprintf(&b, "  admins = { %s }, -- uids that may release and place jobs\n", strings.Join(list, ", "))
	fmt.Fprintf(&b, "  all = %t, -- whether all jobs are Muster's, or those that ask for GPUs\n", s.All)
	list = nil
	for _, name := range s.Partitions {
		list = append(list, fmt.Sprintf("[%q] = true", name))
	}
	fmt.Fprintf(&b, "  partitions = { %s }, -- partitions all of whose jobs are Muster's\n", strings.Join(list, ", "))
	fmt.Fprintf(&b, "  own_gpus = %t, -- whether jobs that ask for Slurm's own GPUs (--gres=gpu) are Muster's, too\n", s.OwnGPUs)
	if s.Licence != "" {
		fmt.Fprintf(&b, "  licence = %q, -- a licence of which a job takes one for each whole GPU\n", s.Licence)
	}
	if s.Alive != "" {
		fmt.Fprintf(&b, "  alive = %q, -- a file with the time of the driver's latest round\n", s.Alive)
	}
	fmt.Fprintf(&b, "  gres = %t, -- whether the cluster has a generic resource rgpu\n}\n", s.Gres)
	return settingsTable.ReplaceAllLiteralString(script, b.String()), nil
}

// Hook is what job_submit.lua needs to use muster.lua at a path: Muster's functions are called
// first, then those that were defined before. The text may stand anywhere after those.
func Hook(path string) string {
	return fmt.Sprintf(`do
  local muster = dofile(%q)
  local submit, modify = slurm_job_submit, slurm_job_modify
  function slurm_job_submit(job, partitions, uid)
    local rc = muster.submit(job, partitions, uid)
    if rc ~= slurm.SUCCESS or not submit then return rc end
    return submit(job, partitions, uid)
  end
  function slurm_job_modify(job, record, partitions, uid)
    local rc = muster.modify(job, record, partitions, uid)
    if rc ~= slurm.SUCCESS or not modify then return rc end
    return modify(job, record, partitions, uid)
  end
end
`, path)
}

// PlugStack is the plug-in's line in plugstack.conf. muster is the path of the program muster on
// the nodes, socket the address of the nodes' daemon, "" for the default.
func PlugStack(library, muster, socket string) string {
	line := "required " + library + " muster=" + muster
	if socket != "" {
		line += " socket=" + socket
	}
	return line + "\n"
}

// ErrNoCompiler and ErrNoHeaders say what is missing to build the plug-in.
var (
	ErrNoCompiler = errors.New("there is no C compiler: install gcc")
	ErrNoHeaders  = errors.New("Slurm's headers are missing: install libslurm-dev (Debian, Ubuntu) or slurm-devel (others)")
)

// headersLimit limits the header that says which release it is of.
var headersLimit = wholefile.Limit{Bytes: 1 << 20, Remedy: "are these Slurm's headers?"}

var versionNumber = regexp.MustCompile(`(?m)^#define SLURM_VERSION_NUMBER (0x[0-9a-f]+)`)

// headersOf is the release of the headers in a folder, such as 26.05.
func headersOf(include string) (string, error) {
	text, err := headersLimit.ReadFile(filepath.Join(include, "slurm", "slurm_version.h"))
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoHeaders, err)
	}
	found := versionNumber.FindSubmatch(text)
	if found == nil {
		return "", fmt.Errorf("%s/slurm/slurm_version.h does not say which release it is of", include)
	}
	n, err := strconv.ParseUint(string(found[1]), 0, 32)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%02d.%02d", n>>16&0xff, n>>8&0xff), nil
}

// Build compiles the plug-in for a release against its headers in a folder, which has
// slurm/spank.h, and writes it to a path. It replaces an existing plug-in atomically, since jobs
// may be loading it.
func Build(ctx context.Context, r *release.Release, include, path string) error {
	compiler, err := exec.LookPath("gcc")
	if err != nil {
		if compiler, err = exec.LookPath("cc"); err != nil {
			return ErrNoCompiler
		}
	}
	if _, err := os.Stat(filepath.Join(include, "slurm", "spank.h")); err != nil {
		return fmt.Errorf("%w: there is no slurm/spank.h in %s", ErrNoHeaders, include)
	}
	if have, err := headersOf(include); err != nil {
		return err
	} else if have != r.Name {
		return fmt.Errorf("the headers in %s are of Slurm %s, and the plug-in is for %s: name the right ones", include, have, r.Name)
	}
	work, err := os.MkdirTemp("", "muster-spank-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	for name, text := range map[string]string{"spank_muster.c": source, "muster_words.h": header} {
		if err := os.WriteFile(filepath.Join(work, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	next := path + ".new"
	defer os.Remove(next)
	command := exec.CommandContext(ctx, compiler, "-std=gnu11", "-O2", "-Wall", "-Wextra", "-fPIC", "-shared", "-isystem", include,
		"-DMUSTER_STAMP=\""+Stamp(r)+"\"", "-o", next, filepath.Join(work, "spank_muster.c"))
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("compiling the plug-in: %w\n%s", err, out)
	}
	if err := os.Chmod(next, 0o755); err != nil {
		return err
	}
	return os.Rename(next, path)
}
