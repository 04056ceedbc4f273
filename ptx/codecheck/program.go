package codecheck

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"slices"
	"strings"

	"muster/ptx/codefile"
	"muster/ptx/fatbin"
	"muster/shim/functions"
)

// Program is what was found in one file.
type Program struct {
	File      string     `json:"file"`
	Error     string     `json:"error"`   // why it cannot be read; "" if it can
	Refused   int        `json:"refused"` // what counts for the exit status
	Runtime   bool       `json:"runtime"` // the CUDA runtime is inside
	Functions []Function `json:"functions"`
	Kernels   []Kernel   `json:"kernels"`
	Libraries []Library  `json:"libraries"`
	lib       string     // the folder of Muster's own
}

// Function is one of CUDA's driver that a program uses.
type Function struct {
	Name     string `json:"name"`
	Imported bool   `json:"imported"` // else it is only named
	State    string `json:"state"`
	Why      string `json:"why"`
	state    functions.State
}

// Kernel is a kernel in all its forms.
type Kernel struct {
	Name    string    `json:"name"`
	Targets []string  `json:"targets"` // that there is machine code for
	PTX     []string  `json:"ptx"`     // the targets of its PTX
	Errors  []Problem `json:"errors"`  // why a software GPU cannot run its newest PTX
	newest  int       // the architecture of the newest PTX
	place   string    // and what it is for
}

// soft says whether a software GPU can run the kernel.
func (k *Kernel) soft() bool { return len(k.PTX) > 0 && len(k.Errors) == 0 }

// Library is one that a program needs.
type Library struct {
	Name string `json:"name"`
	Path string `json:"path"` // "" if it is not found
}

// CheckProgram finds out about one file. Lib is the folder of Muster's own libraries, or "".
func CheckProgram(stdin io.Reader, path, lib string) Program {
	p := Program{File: path, lib: lib, Functions: []Function{}, Libraries: []Library{}}
	kernels := &kernelsFound{at: map[string]int{}}
	if err := p.read(stdin, path, kernels); err != nil {
		p.Error = err.Error()
		if !strings.Contains(p.Error, path) {
			p.Error = path + ": " + p.Error
		}
	}
	p.Kernels = kernels.sorted()
	return p
}

func (p *Program) read(stdin io.Reader, path string, kernels *kernelsFound) error {
	f, file, err := codefile.Open(path)
	if err != nil {
		return err
	}
	defer file.Close() // it was only read
	if f.At == nil {
		return fmt.Errorf("%s: this is no ordinary file", path)
	}
	head, err := f.Peek(codefile.Head)
	if err != nil {
		return err
	}
	if bytes.HasPrefix(head, []byte(elf.ELFMAG)) {
		return p.readELF(path, f.At, kernels)
	}
	if fatbin.Recognise(head) {
		content, err := f.All(f.Bound(codefile.MaxCode))
		if err != nil {
			return err
		}
		return kernels.addFatbin(content)
	}
	images, err := codefile.Read(stdin, path)
	for i := range images {
		kernels.add(&images[i])
	}
	return err
}

// readELF looks at a program, a library, or a cubin.
func (p *Program) readELF(path string, data io.ReaderAt, kernels *kernelsFound) error {
	f, err := elf.NewFile(fatbin.PlainELF(data))
	if err != nil {
		return err
	}
	defer f.Close()
	if f.Machine == codefile.Machine {
		return kernels.addCubin(data, "one GPU")
	}
	if err := p.readFunctions(f, kernels); err != nil {
		return err
	}
	p.readLibraries(path, f)
	sections, err := codefile.Sections(path, f)
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

// Count says how much of the program is refused.
func (p *Program) Count(onReal bool) {
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
func (f *Function) counts(runtime, onReal bool) bool {
	if runtime && !f.Imported {
		return false
	}
	return f.state == functions.Refused || f.state == functions.RealOnly && !onReal
}

// kernelsFound collects kernels by name.
type kernelsFound struct {
	all []Kernel
	at  map[string]int
}

func (l *kernelsFound) kernel(name string) *Kernel {
	i, known := l.at[name]
	if !known {
		i = len(l.all)
		l.at[name] = i
		l.all = append(l.all, Kernel{Name: name, Targets: []string{}, PTX: []string{}, Errors: []Problem{}})
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
			l.add(&codefile.Image{Name: e.Target(), Kind: e.Kind, Arch: e.Arch, Target: e.Target(), Text: string(e.Data)})
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
func (l *kernelsFound) add(image *codefile.Image) {
	if image.Kind != fatbin.PTX {
		return
	}
	found := checkImage(image)
	if len(found.Errors) > 0 {
		found.Kernels = append(found.Kernels, PTXKernel{Name: "(all of the PTX)", Errors: found.Errors})
	}
	for _, checked := range found.Kernels {
		k := l.kernel(checked.Name)
		if !slices.Contains(k.PTX, found.Target) {
			k.PTX = append(k.PTX, found.Target)
		}
		if image.Arch >= k.newest {
			k.newest, k.place, k.Errors = image.Arch, found.Target, checked.Errors
		}
	}
}

func (l *kernelsFound) sorted() []Kernel {
	all := slices.Clone(l.all)
	if all == nil {
		all = []Kernel{}
	}
	slices.SortFunc(all, func(a, b Kernel) int { return strings.Compare(a.Name, b.Name) })
	return all
}
