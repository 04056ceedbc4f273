package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"muster/device/fatbin"
	"muster/ptx"
	"muster/ptx/simt"
)

const ptxCheckHelp = `Say of each kernel whether the software GPU can run it. What it cannot do is named
with its line, and the exit status is 1. Nothing is run.

FILE is PTX text, a fat binary, or a program that holds one; - is standard input.
Of what a kernel takes it lists: registers of 32 bits a thread, static shared
memory a block, local memory a thread (+ where recursion or indirect calls need a
stack besides), the most threads a block may have (=X,Y,Z where a block must have
just these), and its parameters.`

func newPtxCheck() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "check FILE... [--json]",
		Short:   "Say what of a module the software GPU can run",
		Long:    ptxCheckHelp,
		Example: "  muster ptx check kernels.ptx\n  muster ptx check --json a.out | jq '.files[].images[].kernels[].name'",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageErrorf("name one file or more, or -")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return checkFiles(c, args, asJSON) },
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return c
}

// ptxCheckJSON is the document of muster ptx check --json.
type ptxCheckJSON struct {
	Supported bool           `json:"supported"`
	Files     []ptxFileCheck `json:"files"`
}

// ptxFileCheck is what was found in a file.
type ptxFileCheck struct {
	File      string          `json:"file"`
	Supported bool            `json:"supported"`
	Error     string          `json:"error"` // why it cannot be used at all; "" if it can
	Images    []ptxImageCheck `json:"images"`
}

// ptxImageCheck is what was found in one PTX text of a file, or in machine code.
type ptxImageCheck struct {
	Kind    string           `json:"kind"`    // ptx, elf or nvvm
	Target  string           `json:"target"`  // sm_90
	Version string           `json:"version"` // of PTX
	Errors  []ptxErrorCheck  `json:"errors"`  // of the text as a whole
	Kernels []ptxKernelCheck `json:"kernels"`
}

type ptxKernelCheck struct {
	Name      string              `json:"name"`
	Supported bool                `json:"supported"`
	Errors    []ptxErrorCheck     `json:"errors"`
	Params    []ptxParameterCheck `json:"params"`
	// What the kernel takes is known of supported ones only.
	Registers  int        `json:"registers"`
	Shared     int        `json:"shared"`
	Local      int        `json:"local"`
	MaxThreads int        `json:"max_threads"`
	Block      *[3]uint32 `json:"block"` // that every launch must have; null if there are others
	Stack      bool       `json:"stack"`
}

type ptxErrorCheck struct {
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
}

type ptxParameterCheck struct {
	Type   string `json:"type"`
	Size   int    `json:"size"`
	Hidden bool   `json:"hidden"` // a launch does not give it
}

func checkFiles(c *cobra.Command, paths []string, asJSON bool) error {
	doc := ptxCheckJSON{Supported: true, Files: []ptxFileCheck{}}
	bad := 0
	for _, path := range paths {
		found := checkFile(c.InOrStdin(), path)
		doc.Files = append(doc.Files, found)
		if !found.Supported {
			doc.Supported = false
			bad++
		}
		if !asJSON {
			if err := found.write(c.OutOrStdout(), c.ErrOrStderr()); err != nil {
				return err
			}
		}
	}
	if asJSON {
		if err := printJSON(c, doc); err != nil {
			return err
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d of %s cannot be run whole", bad, counted(len(paths), "file"))
	}
	return nil
}

// checkFile finds out about all images of a file.
func checkFile(stdin io.Reader, path string) ptxFileCheck {
	result := ptxFileCheck{File: path, Images: []ptxImageCheck{}}
	images, err := readImages(stdin, path)
	if err != nil {
		result.Error = plainly(err)
		return result
	}
	texts := 0
	result.Supported = true
	for i := range images {
		image := &images[i]
		var found ptxImageCheck
		if image.kind == fatbin.PTX {
			texts++
			found = checkImage(image)
		} else {
			found = ptxImageCheck{Kind: strings.ToLower(image.kind.String()), Target: image.target}
		}
		result.Images = append(result.Images, found)
		result.Supported = result.Supported && found.supported()
	}
	if texts == 0 {
		_, err := ptxModules(path, images)
		result.Supported, result.Error = false, err.Error()
	}
	return result
}

// checkImage finds out about one PTX text.
func checkImage(image *gpuImage) ptxImageCheck {
	found := ptxImageCheck{Kind: "ptx", Target: image.target, Errors: []ptxErrorCheck{}, Kernels: []ptxKernelCheck{}}
	tree, err := ptx.Parse(image.name, image.text)
	if err != nil {
		found.Errors = errorChecks(err)
		return found
	}
	if found.Target == "" {
		found.Target = strings.Join(tree.Targets, ",")
	}
	found.Version = fmt.Sprintf("%d.%d", tree.Version.Major, tree.Version.Minor)
	findings, err := simt.Check(image.name, tree)
	if err != nil {
		found.Errors = errorChecks(err)
		return found
	}
	module := &ptxModule{*image, tree}
	bad := map[string]ptx.Errors{}
	for _, f := range findings {
		if len(f.Errors) > 0 {
			bad[f.Kernel] = f.Errors
		}
	}
	next := uint64(1 << 32)
	program, err := simt.Load(image.name, module.only(func(name string) bool { return bad[name] == nil }), func(v *ptx.Variable) (uint64, error) {
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
	for _, f := range module.kernels() {
		found.Kernels = append(found.Kernels, checkKernel(f, program.Kernel(f.Name), bad[f.Name]))
	}
	return found
}

func checkKernel(f *ptx.Function, k *simt.Kernel, errs ptx.Errors) ptxKernelCheck {
	found := ptxKernelCheck{Name: f.Name, Supported: k != nil, Errors: []ptxErrorCheck{}, Params: []ptxParameterCheck{}}
	for _, p := range f.Params {
		found.Params = append(found.Params, ptxParameterCheck{parameterType(p), p.Size(), p.Hidden})
	}
	if k == nil {
		found.Errors = errorChecks(errs)
		return found
	}
	found.Registers, found.Shared, found.Local, found.MaxThreads, found.Stack = k.Registers, k.Shared, k.Local, k.MaxBlock, k.Recursive
	if r := k.Required; r != (simt.Dim{}) {
		found.Block = &[3]uint32{r.X, r.Y, r.Z}
	}
	return found
}

// errorChecks takes an error apart into places and messages.
func errorChecks(err error) []ptxErrorCheck {
	var errs ptx.Errors
	if !errors.As(err, &errs) {
		return []ptxErrorCheck{{Message: err.Error()}}
	}
	var found []ptxErrorCheck
	for _, e := range errs {
		found = append(found, ptxErrorCheck{e.Line, e.Column, e.Msg})
	}
	return found
}

// supported says whether everything in the image can be run; machine code
// beside PTX does not matter.
func (i *ptxImageCheck) supported() bool { return len(i.Errors) == 0 && i.unsupported() == 0 }

// unsupported counts the kernels that cannot be run.
func (i *ptxImageCheck) unsupported() int {
	n := 0
	for _, k := range i.Kernels {
		if !k.Supported {
			n++
		}
	}
	return n
}

// write prints what was found, for people.
func (r *ptxFileCheck) write(w, stderr io.Writer) error {
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

func (i *ptxImageCheck) write(b *strings.Builder, file string) {
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
func (k *ptxKernelCheck) threads() string {
	if k.Block != nil {
		return fmt.Sprintf("=%d,%d,%d", k.Block[0], k.Block[1], k.Block[2])
	}
	return strconv.Itoa(k.MaxThreads)
}

// parameters names the types of all parameters.
func (k *ptxKernelCheck) parameters() string {
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
func (i *ptxImageCheck) summary() string {
	bad := i.unsupported()
	switch n := len(i.Kernels); {
	case n == 0:
		return "no kernels"
	case bad > 0:
		return fmt.Sprintf("%d of %s not supported", bad, counted(n, "kernel"))
	case n == 1:
		return "1 kernel, supported"
	default:
		return fmt.Sprintf("%d kernels, all supported", n)
	}
}

func writeErrors(b *strings.Builder, indent, file string, errs []ptxErrorCheck) {
	for _, e := range errs {
		if e.Line == 0 {
			fmt.Fprintf(b, "%s%s\n", indent, e.Message)
			continue
		}
		fmt.Fprintf(b, "%s%s:%d:%d: %s\n", indent, file, e.Line, e.Column, e.Message)
	}
}
