package functions

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Entry is one line of api.txt.
type Entry struct {
	Name      string // for cuGetProcAddress
	Export    string // name and version
	Since     int    // 0: not for cuGetProcAddress
	PerThread string // "", "ptsz" or "ptds"
	Anytime   bool
	Plain     bool
	HasBody   bool
	Needs     string // what the body gets as its first argument: "", "context" or "target"
	Params    []Param
	Limit     *Limit // nil: it does what the driver's does
}

// Limit is a line that says what functions do not do, and why.
type Limit struct {
	Kind  string   // refused, real or partly
	Names []string // exported, without the second exports; "*" stands for anything
	Why   string
}

var limitKinds = []string{"refused", "real", "partly"}

type Param struct {
	Decl, Name string
	Given      bool // it must not be NULL
	Handle     bool // it must be an object of its type
}

// Prepared says whether the body is called behind checks that are made for it.
func (f *Entry) Prepared() bool {
	return f.Needs != "" || slices.ContainsFunc(f.Params, func(p Param) bool { return p.Given || p.Handle })
}

// TakesStream says whether a parameter is a stream, which the second export
// changes.
func (f *Entry) TakesStream() bool {
	return slices.ContainsFunc(f.Params, func(p Param) bool { return strings.HasPrefix(p.Decl, "CUstream ") && p.Name == "stream" })
}

// ExtraStream says whether the body gets the default stream as one more
// parameter.
func (f *Entry) ExtraStream() bool { return f.PerThread != "" && !f.TakesStream() }

// State is what becomes of a call.
func (f *Entry) State() State {
	if f.Limit == nil {
		return Works
	}
	return map[string]State{"refused": Refused, "real": RealOnly, "partly": Partly}[f.Limit.Kind]
}

// Why says what is refused, and why; "" if nothing is.
func (f *Entry) Why() string {
	if f.Limit == nil {
		return ""
	}
	return f.Limit.Why
}

// Exported are the names of a function as programs link them.
func (f *Entry) Exported() []string {
	if f.PerThread == "" {
		return []string{f.Export}
	}
	return []string{f.Export, f.Export + "_" + f.PerThread}
}

// Parse reads a description.
func Parse(text string) ([]*Entry, error) {
	var all []*Entry
	var limits []*Limit
	seen := map[string]bool{}
	err := EachLine(text, func(line string) error {
		if kind, rest, _ := strings.Cut(line, " "); slices.Contains(limitKinds, kind) {
			l, err := parseLimit(kind, rest)
			limits = append(limits, l)
			return err
		}
		f, err := parseFunction(line)
		if err != nil {
			return err
		}
		if seen[f.Export] {
			return fmt.Errorf("%s is there twice", f.Export)
		}
		seen[f.Export] = true
		all = append(all, f)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, f := range all {
		f.Limit = limitOf(f, limits)
		if !f.HasBody && f.Limit == nil {
			return nil, fmt.Errorf("%s has no body and no reason: add it to a line that begins with refused", f.Export)
		}
	}
	return all, nil
}

func parseLimit(kind, rest string) (*Limit, error) {
	names, why, ok := strings.Cut(rest, " : ")
	l := &Limit{kind, strings.Fields(names), strings.TrimSpace(why)}
	if !ok || len(l.Names) == 0 || l.Why == "" {
		return nil, fmt.Errorf("%s %s: names, a colon between blanks and a reason are wanted", kind, rest)
	}
	if strings.ContainsAny(l.Why, "\"\\|") {
		return nil, fmt.Errorf("%s: quotes, backslashes and bars do not fit into tables", l.Why)
	}
	for _, name := range l.Names {
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
func limitOf(f *Entry, limits []*Limit) *Limit {
	for _, l := range limits {
		if (l.Kind == "refused") == f.HasBody {
			continue
		}
		for _, name := range l.Names {
			if fits, _ := path.Match(name, f.Export); fits { // the pattern was checked when it was read
				return l
			}
		}
	}
	return nil
}

func parseFunction(line string) (*Entry, error) {
	head, params, hasBody := strings.Cut(line, "(")
	words := strings.Fields(head)
	if len(words) < 2 {
		return nil, fmt.Errorf("%q: a name and a version are wanted", line)
	}
	f := &Entry{Name: words[0], Export: words[0], HasBody: hasBody}
	if words[1] != "-" {
		n, err := strconv.Atoi(words[1])
		if err != nil || n <= 0 {
			return nil, fmt.Errorf("%q is no version", words[1])
		}
		f.Since = n
	}
	for _, w := range words[2:] {
		switch {
		case strings.HasPrefix(w, "_v"):
			f.Export = f.Name + w
		case w == "ptsz" || w == "ptds":
			f.PerThread = w
		case w == "anytime":
			f.Anytime = true
		case w == "plain":
			f.Plain = true
		case w == "context" || w == "target":
			f.Needs = w
		default:
			return nil, fmt.Errorf("%s: what is %q?", f.Name, w)
		}
	}
	if !hasBody {
		return f, nil
	}
	list, ok := strings.CutSuffix(params, ")")
	if !ok {
		return nil, fmt.Errorf("%s: the parameters have no end", f.Export)
	}
	for _, p := range strings.Split(list, ",") {
		p, given := strings.CutSuffix(strings.TrimSpace(p), "!")
		p, handle := strings.CutSuffix(p, "@")
		if p == "" && list == "" {
			break
		}
		if given && !strings.Contains(p, "*") {
			return nil, fmt.Errorf("%s: parameter %q is no pointer, and cannot be NULL", f.Export, p)
		}
		at := strings.LastIndexAny(p, " *")
		if at < 0 || at+1 == len(p) {
			return nil, fmt.Errorf("%s: parameter %q has no name", f.Export, p)
		}
		f.Params = append(f.Params, Param{Decl: p, Name: p[at+1:], Given: given, Handle: handle})
	}
	return f, nil
}

// EachLine calls do for lines that say something.
func EachLine(text string, do func(string) error) error {
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
