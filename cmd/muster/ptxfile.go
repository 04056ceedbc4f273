package main

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"muster/device/fatbin"
	"muster/ptx"
	"muster/report"
)

// ptxRemedy says how to get PTX into a program that has none.
const ptxRemedy = "build it with PTX inside, for example with nvcc -gencode arch=compute_90,code=compute_90"

// gpuImage is one form of a program in a file: PTX, or what only a real GPU
// can use.
type gpuImage struct {
	name   string // of the file, with the target where there may be several
	kind   fatbin.Kind
	arch   int
	target string // "sm_90"; "" for a file of PTX text
	text   string // of PTX
}

// textHead is how much of a file is looked at before the rest is read.
const textHead = 4096

// readImages finds the images in a file, or in standard input for "-".
func readImages(stdin io.Reader, path string) ([]gpuImage, error) {
	f := &boundedFile{name: "stdin", r: stdin, size: -1}
	if path != "-" {
		opened, file, err := openBounded(path)
		if err != nil {
			return nil, err
		}
		defer file.Close() // it was only read
		f = opened
	}
	head, err := f.peek(textHead)
	if err != nil {
		return nil, err
	}
	switch isELF := bytes.HasPrefix(head, []byte(elf.ELFMAG)); {
	case isELF && f.at != nil:
		return imagesOfELF(f.name, f.at)
	case isELF:
		data, err := f.all(f.ordinary(maxGPUCode))
		if err != nil {
			return nil, err
		}
		return imagesOfELF(f.name, bytes.NewReader(data))
	case fatbin.Recognise(head):
		data, err := f.all(f.ordinary(maxGPUCode))
		if err != nil {
			return nil, err
		}
		return imagesOfFatbin(f.name, data)
	}
	return imagesOfText(f)
}

// imagesOfText reads PTX text. NUL bytes at its end do not matter; elsewhere
// they tell that the file is none, however long it is.
func imagesOfText(f *boundedFile) ([]gpuImage, error) {
	text := bytes.TrimRight(f.head, "\x00")
	switch {
	case bytes.IndexByte(text, 0) >= 0:
		return nil, fmt.Errorf("%s: this is neither PTX (it has bytes that are no text) nor a fat binary nor a program", f.name)
	case len(text) == 0 && len(f.head) == textHead:
		return nil, fmt.Errorf("%s: this is no PTX text: it begins with %s", f.name, report.Plural(textHead, "NUL byte"))
	case len(text) == 0 && len(f.head) > 0:
		return nil, fmt.Errorf("%s: this is no PTX text: it is %s and nothing else", f.name, report.Plural(len(f.head), "NUL byte"))
	}
	data, err := f.all(f.ordinary(maxPTXText))
	if err != nil {
		return nil, err
	}
	switch {
	case len(bytes.TrimSpace(data)) == 0:
		return nil, fmt.Errorf("%s: the file is empty", f.name)
	case !bytes.Contains(data, []byte(".version")):
		return nil, fmt.Errorf("%s: this is neither PTX (it has no .version line) nor a fat binary nor a program: nvcc -ptx and clang -S --cuda-device-only write PTX", f.name)
	}
	return []gpuImage{{name: f.name, kind: fatbin.PTX, text: string(data)}}, nil
}

// cudaMachine is the machine that a cubin's header names.
const cudaMachine = elf.Machine(190)

// imagesOfELF finds the fat binaries in a program, library or object.
func imagesOfELF(name string, data io.ReaderAt) ([]gpuImage, error) {
	f, err := elf.NewFile(fatbin.PlainELF(data))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	defer f.Close()
	if f.Machine == cudaMachine {
		return []gpuImage{{name: name, kind: fatbin.ELF, target: "one GPU"}}, nil
	}
	sections, err := fatbinSections(name, f)
	if err != nil {
		return nil, err
	}
	var images []gpuImage
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

// fatbinSections returns the sections of a program in which there are fat
// binaries.
func fatbinSections(name string, f *elf.File) ([][]byte, error) {
	var found [][]byte
	for _, section := range []string{".nv_fatbin", "__nv_relfatbin"} {
		s := f.Section(section)
		if s == nil || s.Type == elf.SHT_NOBITS {
			continue
		}
		if s.Size > maxGPUCode {
			return nil, fmt.Errorf("%s: section %s has %d bytes, at most %d are read", name, section, s.Size, int64(maxGPUCode))
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

func imagesOfFatbin(name string, data []byte) ([]gpuImage, error) {
	entries, err := fatbin.Open(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var images []gpuImage
	for i := range entries {
		e := &entries[i]
		images = append(images, gpuImage{
			name: fmt.Sprintf("%s(%s)", name, e.Target()), kind: e.Kind, arch: e.Arch, target: e.Target(), text: string(e.Data),
		})
		if e.Kind != fatbin.PTX {
			images[i].text = ""
		}
	}
	if len(images) == 0 {
		return nil, fmt.Errorf("%s: the fat binary is empty", name)
	}
	return images, nil
}

// ptxModules reads the PTX among the images, for the newest targets first. It
// is an error if there is none.
func ptxModules(path string, images []gpuImage) ([]ptxModule, error) {
	var modules []ptxModule
	var errs []error
	for _, image := range images {
		if image.kind != fatbin.PTX {
			continue
		}
		m, err := ptx.Parse(image.name, image.text)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		modules = append(modules, ptxModule{image, m})
	}
	if len(modules) > 0 {
		slices.SortStableFunc(modules, func(a, b ptxModule) int { return b.image.arch - a.image.arch })
		return modules, nil
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return nil, fmt.Errorf("%s: there is only machine code for %s inside, which real GPUs alone can run: %s", path, targets(images), ptxRemedy)
}

// ptxModule is PTX that could be read.
type ptxModule struct {
	image gpuImage
	tree  *ptx.Module
}

// kernels returns the kernels of a module.
func (m *ptxModule) kernels() []*ptx.Function {
	var found []*ptx.Function
	for _, f := range m.tree.Functions {
		if f.Entry && f.Defined {
			found = append(found, f)
		}
	}
	return found
}

// only returns the module without the kernels that keep refuses, so that what
// they use does not matter.
func (m *ptxModule) only(keep func(kernel string) bool) *ptx.Module {
	reduced := *m.tree
	reduced.Functions = slices.DeleteFunc(slices.Clone(m.tree.Functions), func(f *ptx.Function) bool { return f.Entry && !keep(f.Name) })
	return &reduced
}

// targets names what images are for: "sm_75, sm_90".
func targets(images []gpuImage) string {
	var names []string
	for _, image := range images {
		if !slices.Contains(names, image.target) {
			names = append(names, image.target)
		}
	}
	return strings.Join(names, ", ")
}
