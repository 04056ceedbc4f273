package emulate

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"muster/slurm/fetch"
	"muster/slurm/release"
)

// Options say what cluster to start. The zero value is eight nodes without GPUs, of the newest release.
type Options struct {
	// Nodes is how many nodes there are, each with CPUs processors and MemoryMB of memory. 0 stands
	// for 8, 8 and 16000.
	Nodes, CPUs, MemoryMB int
	// GPUs is how many pretended GPUs (gres/gpu) a node has. The first GPUNodes nodes have them; 0
	// is all nodes.
	GPUs, GPUNodes int
	// Release is the release of Slurm; nil: the newest.
	Release *release.Release
	// Folder is created for the cluster and removed with it; "" is a new one below the directory
	// for temporary files.
	Folder string

	// Extra are more lines for slurm.conf, such as "SlurmdTimeout=5". A line replaces the default
	// line for the same word.
	Extra string
	// PlugStack is the text of plugstack.conf: "required /path/of/plugin.so".
	PlugStack string
	// JobSubmit is the text of a job_submit.lua; "" for none.
	JobSubmit string
	// NoREST leaves slurmrestd out.
	NoREST bool
	// Rootless makes root start the cluster as other users do: in a user namespace, with one user.
	Rootless bool

	// Fetch says where the release comes from.
	Fetch fetch.Options
	// Log receives a line for each step that takes long; nil discards them.
	Log io.Writer
}

// Limits of a cluster on one machine. A thousand nodes have been tried, and take a minute.
const (
	maxNodes = 1024
	maxGPUs  = 64
	// maxFolder keeps the names of Slurm's sockets within the 107 characters that Linux allows:
	// FOLDER/spool/n0001/n0001_4294967295.4294967295.
	maxFolder = 60
	maxText   = 1 << 20
)

// withDefaults fills in what was left out and refuses impossible values.
func (o Options) withDefaults() (Options, error) {
	fill := func(field *int, value int) {
		if *field == 0 {
			*field = value
		}
	}
	fill(&o.Nodes, 8)
	fill(&o.CPUs, 8)
	fill(&o.MemoryMB, 16000)
	if o.GPUs > 0 {
		fill(&o.GPUNodes, o.Nodes)
	}
	if o.Release == nil {
		o.Release = release.Newest()
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	if o.Fetch.Log == nil {
		o.Fetch.Log = o.Log
	}
	switch {
	case o.Nodes < 1 || o.Nodes > maxNodes:
		return o, fmt.Errorf("%d nodes: give 1 to %d", o.Nodes, maxNodes)
	case o.CPUs < 1 || o.CPUs > 4096:
		return o, fmt.Errorf("%d processors a node: give 1 to 4096", o.CPUs)
	case o.MemoryMB < 1:
		return o, fmt.Errorf("%d MB of memory a node: give 1 or more", o.MemoryMB)
	case o.GPUs < 0 || o.GPUs > maxGPUs:
		return o, fmt.Errorf("%d GPUs a node: give 0 to %d", o.GPUs, maxGPUs)
	case o.GPUNodes < 0 || o.GPUNodes > o.Nodes:
		return o, fmt.Errorf("%d nodes with GPUs of %d nodes: give 0 to %d", o.GPUNodes, o.Nodes, o.Nodes)
	case len(o.Extra)+len(o.PlugStack)+len(o.JobSubmit) > maxText:
		return o, fmt.Errorf("the configuration that was given has more than %d bytes: shorten it", maxText)
	}
	return o, nil
}

// makeFolder makes the cluster's folder.
func (o Options) makeFolder(mode os.FileMode) (string, error) {
	if o.Folder == "" {
		parent := os.TempDir()
		if len(parent) > maxFolder-len(folderPrefix)-12 {
			parent = "/tmp"
		}
		folder, err := os.MkdirTemp(parent, folderPrefix)
		if err != nil {
			return "", fmt.Errorf("a folder for the cluster: %w: set TMPDIR to one that can be written", err)
		}
		return folder, os.Chmod(folder, mode)
	}
	folder, err := filepath.Abs(o.Folder)
	if err != nil {
		return "", err
	}
	if folder, err = realFolder(folder); err != nil {
		return "", err
	}
	if len(folder) > maxFolder {
		return "", fmt.Errorf("the folder %s has a name of %d characters: sockets in it need one of at most %d", folder, len(folder), maxFolder)
	}
	if first := strings.SplitN(folder, "/", 3)[1]; replaced[first] || first == "proc" {
		return "", fmt.Errorf("the folder %s is below /%s, which the cluster has of its own: choose another", folder, first)
	}
	if strings.ContainsAny(folder, " \t\n'\"#,=\\%") {
		return "", fmt.Errorf("the folder %q has a character that Slurm's configuration cannot have: choose another", folder)
	}
	if err := os.Mkdir(folder, mode); err != nil {
		if errors.Is(err, os.ErrExist) {
			return "", fmt.Errorf("%s is there already: name a folder that is not, since it is removed with the cluster", folder)
		}
		return "", fmt.Errorf("a folder for the cluster: %w", err)
	}
	return folder, os.Chmod(folder, mode)
}

// realFolder resolves the links in the path of a folder that does not exist yet.
func realFolder(folder string) (string, error) {
	parent, err := filepath.EvalSymlinks(filepath.Dir(folder))
	if err != nil {
		return "", fmt.Errorf("a folder for the cluster: %w", err)
	}
	return filepath.Join(parent, filepath.Base(folder)), nil
}
