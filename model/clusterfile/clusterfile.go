// Package clusterfile reads and writes descriptions of clusters: strict YAML for people, built-in
// presets, and the node list of the openb trace.
//
// Every error names file, line, column and remedy. The package knows nothing of jobs or of what
// uses the cluster.
package clusterfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"muster/internal/wholefile"
	"muster/model"
	"muster/model/strictyaml"
)

// fileLimit is far more than a description of a million nodes in ranges needs, and far less than a
// machine's memory.
var fileLimit = wholefile.Limit{Bytes: 32 << 20, Remedy: "describe equal nodes in one entry, as n[0001-1024]"}

// Error is something wrong at one place of a file.
type Error = strictyaml.Error

// Read reads a cluster description. name identifies it in errors.
func Read(r io.Reader, name string) (*model.Cluster, error) {
	text, err := fileLimit.Read(r, name)
	if err != nil {
		return nil, err
	}
	return decode(text, name)
}

// ReadFile reads the cluster description in a file.
func ReadFile(path string) (*model.Cluster, error) {
	text, err := fileLimit.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return decode(text, path)
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
