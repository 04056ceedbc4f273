package question

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"muster/internal/misuse"
	"muster/policy"
	"muster/policy/catalog"
	"muster/policy/preempt"
	"muster/policy/script"
	"muster/policy/scriptfile"
	"muster/report"
	"muster/sim"
)

// Scripts makes the policies of many runs. It reads each file once, so that all runs have the same
// script, and remembers the scripts, to tell afterwards how they fared.
type Scripts struct {
	// File reads a file.
	File scriptfile.Read

	mu      sync.Mutex
	sources map[string][]byte
	made    []*script.Policy
}

func (s *Scripts) read(path string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if source, ok := s.sources[path]; ok {
		return source, nil
	}
	source, err := s.File(path)
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
func (s *Scripts) make(spec string) (policy.Policy, error) {
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

// Tell says how the scripts failed, and returns an error if any did.
func (s *Scripts) Tell(w io.Writer) error {
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

// TellPrinted writes what the scripts have printed.
func (s *Scripts) TellPrinted(w io.Writer) {
	for _, p := range s.made {
		for _, line := range p.Printed() {
			fmt.Fprintf(w, "%s: %s\n", p.Name(), report.Printable(line))
		}
	}
}

// parse reads "NAME:key=value,NAME".
func (r *Scripts) parse(list string) ([]sim.NamedPolicy, error) {
	if list == "" {
		return nil, misuse.Errorf("say which policies to compare: --policy g-queue,r-queue; --list-policies lists them")
	}
	var named []sim.NamedPolicy
	for spec := range strings.SplitSeq(list, ",") {
		spec = strings.TrimSpace(spec)
		if _, err := scriptfile.Make(spec, r.read); err != nil {
			if _, ok := scriptfile.Place(err); ok {
				return nil, err // something in a file
			}
			return nil, misuse.Errorf("--policy: %v", err)
		}
		if slices.ContainsFunc(named, func(n sim.NamedPolicy) bool { return n.Name == spec }) {
			return nil, misuse.Errorf("--policy: %s is named twice", spec)
		}
		named = append(named, sim.NamedPolicy{Name: spec, New: func() (policy.Policy, error) { return r.make(spec) }})
	}
	return named, nil
}

// withClasses lets the classes of a priority configuration, or the partitions of a cluster, preempt each other
// under every policy that has no preemption of its own.
func (r *Scripts) withClasses(policies []sim.NamedPolicy, rules preempt.Rules) []sim.NamedPolicy {
	if rules == nil {
		return policies
	}
	out := slices.Clone(policies)
	for i, n := range policies {
		out[i].New = func() (policy.Policy, error) { return r.make(catalog.WithClasses(n.Name, rules)) }
	}
	return out
}
