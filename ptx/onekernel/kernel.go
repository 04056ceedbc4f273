package onekernel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"muster/internal/misuse"
	"muster/model"
	"muster/ptx"
	"muster/ptx/codefile"
	"muster/ptx/simt"
	"muster/ptx/simt/heap"
)

// Open reads a file, or the standard input that it is handed if the path is -, and loads a kernel of it.
func Open(stdin io.Reader, path, asked string) (*Kernel, error) {
	images, err := codefile.Read(stdin, path)
	if err != nil {
		return nil, err
	}
	modules, err := codefile.Modules(path, images)
	if err != nil {
		return nil, err
	}
	name, err := find(path, modules, asked)
	if err != nil {
		return nil, err
	}
	return load(modules, name)
}

// find returns the full name of the kernel that the user asked for; the user's name may be "" if there
// is only one kernel.
func find(path string, modules []codefile.Module, asked string) (string, error) {
	var names []string
	for i := range modules {
		for _, k := range modules[i].Kernels() {
			if !slices.Contains(names, k.Name) {
				names = append(names, k.Name)
			}
		}
	}
	switch {
	case len(names) == 0:
		return "", fmt.Errorf("%s: there is no kernel inside", path)
	case asked == "" && len(names) == 1:
		return names[0], nil
	case asked == "":
		return "", misuse.Errorf("say which kernel with --kernel: %s", kernelList(names))
	case slices.Contains(names, asked):
		return asked, nil
	}
	var plain, same []string
	for _, n := range names {
		plain = append(plain, plainName(n))
		if plainName(n) == asked {
			same = append(same, n)
		}
	}
	switch {
	case len(same) == 1:
		return same[0], nil
	case len(same) > 1:
		return "", misuse.Errorf("--kernel %s: there are several: %s", asked, kernelList(same))
	}
	if near := model.Nearest(asked, append(names, plain...)); near != "" {
		return "", misuse.Errorf("there is no kernel %q: did you mean %s?", asked, near)
	}
	return "", misuse.Errorf("there is no kernel %q: there is %s", asked, kernelList(names))
}

// kernelList lists the names of kernels, up to a limit.
func kernelList(names []string) string {
	const most = 20
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more, which muster ptx check lists", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

// plainName returns the function name in a mangled C++ name: add for _Z3addPfi.
// It returns names that it does not understand unchanged.
func plainName(name string) string {
	rest, ok := strings.CutPrefix(name, "_Z")
	if !ok {
		return name
	}
	rest = strings.TrimPrefix(rest, "N")
	plain := name
	for {
		digits := strings.IndexFunc(rest, func(r rune) bool { return !unicode.IsDigit(r) })
		if digits < 1 {
			return plain
		}
		n, err := strconv.Atoi(rest[:digits])
		if err != nil || n == 0 || n > len(rest)-digits {
			return plain
		}
		plain, rest = rest[digits:digits+n], rest[digits+n:]
		if !strings.HasPrefix(name, "_ZN") {
			return plain
		}
	}
}

// Kernel is a kernel with all that it needs to run.
type Kernel struct {
	// Launch says how to run it. Prepare sets its parameters and memory.
	Launch simt.Launch
	// Heap is the size of the heap of a kernel that calls malloc.
	Heap uint64

	function *ptx.Function
	program  *simt.Program
	memory   *memory
	args     []*Argument
	buffers  [][]byte // one for each argument; nil for values
}

// load loads the first module that has the kernel and with which the software GPU can run
// it. Other kernels of the module need not be runnable.
func load(modules []codefile.Module, name string) (*Kernel, error) {
	var first error
	for i := range modules {
		m := &modules[i]
		function := m.Tree.Function(name)
		if function == nil || !function.Entry || !function.Defined {
			continue
		}
		space := &memory{}
		program, err := simt.Load(m.Image.Name, m.Only(func(k string) bool { return k == name }), space.place)
		if err == nil {
			return &Kernel{function: function, program: program, memory: space}, nil
		}
		if err := space.release(); err != nil {
			return nil, err
		}
		if first == nil {
			first = err
		}
	}
	return nil, fmt.Errorf("the software GPU cannot run kernel %s:\n%w", name, first)
}

// Prepare checks the arguments against the kernel's parameters, allocates the buffers and
// fills them.
func (r *Kernel) Prepare(args []*Argument) error {
	r.args = args
	if err := checkArguments(r.function, args); err != nil {
		return err
	}
	for _, g := range r.program.Globals() {
		region, _ := r.memory.Find(g.Address)
		copy(region.Bytes[g.Address-region.Base:], g.Data)
	}
	kernel := r.program.Kernel(r.function.Name)
	params := make([]byte, kernel.ParamSize)
	for i, a := range r.args {
		at := params[kernel.Params[i].Offset:]
		if !a.isBuffer() {
			copy(at, a.value)
			r.buffers = append(r.buffers, nil)
			continue
		}
		region, err := r.memory.add(fmt.Sprintf("argument %d, %s", a.number, a.shape()), uint64(a.size()), 1)
		if err != nil {
			return err
		}
		buffer := region.Bytes[:a.size()]
		if a.fill != nil {
			a.fill(buffer)
		}
		r.buffers = append(r.buffers, buffer)
		binary.LittleEndian.PutUint64(at, region.Base)
	}
	r.Launch.Params, r.Launch.Memory = params, r.memory
	if kernel.Heap {
		region, err := r.memory.add("the heap", r.Heap, 1)
		if err != nil {
			return err
		}
		r.Launch.Heap = heap.New(region.Base, r.Heap)
	}
	return nil
}

// name returns the kernel's full name.
func (r *Kernel) name() string { return r.function.Name }

// start makes an execution of the kernel.
func (r *Kernel) start() (*simt.Execution, error) {
	x, err := r.program.Kernel(r.function.Name).Start(r.Launch)
	if err != nil {
		return nil, misuse.Errorf("%v", err)
	}
	return x, nil
}

// Release frees the buffers and variables.
func (r *Kernel) Release() error { return r.memory.release() }

// slice is how many instructions of a gang each worker runs before runToEnd calls pause: a
// tenth of a second, roughly. A cancelled context stops the kernel at once.
const slice = 1 << 20

// runToEnd runs a kernel to its end, and calls pause after each slice. It returns the context's
// error if the context is cancelled first.
func runToEnd(ctx context.Context, x *simt.Execution, pause func() error) error {
	defer context.AfterFunc(ctx, x.Stop)()
	for {
		err := x.RunFor(slice)
		if !errors.Is(err, simt.ErrStopped) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := pause(); err != nil {
			return err
		}
	}
}

// explain finds the fault in an error, and adds the buffer that a bad address is
// near.
func (r *Kernel) explain(err *error) *simt.Fault {
	var fault *simt.Fault
	if !errors.As(*err, &fault) {
		return nil
	}
	if near := r.memory.describe(fault.Address); near != "" && fault.Kind == simt.IllegalAddress {
		*err = fmt.Errorf("%w; this is %s", *err, near)
	}
	return fault
}
