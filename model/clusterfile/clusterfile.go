// Package clusterfile reads and writes descriptions of clusters: strict YAML
// for people, presets that are built in, and the node list of the openb trace.
//
// Everything wrong with a file is an error that names file, line, column and
// remedy. It knows nothing of jobs or of who uses the cluster.
package clusterfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"muster/model"
	"muster/model/strictyaml"
)

// maxFile bounds what is read: far more than a description of a million nodes
// in ranges, far less than a machine's memory.
const maxFile = 32 << 20

// Error is something wrong at one place of a file.
type Error = strictyaml.Error

// Read reads a cluster description. The name stands for the file in errors.
func Read(r io.Reader, name string) (*model.Cluster, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s: larger than %s: describe equal nodes in one entry, as n[0001-1024]", name, model.FormatSize(maxFile))
	}
	return decode(text, name)
}

// ReadFile reads the cluster description in a file.
func ReadFile(path string) (*model.Cluster, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Read(f, path)
}

// Load returns the preset of that name, or else reads the file.
func Load(nameOrPath string) (*model.Cluster, error) {
	if isPreset(nameOrPath) {
		return Preset(nameOrPath)
	}
	c, err := ReadFile(nameOrPath)
	if errors.Is(err, fs.ErrNotExist) {
		if near := model.Nearest(nameOrPath, presetNames()); near != "" {
			return nil, fmt.Errorf("there is no file and no preset called %q: did you mean %s?", nameOrPath, near)
		}
		return nil, fmt.Errorf("there is no file and no preset called %q: the presets are listed by: muster cluster list", nameOrPath)
	}
	return c, err
}
