package codefile

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"muster/ptx"
	"muster/ptx/fatbin"
	"muster/report"
)

// Remedy says how to get PTX into a program that has none.
const Remedy = "build it with PTX inside, for example with nvcc -gencode arch=compute_90,code=compute_90"

// Image is one form of a program in a file: PTX, or what only a real GPU
// can use.
type Image struct {
	Name   string // of the file, with the target where there may be several
	Kind   fatbin.Kind
	Arch   int
	Target string // "sm_90"; "" for a file of PTX text
	Text   string // of PTX
}

// Head is how much of a file is looked at before the rest is read.
const Head = 4096

// Read finds the images in a file, or in standard input for "-".
func Read(stdin io.Reader, path string) ([]Image, error) {
	f := Stream("stdin", stdin)
	if path != "-" {
		opened, file, err := Open(path)
		if err != nil {
			return nil, err
		}
		defer file.Close() // it was only read
		f = opened
	}
	head, err := f.Peek(Head)
	if err != nil {
		return nil, err
	}
	switch isELF := bytes.HasPrefix(head, []byte(elf.ELFMAG)); {
	case isELF && f.At != nil:
		return imagesOfELF(f.name, f.At)
	case isELF:
		data, err := f.All(f.Bound(MaxCode))
		if err != nil {
			return nil, err
		}
		return imagesOfELF(f.name, bytes.NewReader(data))
	case fatbin.Recognise(head):
		data, err := f.All(f.Bound(MaxCode))
		if err != nil {
			return nil, err
		}
		return imagesOfFatbin(f.name, data)
	}
	return imagesOfText(f)
}

// imagesOfText reads PTX text. NUL bytes at its end do not matter; elsewhere
// they tell that the file is none, however long it is.
func imagesOfText(f *File) ([]Image, error) {
	text := bytes.TrimRight(f.head, "\x00")
	switch {
	case bytes.IndexByte(text, 0) >= 0:
		return nil, fmt.Errorf("%s: this is neither PTX (it has bytes that are no text) nor a fat binary nor a program", f.name)
	case len(text) == 0 && len(f.head) == Head:
		return nil, fmt.Errorf("%s: this is no PTX text: it begins with %s", f.name, report.Plural(Head, "NUL byte"))
	case len(text) == 0 && len(f.head) > 0:
		return nil, fmt.Errorf("%s: this is no PTX text: it is %s and nothing else", f.name, report.Plural(len(f.head), "NUL byte"))
	}
	data, err := f.All(f.Bound(MaxText))
	if err != nil {
		return nil, err
	}
	switch {
	case len(bytes.TrimSpace(data)) == 0:
		return nil, fmt.Errorf("%s: the file is empty", f.name)
	case !bytes.Contains(data, []byte(".version")):
		return nil, fmt.Errorf("%s: this is neither PTX (it has no .version line) nor a fat binary nor a program: nvcc -ptx and clang -S --cuda-device-only write PTX", f.name)
	}
	return []Image{{Name: f.name, Kind: fatbin.PTX, Text: string(data)}}, nil
}

// Machine is the machine that a cubin's header names.
const Machine = elf.Machine(190)

// imagesOfELF finds the fat binaries in a program, library or object.
func imagesOfELF(name string, data io.ReaderAt) ([]Image, error) {
	f, err := elf.NewFile(fatbin.PlainELF(data))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	defer f.Close()
	if f.Machine == Machine {
		return []Image{{Name: name, Kind: fatbin.ELF, Target: "one GPU"}}, nil
	}
	sections, err := Sections(name, f)
	if err != nil {
		return nil, err
	}
	var images []Image
	for _, content := range sections {
		found, err := imagesOfFatbin(name, content)
		if err != nil {
			return nil, err
		}
		images = append(images, found...)
	}
	if len(images) == 0 {
		return nil, fmt.Errorf("%s: the program holds no GPU code (it has no section .nv_fatbin)", name)
	}
	return images, nil
}

// Sections returns the sections of a program in which there are fat
// binaries.
func Sections(name string, f *elf.File) ([][]byte, error) {
	var found [][]byte
	for _, section := range []string{".nv_fatbin", "__nv_relfatbin"} {
		s := f.Section(section)
		if s == nil || s.Type == elf.SHT_NOBITS {
			continue
		}
		if s.Size > MaxCode {
			return nil, fmt.Errorf("%s: section %s has %d bytes, at most %d are read", name, section, s.Size, int64(MaxCode))
		}
		content, err := s.Data()
		if err != nil {
			return nil, fmt.Errorf("%s: section %s: %w", name, section, err)
		}
		if len(content) > 0 {
			found = append(found, content)
		}
	}
	return found, nil
}

func imagesOfFatbin(name string, data []byte) ([]Image, error) {
	entries, err := fatbin.Open(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var images []Image
	for i := range entries {
		e := &entries[i]
		images = append(images, Image{
			Name: fmt.Sprintf("%s(%s)", name, e.Target()), Kind: e.Kind, Arch: e.Arch, Target: e.Target(), Text: string(e.Data),
		})
		if e.Kind != fatbin.PTX {
			images[i].Text = ""
		}
	}
	if len(images) == 0 {
		return nil, fmt.Errorf("%s: the fat binary is empty", name)
	}
	return images, nil
}

// Modules reads the PTX among the images, for the newest targets first. It
// is an error if there is none.
func Modules(path string, images []Image) ([]Module, error) {
	var modules []Module
	var errs []error
	for _, image := range images {
		if image.Kind != fatbin.PTX {
			continue
		}
		m, err := ptx.Parse(image.Name, image.Text)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		modules = append(modules, Module{image, m})
	}
	if len(modules) > 0 {
		slices.SortStableFunc(modules, func(a, b Module) int { return b.Image.Arch - a.Image.Arch })
		return modules, nil
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return nil, fmt.Errorf("%s: there is only machine code for %s inside, which real GPUs alone can run: %s", path, Targets(images), Remedy)
}

// Module is PTX that could be read.
type Module struct {
	Image Image
	Tree  *ptx.Module
}

// Kernels returns the kernels of a module.
func (m *Module) Kernels() []*ptx.Function {
	var found []*ptx.Function
	for _, f := range m.Tree.Functions {
		if f.Entry && f.Defined {
			found = append(found, f)
		}
	}
	return found
}

// Only returns the module without the kernels that keep refuses, so that what
// they use does not matter.
func (m *Module) Only(keep func(kernel string) bool) *ptx.Module {
	reduced := *m.Tree
	reduced.Functions = slices.DeleteFunc(slices.Clone(m.Tree.Functions), func(f *ptx.Function) bool { return f.Entry && !keep(f.Name) })
	return &reduced
}

// Targets names what images are for: "sm_75, sm_90".
func Targets(images []Image) string {
	var names []string
	for _, image := range images {
		if !slices.Contains(names, image.Target) {
			names = append(names, image.Target)
		}
	}
	return strings.Join(names, ", ")
}
