package phased

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/model"
)

// Entry is a built-in workload.
type Entry struct {
	Name    string
	Summary string
	Options []model.Option
	// apps are the names of its applications. Some may have no nodes.
	apps  []string
	build func(nodes int) (*Workload, error)
}

// List lists the built-in workloads.
func List() []Entry {
	var list []Entry
	for i := range paperWorkloads {
		list = append(list, Entry{
			Name: paperName(i), Summary: paperSummary(i), Options: paperOptions, apps: []string{"H", "L"},
			build: func(nodes int) (*Workload, error) { return paper(i, nodes) },
		})
	}
	return append(list, threeEntry, mpiEntry, asyncEntry)
}

// Load reads the file of that name, or makes the built-in workload for a cluster with the given
// number of nodes and settings: "W4:ratio=100:reuse=0.9".
func Load(spec string, nodes int) (*Workload, error) {
	info, err := os.Stat(spec)
	if err == nil && info.IsDir() && strings.ContainsAny(spec, "/\\") {
		return nil, fmt.Errorf("%s is a folder: name a file in it", spec)
	}
	if err == nil && !info.IsDir() {
		w, err := ReadFile(spec)
		if err != nil {
			return nil, err
		}
		if err := w.Validate(nodes); err != nil {
			return nil, fmt.Errorf("%s: %w", spec, err)
		}
		return w, nil
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) && strings.ContainsAny(spec, "/\\") {
		return nil, err
	}
	e, settings, err := find(spec)
	if err != nil {
		return nil, err
	}
	w, err := e.build(nodes)
	if err != nil {
		return nil, err
	}
	if err := e.tune(w, settings); err != nil {
		return nil, fmt.Errorf("%s: %w", e.Name, err)
	}
	if err := w.Validate(nodes); err != nil {
		return nil, fmt.Errorf("%s: %w", e.Name, err)
	}
	return w, nil
}

// find splits the specification of a built-in workload.
func find(spec string) (*Entry, model.Settings, error) {
	name, rest, _ := strings.Cut(spec, ":")
	list := List()
	i := slices.IndexFunc(list, func(e Entry) bool { return strings.EqualFold(e.Name, name) })
	if i < 0 {
		names := make([]string, len(list))
		for i := range list {
			names[i] = list[i].Name
		}
		if strings.ContainsAny(name, `/\`) || strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml") {
			return nil, nil, fmt.Errorf("there is no file %q", spec)
		}
		if near := model.Nearest(name, names); near != "" {
			return nil, nil, fmt.Errorf("there is no workload of kernels and no file called %q: did you mean %s?", name, near)
		}
		return nil, nil, fmt.Errorf("there is no workload of kernels and no file called %q: built in are %s", name, strings.Join(names, ", "))
	}
	settings, err := model.ReadSettings(list[i].Options, rest)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", list[i].Name, err)
	}
	return &list[i], settings, nil
}

// asItIs is the value of a setting that leaves the workload unchanged.
const asItIs = "own"

// options are the settings of a workload; the arguments are their defaults.
func options(ratio, cv, reuse, barrier, async, critical, iterations, processes string) []model.Option {
	return []model.Option{
		{Name: "ratio", Summary: "KB to upload for each ms of a kernel; half of it is downloaded", Default: ratio},
		{Name: "cv", Summary: "spread of all times, in means: 0 always the same, 1 exponential, others lognormal", Default: cv},
		{Name: "reuse", Summary: "part of a kernel's input, of 1, that its process's next one need not send to the same device", Default: reuse},
		{Name: "barrier", Summary: "yes: the processes of an application wait for each other after each step", Default: barrier},
		{Name: "async", Summary: "yes: processes do not wait for their kernels", Default: async},
		{Name: "critical", Summary: "applications, with commas between, whose GPUs are theirs where the policy protects them", Default: critical},
		{Name: "iterations", Summary: "steps of each process; 0 for no end", Default: iterations},
		{Name: "processes", Summary: "processes on each node; 0 for one a core", Default: processes},
	}
}

var (
	paperOptions   = options("10", "1", "0", "no", "no", "none", "0", "0")
	generalOptions = options(asItIs, asItIs, asItIs, asItIs, asItIs, asItIs, asItIs, asItIs)
)

// tune applies the settings to a workload.
func (e *Entry) tune(w *Workload, settings model.Settings) error {
	for _, o := range e.Options {
		value := settings[o.Name]
		if value == asItIs {
			continue
		}
		set, err := e.setting(o.Name, value)
		if err != nil {
			return fmt.Errorf("%s=%s: %w", o.Name, value, err)
		}
		for i := range w.Apps {
			set(&w.Apps[i])
		}
	}
	return nil
}

// setting is the effect of a setting on an application.
func (e *Entry) setting(name, value string) (func(*App), error) {
	switch name {
	case "ratio":
		ratio, err := ParseSize(value + "KB/ms")
		if err != nil {
			return nil, errors.New("give the KB for each ms, such as 10")
		}
		return func(a *App) {
			for i := range a.Steps {
				a.Steps[i].In, a.Steps[i].Out = ratio, Size{PerSecond: ratio.PerSecond / 2}
			}
		}, nil
	case "cv":
		cv, err := number(value, maxCV)
		return func(a *App) {
			for i := range a.Steps {
				s := &a.Steps[i]
				s.CPU.Dist, s.GPU.Dist = spread(s.CPU.Mean, cv), spread(s.GPU.Mean, cv)
			}
		}, err
	case "reuse":
		reuse, err := number(value, 1)
		return func(a *App) { a.Reuse = reuse }, err
	case "barrier":
		yes, err := flag(value)
		return func(a *App) { a.Barrier = yes }, err
	case "async":
		yes, err := flag(value)
		return func(a *App) { a.Async = yes }, err
	case "critical":
		critical, err := e.someApps(value)
		return func(a *App) { a.Critical = slices.Contains(critical, a.Name) }, err
	case "iterations":
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 0 {
			return nil, errors.New("give a whole number; 0 is without end")
		}
		return func(a *App) { a.Iterations = n }, nil
	default: // processes
		n, err := strconv.Atoi(value)
		if err != nil || n < 0 || n > maxProcesses {
			return nil, fmt.Errorf("give a whole number up to %d; 0 is one a core", maxProcesses)
		}
		return func(a *App) { a.PerNode = n }, nil
	}
}

func number(value string, most float64) (float64, error) {
	x, err := strconv.ParseFloat(value, 64)
	if err != nil || !(x >= 0 && x <= most) {
		return 0, fmt.Errorf("give a number from 0 to %v", most)
	}
	return x, nil
}

func flag(value string) (bool, error) {
	if value != "yes" && value != "no" {
		return false, errors.New("give yes or no")
	}
	return value == "yes", nil
}

// someApps parses names of applications.
func (e *Entry) someApps(value string) ([]string, error) {
	if value == "none" {
		return nil, nil
	}
	names := strings.Split(value, ",")
	for _, name := range names {
		if !slices.Contains(e.apps, name) {
			return nil, fmt.Errorf("there is no application %q: give none, or some of %s", name, strings.Join(e.apps, ","))
		}
	}
	return names, nil
}

// spread is a distribution of times with a mean and a coefficient of variation.
func spread(mean, cv float64) Dist {
	m := time.Duration(math.Round(mean))
	switch {
	case cv == 0 || m == 0:
		return ConstantOf(m)
	case cv == 1:
		return ExponentialOf(m)
	}
	return LognormalOf(m, cv)
}

// The built-in workloads that are not from a paper. Their numbers are invented; each shows a
// feature of workloads. With four processes per GPU, the GPUs have enough time for all.
var (
	threeEntry = Entry{
		Name: "three", Summary: "three applications whose times and sizes have different distributions", Options: generalOptions,
		apps: []string{"train", "render", "query"},
		build: func(nodes int) (*Workload, error) {
			n, err := divide("three", nodes, 3)
			if err != nil {
				return nil, err
			}
			return &Workload{Name: "three", Apps: []App{
				{Name: "train", Nodes: n[0], Reuse: 0.8, Steps: []Step{{
					CPU: Time{ErlangOf(300*time.Millisecond, 4)}, GPU: Time{LognormalOf(2*time.Second, 0.5)},
					In: Size{Bytes: ConstantOf[int64](40e6)}, Out: Size{Bytes: ConstantOf[int64](4e6)},
				}}},
				{Name: "render", Nodes: n[1], Steps: []Step{{
					CPU: Time{UniformOf(500*time.Millisecond, 1500*time.Millisecond)}, GPU: Time{ParetoOf(50*time.Millisecond, 20*time.Second, 1.2)},
					In: Size{PerSecond: 5e6}, Out: Size{Bytes: UniformOf[int64](1e6, 8e6)},
				}}},
				{Name: "query", Nodes: n[2], Steps: []Step{{
					CPU: Time{ExponentialOf(400 * time.Millisecond)}, GPU: Time{HyperexponentialOf(50*time.Millisecond, 3)},
					In: Size{Bytes: ExponentialOf[int64](1e6)}, Out: Size{Bytes: EmpiricalOf[int64](1e3, 1e3, 1e3, 50e3, 1e6)},
				}}},
			}}, nil
		},
	}
	mpiEntry = Entry{
		Name: "mpi", Summary: "a code of two kernels with a barrier after each, beside an application that uses GPUs little", Options: generalOptions,
		apps: []string{"solver", "light"},
		build: func(nodes int) (*Workload, error) {
			n, err := divide("mpi", nodes, 2)
			if err != nil {
				return nil, err
			}
			return &Workload{Name: "mpi", Apps: []App{
				{Name: "solver", Nodes: n[0], Barrier: true, Reuse: 0.9, Steps: []Step{
					{Kernel: "stencil", CPU: Time{ConstantOf(200 * time.Millisecond)}, GPU: Time{WeibullOf(800*time.Millisecond, 2)},
						In: Size{PerSecond: 10e6}, Out: Size{PerSecond: 1e6}},
					{Kernel: "reduce", CPU: Time{ConstantOf(50 * time.Millisecond)}, GPU: Time{UniformOf(40*time.Millisecond, 60*time.Millisecond)},
						In: Size{Bytes: ConstantOf[int64](200e3)}, Out: Size{Bytes: ConstantOf[int64](8)}},
				}},
				{Name: "light", Nodes: n[1], Steps: []Step{{
					CPU: Time{ExponentialOf(2 * time.Second)}, GPU: Time{ExponentialOf(200 * time.Millisecond)},
					In: Size{PerSecond: 10e6}, Out: Size{PerSecond: 5e6},
				}}},
			}}, nil
		},
	}
	asyncEntry = Entry{
		Name: "async", Summary: "an application that launches kernels without waiting for them, beside one that uses GPUs little", Options: generalOptions,
		apps: []string{"pipeline", "light"},
		build: func(nodes int) (*Workload, error) {
			n, err := divide("async", nodes, 2)
			if err != nil {
				return nil, err
			}
			return &Workload{Name: "async", Apps: []App{
				{Name: "pipeline", Nodes: n[0], Async: true, Steps: []Step{{
					CPU: Time{ErlangOf(time.Second, 2)}, GPU: Time{ExponentialOf(200 * time.Millisecond)},
					In: Size{Bytes: ExponentialOf[int64](4e6)}, Out: Size{PerSecond: 1e6},
				}}},
				{Name: "light", Nodes: n[1], Steps: []Step{{
					CPU: Time{ExponentialOf(2 * time.Second)}, GPU: Time{ExponentialOf(100 * time.Millisecond)},
					In: Size{PerSecond: 10e6}, Out: Size{PerSecond: 5e6},
				}}},
			}}, nil
		},
	}
)

// divide divides nodes among applications, as evenly as possible.
func divide(name string, nodes, apps int) ([]int, error) {
	if nodes < apps || nodes > maxNodes {
		return nil, fmt.Errorf("%s has %d applications: take at least as many nodes, not %d", name, apps, nodes)
	}
	shares := make([]int, apps)
	for i := range shares {
		shares[i] = nodes*(i+1)/apps - nodes*i/apps
	}
	return shares, nil
}
