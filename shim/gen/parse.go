package main

import (
	"fmt"
	"strconv"
	"strings"
)

// function is one line of api.txt.
type function struct {
	name      string // for cuGetProcAddress
	export    string // name and version
	since     int    // 0: not for cuGetProcAddress
	perThread string // "", "ptsz" or "ptds"
	anytime   bool
	plain     bool
	hasBody   bool
	params    []param
}

type param struct {
	decl, name string
}

// takesStream says whether a parameter is a stream, which the second export
// changes.
func (f *function) takesStream() bool {
	for _, p := range f.params {
		if strings.HasPrefix(p.decl, "CUstream ") && p.name == "stream" {
			return true
		}
	}
	return false
}

// extraStream says whether the body gets the default stream as one more
// parameter.
func (f *function) extraStream() bool { return f.perThread != "" && !f.takesStream() }

// result is one line of errors.txt.
type result struct {
	number     int
	name, text string
}

func parseFunctions(text string) ([]*function, error) {
	var all []*function
	seen := map[string]bool{}
	err := eachLine(text, func(line string) error {
		f, err := parseFunction(line)
		if err != nil {
			return err
		}
		if seen[f.export] {
			return fmt.Errorf("%s is there twice", f.export)
		}
		seen[f.export] = true
		all = append(all, f)
		return nil
	})
	return all, err
}

func parseFunction(line string) (*function, error) {
	head, params, hasBody := strings.Cut(line, "(")
	words := strings.Fields(head)
	if len(words) < 2 {
		return nil, fmt.Errorf("%q: a name and a version are wanted", line)
	}
	f := &function{name: words[0], export: words[0], hasBody: hasBody}
	if words[1] != "-" {
		n, err := strconv.Atoi(words[1])
		if err != nil || n <= 0 {
			return nil, fmt.Errorf("%q is no version", words[1])
		}
		f.since = n
	}
	for _, w := range words[2:] {
		switch {
		case strings.HasPrefix(w, "_v"):
			f.export = f.name + w
		case w == "ptsz" || w == "ptds":
			f.perThread = w
		case w == "anytime":
			f.anytime = true
		case w == "plain":
			f.plain = true
		default:
			return nil, fmt.Errorf("%s: what is %q?", f.name, w)
		}
	}
	if !hasBody {
		return f, nil
	}
	list, ok := strings.CutSuffix(params, ")")
	if !ok {
		return nil, fmt.Errorf("%s: the parameters have no end", f.export)
	}
	for _, p := range strings.Split(list, ",") {
		p = strings.TrimSpace(p)
		if p == "" && list == "" {
			break
		}
		at := strings.LastIndexAny(p, " *")
		if at < 0 || at+1 == len(p) {
			return nil, fmt.Errorf("%s: parameter %q has no name", f.export, p)
		}
		f.params = append(f.params, param{decl: p, name: p[at+1:]})
	}
	return f, nil
}

func parseResults(text string) ([]result, error) {
	var all []result
	err := eachLine(text, func(line string) error {
		words := strings.SplitN(line, " ", 3)
		if len(words) != 3 {
			return fmt.Errorf("%q: a number, a name and a text are wanted", line)
		}
		n, err := strconv.Atoi(words[0])
		if err != nil {
			return fmt.Errorf("%q is no number", words[0])
		}
		all = append(all, result{n, "CUDA_" + words[1], words[2]})
		return nil
	})
	return all, err
}

// eachLine calls do for lines that say something.
func eachLine(text string, do func(string) error) error {
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if err := do(line); err != nil {
			return fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	return nil
}
