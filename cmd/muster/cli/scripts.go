package cli

import (
	"errors"
	"fmt"
	"io/fs"

	"muster/internal/wholefile"
	"muster/policy"
	"muster/policy/priority"
	"muster/policy/priorityfile"
	"muster/policy/script"
	"muster/policy/scriptfile"
)

var ScriptLimit = wholefile.Limit{Bytes: scriptfile.MaxBytes, Remedy: "is it the script of a policy?"}

// NewPolicy makes a policy from its name, or from the file of a script.
func NewPolicy(spec string) (policy.Policy, error) {
	return scriptfile.Make(spec, ReadPolicyFile)
}

// ReadPolicyFile reads a file. One that is not there may be one that comes with Muster, of
// which a copy is made first.
func ReadPolicyFile(path string) ([]byte, error) {
	text, err := ScriptLimit.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		for _, b := range script.AllBundled() {
			if b.Name == path {
				return nil, fmt.Errorf("%w: it comes with Muster: muster policy show %s > %s makes a copy", err, path, path)
			}
		}
	}
	return text, err
}

var priorityLimit = wholefile.Limit{Bytes: priorityfile.MaxBytes, Remedy: "is it a priority configuration?"}

func ReadPriorities(file string) (*priority.Config, error) {
	text, err := priorityLimit.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--priority: %w", err)
	}
	return priorityfile.Read(text, file)
}
