package source

import (
	"path/filepath"
	"slices"
	"strings"

	"muster/internal/misuse"
	"muster/model"
	"muster/workload"
)

// Reading says how logs are read, in the words of flags.
type Reading struct {
	Format                    string // "" is told from the content
	SkipBad                   bool
	CoresPerNode, GPUsPerNode int
}

// Options reads the words.
func (r *Reading) Options() (workload.ReadOptions, error) {
	opt := workload.ReadOptions{SkipBad: r.SkipBad, CoresPerNode: r.CoresPerNode, GPUsPerNode: r.GPUsPerNode}
	if r.CoresPerNode < 0 || r.GPUsPerNode < 0 {
		return opt, misuse.Errorf("--cores-per-node and --gpus-per-node must not be negative")
	}
	if r.Format == "" {
		return opt, nil
	}
	var err error
	if opt.Format, err = workload.ParseFormat(r.Format); err == nil {
		return opt, nil
	}
	var names []string
	for _, f := range workload.Formats() {
		names = append(names, string(f))
	}
	if near := model.Nearest(r.Format, names); near != "" {
		return opt, misuse.Errorf("--from: there is no log format %q: did you mean %s?", r.Format, near)
	}
	return opt, misuse.Errorf("--from: %v", err)
}

// OutputFormat is the format in which a log is written: the one that is named, or that of the file's
// ending.
func OutputFormat(name, file string) (workload.Format, error) {
	if name == "" {
		switch filepath.Ext(strings.TrimSuffix(file, ".gz")) {
		case ".csv":
			return workload.CSV, nil
		case ".submit":
			name = "submit" // which is only read
		default:
			return workload.SWF, nil
		}
	}
	f := workload.Format(strings.ToLower(name))
	if !slices.Contains([]workload.Format{workload.SWF, workload.CSV}, f) {
		return "", misuse.Errorf("logs cannot be written as %q: use swf or csv", name)
	}
	return f, nil
}
