// Package codecheck says what of a file will be refused before it is run: kernels that a software
// GPU cannot run, and functions of CUDA's driver that Muster does not have.
//
// It runs nothing, and knows no command line.
package codecheck

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"muster/ptx"
	"muster/ptx/codefile"
	"muster/ptx/fatbin"
	"muster/ptx/simt"
	"muster/ptx/simt/program"
	"muster/ptx/simt/shape"
	"muster/report"
)

// File is what was found in a file.
type File struct {
	File      string  `json:"file"`
	Supported bool    `json:"supported"`
	Error     string  `json:"error"` // why it cannot be used at all; "" if it can
	Images    []Image `json:"images"`
}

// Image is what was found in one PTX text of a file, or in machine code.
type Image struct {
	Kind    string      `json:"kind"`    // ptx, elf or nvvm
	Target  string      `json:"target"`  // sm_90
	Version string      `json:"version"` // of PTX
	Errors  []Problem   `json:"errors"`  // of the text as a whole
	Kernels []PTXKernel `json:"kernels"`
}

// PTXKernel is a kernel of a PTX text.
type PTXKernel struct {
	Name      string      `json:"name"`
	Supported bool        `json:"supported"`
	Errors    []Problem   `json:"errors"`
	Params    []Parameter `json:"params"`
	// What the kernel takes is known of supported ones only.
	Registers  int        `json:"registers"`
	Shared     int        `json:"shared_bytes"`
	Local      int        `json:"local_bytes"`
	MaxThreads int        `json:"max_threads"`
	Block      *[3]uint32 `json:"block"` // that every launch must have; null if there are others
	Stack      bool       `json:"stack"`
}

// Problem is something that a software GPU cannot do, and where it stands.
type Problem struct {
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
}

// Parameter is one that a kernel takes.
type Parameter struct {
	Type   string `json:"type"`
	Size   int    `json:"size_bytes"`
	Hidden bool   `json:"hidden"` // a launch does not give it
}

// CheckFile finds out about all images of a file.
func CheckFile(stdin io.Reader, path string) File {
	result := File{File: path, Images: []Image{}}
	images, err := codefile.Read(stdin, path)
	if err != nil {
		result.Error = err.Error()
		return result
	}
	texts := 0
	result.Supported = true
	for i := range images {
		image := &images[i]
		var found Image
		if image.Kind == fatbin.PTX {
			texts++
			found = checkImage(image)
		} else {
			found = Image{Kind: strings.ToLower(image.Kind.String()), Target: image.Target}
		}
		result.Images = append(result.Images, found)
		result.Supported = result.Supported && found.supported()
	}
	if texts == 0 {
		_, err := codefile.Modules(path, images)
		result.Supported, result.Error = false, err.Error()
	}
	return result
}

// checkImage finds out about one PTX text.
func checkImage(image *codefile.Image) Image {
	found := Image{Kind: "ptx", Target: image.Target, Errors: []Problem{}, Kernels: []PTXKernel{}}
	tree, err := ptx.Parse(image.Name, image.Text)
	if err != nil {
		found.Errors = errorChecks(err)
		return found
	}
	if found.Target == "" {
		found.Target = strings.Join(tree.Targets, ",")
	}
	found.Version = fmt.Sprintf("%d.%d", tree.Version.Major, tree.Version.Minor)
	findings, err := program.Check(image.Name, tree)
	if err != nil {
		found.Errors = errorChecks(err)
		return found
	}
	module := &codefile.Module{Image: *image, Tree: tree}
	bad := map[string]ptx.Errors{}
	for _, f := range findings {
		if len(f.Errors) > 0 {
			bad[f.Kernel] = f.Errors
		}
	}
	next := uint64(1 << 32)
	program, err := simt.Load(image.Name, module.Only(func(name string) bool { return bad[name] == nil }), func(v *ptx.Variable) (uint64, error) {
		const gap = 256
		step := max(gap, uint64(v.Alignment()))
		at := (next + step - 1) / step * step
		next = at + uint64(v.Size())
		return at, nil
	})
	if err != nil {
		found.Errors = errorChecks(err)
		return found
	}
	for _, f := range module.Kernels() {
		found.Kernels = append(found.Kernels, checkKernel(f, program.Kernel(f.Name), bad[f.Name]))
	}
	return found
}

func checkKernel(f *ptx.Function, k *simt.Kernel, errs ptx.Errors) PTXKernel {
	found := PTXKernel{Name: f.Name, Supported: k != nil, Errors: []Problem{}, Params: []Parameter{}}
	for _, p := range f.Params {
		found.Params = append(found.Params, Parameter{p.TypeName(), p.Size(), p.Hidden})
	}
	if k == nil {
		found.Errors = errorChecks(errs)
		return found
	}
	found.Registers, found.Shared, found.Local, found.MaxThreads, found.Stack = k.Registers, k.Shared, k.Local, k.MaxBlock, k.Recursive
	if r := k.Required; r != (shape.Dim{}) {
		found.Block = &[3]uint32{r.X, r.Y, r.Z}
	}
	return found
}

// errorChecks takes an error apart into places and messages.
func errorChecks(err error) []Problem {
	var errs ptx.Errors
	if !errors.As(err, &errs) {
		return []Problem{{Message: err.Error()}}
	}
	var found []Problem
	for _, e := range errs {
		found = append(found, Problem{e.Line, e.Column, e.Msg})
	}
	return found
}

// supported says whether everything in the image can be run; machine code
// beside PTX does not matter.
func (i *Image) supported() bool { return len(i.Errors) == 0 && i.unsupported() == 0 }

// unsupported counts the kernels that cannot be run.
func (i *Image) unsupported() int {
	n := 0
	for _, k := range i.Kernels {
		if !k.Supported {
			n++
		}
	}
	return n
}

// write prints what was found, for people.
func (r *File) Write(w, stderr io.Writer) error {
	if r.Error != "" {
		_, err := fmt.Fprintln(stderr, r.Error)
		return err
	}
	var b strings.Builder
	for i := range r.Images {
		r.Images[i].write(&b, r.File)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (i *Image) write(b *strings.Builder, file string) {
	if i.Kind != "ptx" {
		fmt.Fprintf(b, "%s: %s for %s: passed over, for real GPUs only\n", file, map[string]string{"elf": "machine code", "nvvm": "code for the linker"}[i.Kind], i.Target)
		return
	}
	if len(i.Errors) > 0 {
		fmt.Fprintf(b, "%s: this PTX%s cannot be used\n", file, strings.TrimSuffix(" for "+i.Target, " for "))
		writeErrors(b, "  ", file, i.Errors)
		return
	}
	fmt.Fprintf(b, "%s: PTX %s for %s: %s\n", file, i.Version, i.Target, i.summary())
	table := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	header := false
	for _, k := range i.Kernels {
		if !k.Supported {
			continue
		}
		if !header {
			fmt.Fprintln(table, "  kernel\tregisters\tshared\tlocal\tthreads\tparameters")
			header = true
		}
		local := strconv.Itoa(k.Local)
		if k.Stack {
			local += "+"
		}
		fmt.Fprintf(table, "  %s\t%d\t%d\t%s\t%s\t%s\n", k.Name, k.Registers, k.Shared, local, k.threads(), k.parameters())
	}
	_ = table.Flush() // to memory
	for _, k := range i.Kernels {
		if !k.Supported {
			fmt.Fprintf(b, "  %s: not supported\n", k.Name)
			writeErrors(b, "    ", file, k.Errors)
		}
	}
}

// threads says how many a block may have, or which block it must be.
func (k *PTXKernel) threads() string {
	if k.Block != nil {
		return fmt.Sprintf("=%d,%d,%d", k.Block[0], k.Block[1], k.Block[2])
	}
	return strconv.Itoa(k.MaxThreads)
}

// parameters names the types of all parameters.
func (k *PTXKernel) parameters() string {
	var types []string
	for _, p := range k.Params {
		if p.Hidden {
			p.Type += "(hidden)"
		}
		types = append(types, p.Type)
	}
	if len(types) == 0 {
		return "none"
	}
	return strings.Join(types, " ")
}

// summary says how many kernels can be run.
func (i *Image) summary() string {
	bad := i.unsupported()
	switch n := len(i.Kernels); {
	case n == 0:
		return "no kernels"
	case bad > 0:
		return fmt.Sprintf("%d of %s not supported", bad, report.Plural(n, "kernel"))
	case n == 1:
		return "1 kernel, supported"
	default:
		return fmt.Sprintf("%d kernels, all supported", n)
	}
}

func writeErrors(b *strings.Builder, indent, file string, errs []Problem) {
	for _, e := range errs {
		if e.Line == 0 {
			fmt.Fprintf(b, "%s%s\n", indent, e.Message)
			continue
		}
		fmt.Fprintf(b, "%s%s:%d:%d: %s\n", indent, file, e.Line, e.Column, e.Message)
	}
}
