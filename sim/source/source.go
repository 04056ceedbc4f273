package source

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"muster/internal/misuse"
	"muster/model"
	"muster/workload"
	"muster/workload/bundled"
)

// Source makes the workload of a seed, or reads a log once, whatever the seed. The jobs of a log are
// shared by all calls and must not be changed. Only a log has a report.
type Source func(seed uint64) (*workload.Workload, *workload.ReadReport, error)

// Open finds the workload that a word names. A file wins over a name, a folder does not; - is a log on
// standard input.
func Open(stdin io.Reader, arg string, opt workload.ReadOptions) (Source, error) {
	if arg == "-" {
		return once(func() (*workload.Workload, *workload.ReadReport, error) { return workload.Read(stdin, "stdin", opt) }), nil
	}
	if info, err := os.Stat(arg); err == nil && !(info.IsDir() && isName(arg)) {
		if IsRecord(arg) {
			return once(func() (*workload.Workload, *workload.ReadReport, error) { return recordAsLog(arg) }), nil
		}
		return once(func() (*workload.Workload, *workload.ReadReport, error) { return workload.ReadFile(arg, opt) }), nil
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return Named(arg, opt)
}

// isName says whether a word is the name of a bundled log or of a generator.
func isName(arg string) bool {
	name, _, _ := strings.Cut(arg, ":")
	return slices.ContainsFunc(bundled.Logs(), func(b bundled.Log) bool { return b.Name == arg }) || slices.Contains(generators(), name)
}

// Named finds a workload that comes with Muster, whatever files there are.
func Named(arg string, opt workload.ReadOptions) (Source, error) {
	for _, b := range bundled.Logs() {
		if b.Name == arg {
			return once(func() (*workload.Workload, *workload.ReadReport, error) {
				opt.Format = ""
				return workload.Read(bytes.NewReader(b.Data()), b.File, opt)
			}), nil
		}
	}
	name, rest, _ := strings.Cut(arg, ":")
	if !slices.Contains(generators(), name) {
		return nil, unknown(arg, name)
	}
	given, err := parameters(name, rest)
	if err != nil {
		return nil, err
	}
	return func(seed uint64) (*workload.Workload, *workload.ReadReport, error) {
		wl, err := generate(name, given, seed)
		return wl, nil, err
	}, nil
}

// once makes a source of a log that is read at the first call.
func once(read func() (*workload.Workload, *workload.ReadReport, error)) Source {
	var once sync.Once
	var wl *workload.Workload
	var report *workload.ReadReport
	var err error
	return func(uint64) (*workload.Workload, *workload.ReadReport, error) {
		once.Do(func() { wl, report, err = read() })
		return wl, report, err
	}
}

// Generate makes a synthetic workload with a generator, which may have parameters behind its name, and
// more parameters, each key=value. Each of its errors is a misuse.Error.
func Generate(arg string, more []string, seed uint64) (*workload.Workload, error) {
	name, rest, _ := strings.Cut(arg, ":")
	given, err := parameters(name, rest)
	if err != nil {
		return nil, err
	}
	for _, pair := range more {
		if err := addParameter(given, pair); err != nil {
			return nil, err
		}
	}
	return generate(name, given, seed)
}

func generate(name string, given map[string]string, seed uint64) (*workload.Workload, error) {
	wl, err := workload.Generate(name, given, seed)
	if err != nil {
		return nil, misuse.Errorf("%v", err)
	}
	return wl, nil
}

// parameters reads those of a generator: key=value:key=value. A piece without = belongs to the value
// before it, so that weights such as 1:2:1 can be given.
func parameters(name, text string) (map[string]string, error) {
	given := make(map[string]string)
	if text == "" {
		return given, nil
	}
	var pairs []string
	for piece := range strings.SplitSeq(text, ":") {
		switch {
		case strings.Contains(piece, "="):
			pairs = append(pairs, piece)
		case len(pairs) > 0:
			pairs[len(pairs)-1] += ":" + piece
		default:
			return nil, misuse.Errorf("%s:%s: parameters are given as %s:key=value", name, text, name)
		}
	}
	for _, pair := range pairs {
		if err := addParameter(given, pair); err != nil {
			return nil, err
		}
	}
	return given, nil
}

// addParameter adds key=value to the parameters given.
func addParameter(given map[string]string, pair string) error {
	key, value, ok := strings.Cut(pair, "=")
	if !ok || key == "" {
		return misuse.Errorf("%q: parameters are given as key=value", pair)
	}
	if _, twice := given[key]; twice {
		return misuse.Errorf("the parameter %s is given twice", key)
	}
	given[key] = value
	return nil
}

// unknown is the error for a word that is neither a file nor a name. What looks like a path was meant
// as one.
func unknown(arg, name string) error {
	if strings.ContainsRune(arg, filepath.Separator) || filepath.Ext(name) != "" {
		return fmt.Errorf("there is no file %s", arg)
	}
	known := Names()
	if near := model.Nearest(name, known); near != "" {
		return fmt.Errorf("there is no file and no workload called %q: did you mean %s?", name, near)
	}
	return fmt.Errorf("there is no file and no workload called %q: workloads are %s", name, strings.Join(known, ", "))
}

// Names are the names that stand where a log can.
func Names() []string {
	var names []string
	for _, b := range bundled.Logs() {
		names = append(names, b.Name)
	}
	return append(names, generators()...)
}

func generators() []string {
	var names []string
	for _, g := range workload.Generators() {
		names = append(names, g.Name)
	}
	return names
}
