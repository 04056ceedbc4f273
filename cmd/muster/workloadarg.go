package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"muster/model"
	"muster/workload"
	"muster/workload/bundled"
)

const workloadArgHelp = `A workload is a log (swf, sacct, pbs, openb, philly, csv or submit, gzipped or not),
the record of a head or of a Slurm's driver (--record), which has its cluster with it,
the name of a bundled log, or a generator with its parameters:

  log.swf.gz   small   congested   congested:jobs=200:max_nodes=2:gpu_mix=1:2:1

A file of that name wins over a name, a folder does not; - is a log on standard input.`

// loadWorkload finds the workload that an argument names: a file, a bundled log,
// or a generator with parameters. What it returns makes the workload for a seed,
// or reads the log, once, whatever the seed; the jobs of a log are shared by all
// calls and must not be changed. Only a log has a report.
func loadWorkload(arg string, opt workload.ReadOptions) (func(seed uint64) (*workload.Workload, *workload.ReadReport, error), error) {
	if info, err := os.Stat(arg); err == nil && !(info.IsDir() && isWorkloadName(arg)) {
		if isHistory(arg) {
			return readOnce(func() (*workload.Workload, *workload.ReadReport, error) { return historyWorkload(arg) }), nil
		}
		return readOnce(func() (*workload.Workload, *workload.ReadReport, error) { return workload.ReadFile(arg, opt) }), nil
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return namedWorkload(arg, opt)
}

// isWorkloadName says whether an argument is the name of a bundled log or of a generator.
func isWorkloadName(arg string) bool {
	name, _, _ := strings.Cut(arg, ":")
	return slices.ContainsFunc(bundled.Logs(), func(b bundled.Log) bool { return b.Name == arg }) || slices.Contains(generatorNames(), name)
}

// namedWorkload is one that comes with Muster, whatever files there are.
func namedWorkload(arg string, opt workload.ReadOptions) (func(seed uint64) (*workload.Workload, *workload.ReadReport, error), error) {
	for _, b := range bundled.Logs() {
		if b.Name == arg {
			return readOnce(func() (*workload.Workload, *workload.ReadReport, error) {
				opt.Format = ""
				return workload.Read(bytes.NewReader(b.Data()), b.File, opt)
			}), nil
		}
	}
	name, rest, _ := strings.Cut(arg, ":")
	if !slices.Contains(generatorNames(), name) {
		return nil, unknownWorkload(arg, name)
	}
	given, err := generatorParameters(name, rest)
	if err != nil {
		return nil, err
	}
	return func(seed uint64) (*workload.Workload, *workload.ReadReport, error) {
		wl, err := generate(name, given, seed)
		return wl, nil, err
	}, nil
}

func readOnce(read func() (*workload.Workload, *workload.ReadReport, error)) func(uint64) (*workload.Workload, *workload.ReadReport, error) {
	var once sync.Once
	var wl *workload.Workload
	var report *workload.ReadReport
	var err error
	return func(uint64) (*workload.Workload, *workload.ReadReport, error) {
		once.Do(func() { wl, report, err = read() })
		return wl, report, err
	}
}

// generate makes a synthetic workload; all that can be wrong with it is what was
// asked for.
func generate(name string, given map[string]string, seed uint64) (*workload.Workload, error) {
	wl, err := workload.Generate(name, given, seed)
	if err != nil {
		return nil, usageErrorf("%v", err)
	}
	return wl, nil
}

// generatorParameters reads key=value:key=value. A piece without = belongs to the
// value before it, so that weights such as 1:2:1 can be given.
func generatorParameters(name, text string) (map[string]string, error) {
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
			return nil, usageErrorf("%s:%s: parameters are given as %s:key=value", name, text, name)
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
		return usageErrorf("%q: parameters are given as key=value", pair)
	}
	if _, twice := given[key]; twice {
		return usageErrorf("the parameter %s is given twice", key)
	}
	given[key] = value
	return nil
}

// unknownWorkload is the error for a word that is neither a file nor a name. What
// looks like a path was meant as one.
func unknownWorkload(arg, name string) error {
	if strings.ContainsRune(arg, filepath.Separator) || filepath.Ext(name) != "" {
		return fmt.Errorf("there is no file %s", arg)
	}
	known := workloadNames()
	if near := model.Nearest(name, known); near != "" {
		return fmt.Errorf("there is no file and no workload called %q: did you mean %s?", name, near)
	}
	return fmt.Errorf("there is no file and no workload called %q: workloads are %s", name, strings.Join(known, ", "))
}

// workloadNames are the names that stand where a log can.
func workloadNames() []string {
	var names []string
	for _, b := range bundled.Logs() {
		names = append(names, b.Name)
	}
	return append(names, generatorNames()...)
}

func generatorNames() []string {
	var names []string
	for _, g := range workload.Generators() {
		names = append(names, g.Name)
	}
	return names
}
