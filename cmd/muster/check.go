package main

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"muster/device/fatbin"
	"muster/shim/functions"
)

const checkHelp = `List what a program will ask for, before it is run, and what of it is refused:

  functions  of CUDA's driver that it imports, or that it has the names of, to ask
             for them when it runs; docs/compatibility.md lists them all
  kernels    for which GPUs they are compiled. Software GPUs need PTX: kernels that
             have none, or use instructions that software GPUs do not know, run on
             real GPUs only
  libraries  that it needs, and whether they are found where the loader will look
             under muster run

PROGRAM is an executable, a shared library (for a Python package: its .so files), a
fat binary, a cubin or PTX text. Nothing is run. The exit status is 1 if something
is refused.

A program that has the CUDA runtime inside (nvcc's default) has the names of nearly
all functions in it and calls few of them. Of such a program only the functions that
it imports count; those it merely names are counted together.`

func newCheck() *cobra.Command {
	var asJSON, onReal bool
	c := &cobra.Command{
		Use:     "check PROGRAM... [--real] [--json]",
		Short:   "Say what of a program will be refused, before it is run",
		Long:    checkHelp,
		Example: "  muster check ./program\n  muster check --real $(find venv/lib -name '*.so')\n  muster check --json a.out | jq '.files[].functions[] | select(.state == \"refused\")'",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageErrorf("name one program or more")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return checkPrograms(c, args, onReal, asJSON) },
	}
	c.Flags().BoolVar(&onReal, "real", false, "the program will have real GPUs: do not mind what only software GPUs refuse")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return c
}

// checkJSON is the document of muster check --json.
type checkJSON struct {
	Refused bool           `json:"refused"`
	Files   []programCheck `json:"files"`
}

// programCheck is what was found in one file.
type programCheck struct {
	File      string          `json:"file"`
	Error     string          `json:"error"`   // why it cannot be read; "" if it can
	Refused   int             `json:"refused"` // what counts for the exit status
	Runtime   bool            `json:"runtime"` // the CUDA runtime is inside
	Functions []functionCheck `json:"functions"`
	Kernels   []kernelCheck   `json:"kernels"`
	Libraries []libraryCheck  `json:"libraries"`
}

type functionCheck struct {
	Name     string `json:"name"`
	Imported bool   `json:"imported"` // else it is only named
	State    string `json:"state"`
	Why      string `json:"why"`
	state    functions.State
}

// kernelCheck is a kernel in all its forms.
type kernelCheck struct {
	Name    string          `json:"name"`
	Targets []string        `json:"targets"` // that there is machine code for
	PTX     []string        `json:"ptx"`     // the targets of its PTX
	Errors  []ptxErrorCheck `json:"errors"`  // why a software GPU cannot run its newest PTX
	newest  int             // the architecture of the newest PTX
	place   string          // and what it is for
}

// soft says whether a software GPU can run the kernel.
func (k *kernelCheck) soft() bool { return len(k.PTX) > 0 && len(k.Errors) == 0 }

type libraryCheck struct {
	Name string `json:"name"`
	Path string `json:"path"` // "" if it is not found
}

func checkPrograms(c *cobra.Command, paths []string, onReal, asJSON bool) error {
	doc := checkJSON{Files: []programCheck{}}
	bad := 0
	for _, path := range paths {
		found := checkProgram(c.InOrStdin(), path)
		found.count(onReal)
		if found.Refused > 0 || found.Error != "" {
			bad++
		}
		if !asJSON {
			if err := found.write(c.OutOrStdout(), c.ErrOrStderr()); err != nil {
				return err
			}
		}
		doc.Files = append(doc.Files, found)
	}
	doc.Refused = bad > 0
	if asJSON {
		if err := printJSON(c, doc); err != nil {
			return err
		}
	}
	if bad > 0 {
		return fmt.Errorf("in %d of %s something is refused, or cannot be read", bad, counted(len(paths), "file"))
	}
	return nil
}

// checkProgram finds out about one file.
func checkProgram(stdin io.Reader, path string) programCheck {
	p := programCheck{File: path, Functions: []functionCheck{}, Libraries: []libraryCheck{}}
	kernels := &kernelsFound{at: map[string]int{}}
	if err := p.read(stdin, path, kernels); err != nil {
		p.Error = plainly(err)
		if !strings.Contains(p.Error, path) {
			p.Error = path + ": " + p.Error
		}
	}
	p.Kernels = kernels.sorted()
	return p
}

func (p *programCheck) read(stdin io.Reader, path string, kernels *kernelsFound) error {
	f, file, err := openBounded(path)
	if err != nil {
		return err
	}
	defer file.Close() // it was only read
	if f.at == nil {
		return fmt.Errorf("%s: this is no ordinary file", path)
	}
	head, err := f.peek(textHead)
	if err != nil {
		return err
	}
	if bytes.HasPrefix(head, []byte(elf.ELFMAG)) {
		return p.readELF(path, f.at, kernels)
	}
	if fatbin.Recognise(head) {
		content, err := f.all(f.ordinary(maxGPUCode))
		if err != nil {
			return err
		}
		return kernels.addFatbin(content)
	}
	images, err := readImages(stdin, path)
	for i := range images {
		kernels.add(&images[i])
	}
	return err
}

// readELF looks at a program, a library, or a cubin.
func (p *programCheck) readELF(path string, data io.ReaderAt, kernels *kernelsFound) error {
	f, err := elf.NewFile(fatbin.PlainELF(data))
	if err != nil {
		return err
	}
	defer f.Close()
	if f.Machine == cudaMachine {
		return kernels.addCubin(data, "one GPU")
	}
	if err := p.readFunctions(f, kernels); err != nil {
		return err
	}
	p.readLibraries(path, f)
	sections, err := fatbinSections(path, f)
	if err != nil {
		return err
	}
	for _, content := range sections {
		if err := kernels.addFatbin(content); err != nil {
			return err
		}
	}
	return nil
}

// count says how much of the program is refused.
func (p *programCheck) count(onReal bool) {
	for _, f := range p.Functions {
		if f.counts(p.Runtime, onReal) {
			p.Refused++
		}
	}
	if onReal {
		return
	}
	for i := range p.Kernels {
		if !p.Kernels[i].soft() {
			p.Refused++
		}
	}
}

// counts says whether the program is likely to be refused this function. The
// runtime names functions that it hardly ever calls.
func (f *functionCheck) counts(runtime, onReal bool) bool {
	if runtime && !f.Imported {
		return false
	}
	return f.state == functions.Refused || f.state == functions.RealOnly && !onReal
}

// kernelsFound collects kernels by name.
type kernelsFound struct {
	all []kernelCheck
	at  map[string]int
}

func (l *kernelsFound) kernel(name string) *kernelCheck {
	i, known := l.at[name]
	if !known {
		i = len(l.all)
		l.at[name] = i
		l.all = append(l.all, kernelCheck{Name: name, Targets: []string{}, PTX: []string{}, Errors: []ptxErrorCheck{}})
	}
	return &l.all[i]
}

// addFatbin looks at one entry after the other, since all together may be more
// than fits into memory.
func (l *kernelsFound) addFatbin(content []byte) error {
	entries, err := fatbin.List(content)
	if err != nil {
		return err
	}
	for i := range entries {
		e := entries[i]
		if e.Kind != fatbin.PTX && e.Kind != fatbin.ELF {
			continue
		}
		if err := e.Load(); err != nil {
			return err
		}
		if e.Kind == fatbin.PTX {
			l.add(&gpuImage{name: e.Target(), kind: e.Kind, arch: e.Arch, target: e.Target(), text: string(e.Data)})
		} else if err := l.addCubin(bytes.NewReader(e.Data), e.Target()); err != nil {
			return fmt.Errorf("machine code for %s: %w", e.Target(), err)
		}
	}
	return nil
}

func (l *kernelsFound) addCubin(cubin io.ReaderAt, target string) error {
	names, err := fatbin.Kernels(cubin)
	for _, name := range names {
		k := l.kernel(name)
		if !slices.Contains(k.Targets, target) {
			k.Targets = append(k.Targets, target)
		}
	}
	return err
}

// add looks at PTX. Text that cannot be read at all is a kernel without a name.
func (l *kernelsFound) add(image *gpuImage) {
	if image.kind != fatbin.PTX {
		return
	}
	found := checkImage(image)
	if len(found.Errors) > 0 {
		found.Kernels = append(found.Kernels, ptxKernelCheck{Name: "(all of the PTX)", Errors: found.Errors})
	}
	for _, checked := range found.Kernels {
		k := l.kernel(checked.Name)
		if !slices.Contains(k.PTX, found.Target) {
			k.PTX = append(k.PTX, found.Target)
		}
		if image.arch >= k.newest {
			k.newest, k.place, k.Errors = image.arch, found.Target, checked.Errors
		}
	}
}

func (l *kernelsFound) sorted() []kernelCheck {
	all := slices.Clone(l.all)
	if all == nil {
		all = []kernelCheck{}
	}
	slices.SortFunc(all, func(a, b kernelCheck) int { return strings.Compare(a.Name, b.Name) })
	return all
}
