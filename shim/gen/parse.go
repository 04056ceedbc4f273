package main

import (
	"fmt"
	"path"
	"slices"
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
	needs     string // what the body gets as its first argument: "", "context" or "target"
	params    []param
	limit     *limit // nil: it does what the driver's does
}

// limit is a line that says what functions do not do, and why.
type limit struct {
	kind  string   // refused, real or partly
	names []string // exported, without the second exports; "*" stands for anything
	why   string
}

var limitKinds = []string{"refused", "real", "partly"}

type param struct {
	decl, name string
	given      bool // it must not be NULL
	handle     bool // it must be an object of its type
}

// prepared says whether the body is called behind checks that are made for it.
func (f *function) prepared() bool {
	return f.needs != "" || slices.ContainsFunc(f.params, func(p param) bool { return p.given || p.handle })
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
	var limits []*limit
	seen := map[string]bool{}
	err := eachLine(text, func(line string) error {
		if kind, rest, _ := strings.Cut(line, " "); slices.Contains(limitKinds, kind) {
			l, err := parseLimit(kind, rest)
			limits = append(limits, l)
			return err
		}
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
	if err != nil {
		return nil, err
	}
	for _, f := range all {
		f.limit = limitOf(f, limits)
		if !f.hasBody && f.limit == nil {
			return nil, fmt.Errorf("%s has no body and no reason: add it to a line that begins with refused", f.export)
		}
	}
	return all, nil
}

func parseLimit(kind, rest string) (*limit, error) {
	names, why, ok := strings.Cut(rest, " : ")
	l := &limit{kind, strings.Fields(names), strings.TrimSpace(why)}
	if !ok || len(l.names) == 0 || l.why == "" {
		return nil, fmt.Errorf("%s %s: names, a colon between blanks and a reason are wanted", kind, rest)
	}
	if strings.ContainsAny(l.why, "\"\\|") {
		return nil, fmt.Errorf("%s: quotes, backslashes and bars do not fit into tables", l.why)
	}
	for _, name := range l.names {
		if !strings.HasPrefix(name, "cu") {
			return nil, fmt.Errorf("%q is no name of a function", name)
		}
		if _, err := path.Match(name, ""); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return l, nil
}

// limitOf returns the first line that fits a function. Lines about functions
// without a body do not count for those that have got one.
func limitOf(f *function, limits []*limit) *limit {
	for _, l := range limits {
		if (l.kind == "refused") == f.hasBody {
			continue
		}
		for _, name := range l.names {
			if fits, _ := path.Match(name, f.export); fits { // the pattern was checked when it was read
				return l
			}
		}
	}
	return nil
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
		case w == "context" || w == "target":
			f.needs = w
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
		p, given := strings.CutSuffix(strings.TrimSpace(p), "!")
		p, handle := strings.CutSuffix(p, "@")
		if p == "" && list == "" {
			break
		}
		if given && !strings.Contains(p, "*") {
			return nil, fmt.Errorf("%s: parameter %q is no pointer, and cannot be NULL", f.export, p)
		}
		at := strings.LastIndexAny(p, " *")
		if at < 0 || at+1 == len(p) {
			return nil, fmt.Errorf("%s: parameter %q has no name", f.export, p)
		}
		if _, known := handles[strings.TrimSpace(p[:at])]; handle && !known {
			return nil, fmt.Errorf("%s: parameter %q is no handle that can be checked", f.export, p)
		}
		f.params = append(f.params, param{decl: p, name: p[at+1:], given: given, handle: handle})
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
