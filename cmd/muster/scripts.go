package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"

	"muster/internal/wholefile"
	"muster/policy"
	"muster/policy/script"
	"muster/policy/scriptfile"
	"muster/report"
)

var scriptLimit = wholefile.Limit{Bytes: scriptfile.MaxBytes, Remedy: "is it the script of a policy?"}

// newPolicy makes a policy from its name, or from the file of a script.
func newPolicy(spec string) (policy.Policy, error) {
	return scriptfile.Make(spec, readPolicyFile)
}

// scriptRuns makes the policies of many runs. Files are read once, so that all runs are
// of the same, and the scripts remembered: how they fared is told afterwards.
type scriptRuns struct {
	mu      sync.Mutex
	sources map[string][]byte
	made    []*script.Policy
}

func (s *scriptRuns) read(path string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if source, ok := s.sources[path]; ok {
		return source, nil
	}
	source, err := readPolicyFile(path)
	if err != nil {
		return nil, err
	}
	if s.sources == nil {
		s.sources = map[string][]byte{}
	}
	s.sources[path] = source
	return source, nil
}

// make makes a policy for one run.
func (s *scriptRuns) make(spec string) (policy.Policy, error) {
	if !scriptfile.Is(spec) {
		return scriptfile.Make(spec, s.read)
	}
	l, err := scriptfile.Load(spec, s.read)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made = append(s.made, l.Script)
	return l.Policy, nil
}

// tell says how the scripts failed, and returns an error if any did.
func (s *scriptRuns) tell(w io.Writer) error {
	var failed *script.Error
	told := map[string]bool{}
	for _, p := range s.made {
		t := p.Trouble()
		if t.Failures == 0 {
			continue
		}
		failed = t.Last
		if line := fmt.Sprintf("policy %s failed %d times in %d steps, and its fallback decided meanwhile; the last time: %v", p.Name(), t.Failures, t.Steps, t.Last); !told[line] {
			told[line] = true
			fmt.Fprintln(w, line)
		}
	}
	if failed == nil {
		return nil
	}
	return fmt.Errorf("the results are not those of the script alone: %w", failed)
}

// tellPrinted writes what the scripts have printed.
func (s *scriptRuns) tellPrinted(w io.Writer) {
	for _, p := range s.made {
		for _, line := range p.Printed() {
			fmt.Fprintf(w, "%s: %s\n", p.Name(), report.Printable(line))
		}
	}
}

// readPolicyFile reads a file. One that is not there may be one that comes with Muster, of
// which a copy is made first.
func readPolicyFile(path string) ([]byte, error) {
	text, err := scriptLimit.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		for _, b := range script.AllBundled() {
			if b.Name == path {
				return nil, fmt.Errorf("%w: it comes with Muster: muster policy show %s > %s makes a copy", err, path, path)
			}
		}
	}
	return text, err
}
