package phased

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"

	"muster/internal/wholefile"
	"muster/model/strictyaml"
)

// fileLimit is more than the largest supported workload needs.
var fileLimit = wholefile.Limit{Bytes: 16 << 20, Remedy: "is it a workload of kernels?"}

// Read reads a workload from strict YAML. Errors name file, line, column and remedy.
func Read(r io.Reader, file string) (*Workload, error) {
	text, err := fileLimit.Read(r, file)
	if err != nil {
		return nil, err
	}
	return decode(text, file)
}

// ReadFile reads the workload in a file.
func ReadFile(path string) (*Workload, error) {
	text, err := fileLimit.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return decode(text, path)
}

func decode(text []byte, file string) (*Workload, error) {
	d := &decoder{File: strictyaml.File{
		Name: file, What: "a workload of kernels",
		Empty: "describe applications, as applications: [{name: a, nodes: 4, cpu: 1s, gpu: exponential(2s)}]",
	}}
	root, err := d.Parse(text)
	if err != nil {
		return nil, err
	}
	return d.workload(root)
}

// decoder turns the syntax tree of one file into a workload.
type decoder struct{ strictyaml.File }

const addApplication = "add - {name: a, nodes: 4, cpu: 1s, gpu: exponential(2s)}"

func (d *decoder) workload(root strictyaml.Node) (*Workload, error) {
	var w Workload
	given, err := d.Fields(root, d.What,
		strictyaml.Key("name", d.Identifier("name", &w.Name)),
		strictyaml.Key("applications", func(n strictyaml.Node) error {
			items, ok := strictyaml.Items(n)
			if !ok {
				return d.Errorf(strictyaml.Start(n), "applications must be a list, not %s: %s", strictyaml.Kind(n), addApplication)
			}
			if len(items) == 0 {
				return d.Errorf(strictyaml.Start(n), "the list of applications is empty: %s", addApplication)
			}
			if len(items) > maxApps {
				return d.Errorf(strictyaml.Start(n), "there are %d applications: at most %d are supported", len(items), maxApps)
			}
			lines := map[string]int{}
			for _, item := range items {
				app, err := d.app(item)
				if err != nil {
					return err
				}
				at := strictyaml.Start(item)
				if line, twice := lines[app.Name]; twice {
					return d.Errorf(at, "application %s is described twice, first on line %d: give each a name of its own", app.Name, line)
				}
				lines[app.Name] = at.Line
				w.Apps = append(w.Apps, app)
			}
			return nil
		}),
	)
	if err != nil {
		return nil, err
	}
	if !given["applications"] {
		return nil, d.Errorf(strictyaml.Start(root), "there are no applications: write applications: and below it %s", strings.TrimPrefix(addApplication, "add "))
	}
	return &w, nil
}

func (d *decoder) app(n strictyaml.Node) (App, error) {
	var a App
	var inline Step
	fields := append(d.stepFields(&inline),
		strictyaml.Key("name", d.Identifier("name", &a.Name)),
		strictyaml.Key("nodes", d.Count("nodes", 1, maxNodes, &a.Nodes)),
		strictyaml.Key("processes", d.Count("processes", 1, maxProcesses, &a.PerNode)),
		strictyaml.Key("steps", func(n strictyaml.Node) error {
			items, ok := strictyaml.Items(n)
			if !ok || len(items) == 0 || len(items) > maxSteps {
				return d.Errorf(strictyaml.Start(n), "steps must be a list of 1 to %d: add - {cpu: 1s, gpu: exponential(2s)}", maxSteps)
			}
			for _, item := range items {
				var s Step
				if err := d.step(item, &s); err != nil {
					return err
				}
				a.Steps = append(a.Steps, s)
			}
			return nil
		}),
		strictyaml.Key("iterations", strictyaml.Value(&d.File, "iterations", &a.Iterations, parseIterations)),
		strictyaml.Key("barrier", d.Bool("barrier", &a.Barrier)),
		strictyaml.Key("async", d.Bool("async", &a.Async)),
		strictyaml.Key("reuse", d.Number("reuse", "from 0 to 1", func(x float64) bool { return x >= 0 && x <= 1 }, &a.Reuse)),
		strictyaml.Key("critical", d.Bool("critical", &a.Critical)),
	)
	given, err := d.Fields(n, "an application", fields...)
	if err != nil {
		return a, err
	}
	at := strictyaml.Start(n)
	for _, need := range []struct{ key, example string }{{"name", "solver"}, {"nodes", "4"}} {
		if !given[need.key] {
			return a, d.Errorf(at, "this application has no %s: add %s: %s", need.key, need.key, need.example)
		}
	}
	switch single := given["cpu"] || given["gpu"] || given["upload"] || given["download"] || given["kernel"]; {
	case single && given["steps"]:
		return a, d.Errorf(at, "application %s has steps, and a step beside them: move it into the list", a.Name)
	case !single && !given["steps"]:
		return a, d.Errorf(at, "application %s does nothing: add cpu: 1s and gpu: exponential(2s), or steps", a.Name)
	case single:
		if !given["gpu"] {
			return a, d.noKernel(at)
		}
		a.Steps = []Step{inline}
	}
	if err := a.validate(); err != nil {
		return a, d.Errorf(at, "application %s: %v", a.Name, err)
	}
	return a, nil
}

func parseIterations(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("must be a whole number from 1, not %q: leave it out for no end", s)
	}
	return n, nil
}

func (d *decoder) noKernel(at strictyaml.Place) error {
	return d.Errorf(at, "there is no kernel: add gpu: exponential(2s)")
}

func (d *decoder) step(n strictyaml.Node, s *Step) error {
	given, err := d.Fields(n, "a step", d.stepFields(s)...)
	if err != nil {
		return err
	}
	if !given["gpu"] {
		return d.noKernel(strictyaml.Start(n))
	}
	return nil
}

// stepFields are the keys of a step.
func (d *decoder) stepFields(s *Step) []strictyaml.Field {
	return []strictyaml.Field{
		strictyaml.Key("kernel", d.Identifier("kernel", &s.Kernel)),
		strictyaml.Key("cpu", strictyaml.Value(&d.File, "cpu", &s.CPU, ParseTime)),
		strictyaml.Key("gpu", strictyaml.Value(&d.File, "gpu", &s.GPU, ParseTime)),
		strictyaml.Key("upload", strictyaml.Value(&d.File, "upload", &s.In, ParseSize)),
		strictyaml.Key("download", strictyaml.Value(&d.File, "download", &s.Out, ParseSize)),
	}
}

// Write writes a workload in the form that Read reads.
func (w *Workload) Write(to io.Writer) error {
	if err := w.Validate(0); err != nil {
		return err
	}
	b := bufio.NewWriter(to)
	if w.Name != "" {
		fmt.Fprintf(b, "name: %s\n", strictyaml.Quote(w.Name))
	}
	fmt.Fprintln(b, "applications:")
	for i := range w.Apps {
		w.Apps[i].write(b)
	}
	return b.Flush()
}

// String is the output of Write, or the error if the workload is invalid.
func (w *Workload) String() string {
	var b strings.Builder
	if err := w.Write(&b); err != nil {
		return err.Error()
	}
	return b.String()
}

func (a *App) write(b *bufio.Writer) {
	fmt.Fprintf(b, "  - name: %s\n", strictyaml.Quote(a.Name))
	fmt.Fprintf(b, "    nodes: %d\n", a.Nodes)
	if a.PerNode > 0 {
		fmt.Fprintf(b, "    processes: %d\n", a.PerNode)
	}
	if len(a.Steps) == 1 {
		a.Steps[0].write(b, "    ", "    ")
	} else {
		fmt.Fprintln(b, "    steps:")
		for i := range a.Steps {
			a.Steps[i].write(b, "      - ", "        ")
		}
	}
	if a.Iterations > 0 {
		fmt.Fprintf(b, "    iterations: %d\n", a.Iterations)
	}
	if a.Barrier {
		fmt.Fprintln(b, "    barrier: true")
	}
	if a.Async {
		fmt.Fprintln(b, "    async: true")
	}
	if a.Reuse > 0 {
		fmt.Fprintf(b, "    reuse: %s\n", strconv.FormatFloat(a.Reuse, 'g', -1, 64))
	}
	if a.Critical {
		fmt.Fprintln(b, "    critical: true")
	}
}

// write writes the lines of a step, but only for the fields that are set.
func (s *Step) write(b *bufio.Writer, first, indent string) {
	line := func(key, value string) {
		fmt.Fprintf(b, "%s%s: %s\n", first, key, value)
		first = indent
	}
	if s.Kernel != "" {
		line("kernel", strictyaml.Quote(s.Kernel))
	}
	if s.CPU != (Time{}) {
		line("cpu", s.CPU.String())
	}
	line("gpu", s.GPU.String())
	if s.In != (Size{}) {
		line("upload", s.In.String())
	}
	if s.Out != (Size{}) {
		line("download", s.Out.String())
	}
}
