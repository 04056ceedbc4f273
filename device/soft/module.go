package soft

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"muster/device"
	"muster/ptx"
	"muster/ptx/fatbin"
	"muster/ptx/simt"
)

// module is a loaded image.
type module struct {
	c       *Context
	target  int           // 70 for sm_70
	program *simt.Program // nil once it is unloaded; guarded by the context's lock
	at      span          // addresses of its variables; empty if it has none
	globals []device.Global
	index   int // in Context.modules, so that Unload need not search
}

var _ device.Module = (*module)(nil)

// Load makes an image usable.
func (c *Context) Load(image []byte) (device.Module, error) {
	if err := c.Err(); err != nil {
		return nil, err
	}
	m, tree, err := parseImage(image)
	if err != nil {
		return nil, err
	}
	m.c = c
	if err := c.place(m, tree, c.mem.roomForVariables); err != nil {
		return nil, err
	}
	return m, nil
}

// loadAt makes an image usable with its variables at given addresses.
func (d *Device) loadAt(on device.Context, image []byte, globals []device.Global) (device.Module, error) {
	c, ok := on.(*Context)
	if !ok || c.dev != d {
		return nil, fmt.Errorf("the context is not of this device: %w", device.ErrInvalidValue)
	}
	if len(globals) == 0 {
		return c.Load(image)
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	m, tree, err := parseImage(image)
	if err != nil {
		return nil, err
	}
	m.c = c
	first := slices.MinFunc(globals, func(a, b device.Global) int { return cmp.Compare(a.Address, b.Address) })
	base := first.Address &^ (granule - 1)
	err = c.place(m, tree, func(size uint64) (uint64, bool) { return base, c.mem.hasRoomForVariables(base, size) })
	if err != nil {
		return nil, err
	}
	if !slices.Equal(m.globals, globals) {
		return nil, errors.Join(fmt.Errorf("the image's variables are others, or cannot lie at %#x: %w", base, device.ErrInvalidValue), m.Unload())
	}
	return m, nil
}

// parseImage makes a module whose variables have no addresses yet.
func parseImage(image []byte) (*module, *ptx.Module, error) {
	text, err := textOf(image)
	if err != nil {
		return nil, nil, err
	}
	tree, err := ptx.Parse("module.ptx", text)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", unreadable(text), err)
	}
	return &module{target: targetOf(tree)}, tree, nil
}

// newestPTX is the newest PTX version that the CUDA release modelled here accepts.
var newestPTX = ptx.Version{Major: 9, Minor: 0}

// unusable returns the error for PTX of version v that was refused: if v is too new, the
// version is the likely reason.
func unusable(v ptx.Version) error {
	if v.Major > newestPTX.Major || v.Major == newestPTX.Major && v.Minor > newestPTX.Minor {
		return device.ErrPTXVersion
	}
	return device.ErrInvalidPTX
}

// unreadable returns the error for a text that could not be parsed. As in CUDA,
// a text without a .version directive is not PTX at all.
func unreadable(text string) error {
	_, after, isPTX := strings.Cut(text, ".version")
	if !isPTX {
		return device.ErrInvalidImage
	}
	var v ptx.Version
	_, _ = fmt.Sscanf(after, "%d.%d", &v.Major, &v.Minor) // stays 0.0 if no version follows
	return unusable(v)
}

// inspect tells what an image holds.
func (d *Device) inspect(image []byte) (device.ImageInfo, error) {
	var info device.ImageInfo
	m, tree, err := parseImage(image)
	if err != nil {
		return info, err
	}
	size, err := variablesSize(tree, d.variableGuard(), d.budget.total)
	if err != nil {
		return info, err
	}
	if err := m.load(tree, varsBases[0], size, d.variableGuard()); err != nil {
		return info, err
	}
	info.Memory = size
	for _, k := range m.program.Kernels() {
		info.Functions = append(info.Functions, m.describe(k))
	}
	slices.SortFunc(info.Functions, func(a, b device.FunctionInfo) int { return cmp.Compare(a.Name, b.Name) })
	for _, g := range m.globals {
		info.Globals = append(info.Globals, device.Global{Name: g.Name, Size: g.Size, Managed: g.Managed})
	}
	return info, nil
}

// place chooses the addresses of a module's variables with room, and loads the module.
func (c *Context) place(m *module, tree *ptx.Module, room func(size uint64) (base uint64, ok bool)) error {
	c.loading.Lock()
	defer c.loading.Unlock()
	size, err := variablesSize(tree, c.dev.variableGuard(), c.dev.budget.total)
	if err != nil {
		return err
	}
	// Check before the engine allocates host memory for the initial values. fillIn checks again.
	if free := c.dev.budget.free(); size > free {
		return fmt.Errorf("the module's variables take %d bytes, %d of %d free: %w", size, free, c.dev.budget.total, device.ErrOutOfMemory)
	}
	base, ok := room(size)
	if !ok {
		return fmt.Errorf("no addresses are left for %d bytes of variables: unload modules: %w", size, device.ErrOutOfMemory)
	}
	if err := m.load(tree, base, size, c.dev.variableGuard()); err != nil {
		return err
	}
	if size > 0 {
		m.at = span{base, base + size}
	}
	return c.fillIn(m)
}

// variableGuard is how many bytes stay free before and behind each variable of a module if accesses of
// kernels are checked.
func (d *Device) variableGuard() uint64 { return uint64(d.info.Guard) }

// load lowers a module whose variables lie in size bytes from base on, each with guard bytes before and
// behind it.
func (m *module) load(tree *ptx.Module, base, size, guard uint64) error {
	next := base
	var err error
	m.program, err = simt.Load("module.ptx", tree, func(v *ptx.Variable) (uint64, error) {
		at := alignUp(next+guard, alignment(v))
		next = at + variableSize(v)
		if next+guard > base+size {
			return 0, fmt.Errorf("variable %s does not fit the space counted for the module", v.Name)
		}
		return at, nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", unusable(tree.Version), err)
	}
	managed := map[string]bool{}
	for _, v := range tree.Variables {
		managed[v.Name] = slices.ContainsFunc(v.Attributes, func(a ptx.Attribute) bool { return a.Name == "managed" })
	}
	for _, g := range m.program.Globals() {
		m.globals = append(m.globals, device.Global{Name: g.Name, Address: g.Address, Size: uint64(len(g.Data)), Managed: managed[g.Name]})
	}
	slices.SortFunc(m.globals, func(a, b device.Global) int { return cmp.Compare(a.Name, b.Name) })
	return nil
}

// fillIn maps the memory of a module's variables and writes their initial
// values.
func (c *Context) fillIn(m *module) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	if size := m.at.to - m.at.from; size > 0 {
		if err := c.mem.add(c.mem.vars, m.at.from, size); err != nil {
			return err
		}
	}
	for _, g := range m.program.Globals() {
		if b, ok := c.mem.bytes(g.Address, uint64(len(g.Data))); ok {
			copy(b, g.Data)
		}
		if c.checker != nil {
			c.checker.Allocate(g.Address, uint64(len(g.Data)), fmt.Sprintf("variable %s (%d bytes)", g.Name, len(g.Data)), true)
		}
	}
	m.index = len(c.modules)
	c.modules = append(c.modules, m)
	return nil
}

// variablesSize returns how many bytes the variables of a module need, in whole
// granules. It includes the padding for the largest alignment, so that the size is
// enough at any granule, and guard bytes before and behind each variable.
func variablesSize(tree *ptx.Module, guard, limit uint64) (uint64, error) {
	all := slices.Clone(tree.Variables)
	for _, f := range tree.Functions {
		all = append(all, f.Variables...)
	}
	var size uint64
	largest := uint64(granule)
	for _, v := range all {
		if v.Space != ptx.GlobalSpace && v.Space != ptx.ConstSpace {
			continue
		}
		largest = max(largest, alignment(v))
		size = alignUp(size+guard, alignment(v)) + variableSize(v)
		if size > limit || variableSize(v) > limit {
			return 0, fmt.Errorf("variable %s (line %d): the module's variables take more than the device's %d bytes: %w", v.Name, v.Line, limit, device.ErrOutOfMemory)
		}
	}
	if size > 0 {
		size += guard
	}
	return alignUp(size, granule) + largest - granule, nil
}

// alignment returns a variable's alignment. It is at least 16: the engine reads up to 16
// bytes at a time.
func alignment(v *ptx.Variable) uint64 { return max(16, uint64(v.Alignment())) }

func variableSize(v *ptx.Variable) uint64 { return uint64(v.Size()) }

func alignUp(n, to uint64) uint64 { return (n + to - 1) / to * to }

// targetOf returns the architecture that PTX was made for: 90 for sm_90.
func targetOf(tree *ptx.Module) int {
	n := 0
	if len(tree.Targets) > 0 {
		_, _ = fmt.Sscanf(tree.Targets[0], "sm_%d", &n) // stays 0 for other names
	}
	return n
}

// textOf finds the PTX text in an image.
func textOf(image []byte) (string, error) {
	switch {
	case bytes.HasPrefix(image, []byte(elf.ELFMAG)) && !isCubin(image):
		return "", fmt.Errorf("the image is an ELF file, and none of a GPU's: %w", device.ErrInvalidImage)
	case bytes.HasPrefix(image, []byte(elf.ELFMAG)):
		return "", fmt.Errorf("the image is a cubin, machine code that only a real GPU runs: %s: %w", remedy, device.ErrNoKernelImage)
	case fatbin.Recognise(image):
		return textOfFatbin(image)
	case len(bytes.TrimRight(image, "\x00")) == 0:
		return "", fmt.Errorf("the image is empty: %w", device.ErrInvalidImage)
	}
	return string(image), nil
}

// isCubin says whether an ELF file holds machine code for NVIDIA GPUs.
func isCubin(image []byte) bool {
	const header, machine, cuda = 64, 18, 190 // EM_CUDA
	return len(image) >= header && elf.Class(image[elf.EI_CLASS]) == elf.ELFCLASS64 && binary.LittleEndian.Uint16(image[machine:]) == cuda
}

const remedy = "rebuild the program with PTX in it, for example with nvcc -gencode arch=compute_90,code=compute_90"

// textOfFatbin picks the PTX for the newest architecture that this device's compute
// capability covers. If all are newer it picks the oldest; loading then finds the
// instructions that the device lacks.
func textOfFatbin(image []byte) (string, error) {
	entries, err := fatbin.List(image)
	if err != nil {
		return "", fmt.Errorf("%w: %w", device.ErrInvalidImage, err)
	}
	var best *fatbin.Entry
	for i := range entries {
		if e := &entries[i]; e.Kind == fatbin.PTX && (best == nil || better(e.Arch, best.Arch)) {
			best = e
		}
	}
	if best == nil {
		return "", fmt.Errorf("the fat binary holds no PTX, only machine code for real GPUs: %s: %w", remedy, device.ErrNoKernelImage)
	}
	if err := best.Load(); err != nil {
		return "", fmt.Errorf("%w: %w", device.ErrInvalidImage, err)
	}
	return string(best.Data), nil
}

// better says whether PTX for architecture a is to be preferred to b.
func better(a, b int) bool {
	own := compute.Arch()
	if a <= own && b <= own {
		return a > b
	}
	return a < b
}

// Functions returns the names of the kernels.
func (m *module) Functions() []string {
	m.c.mu.Lock()
	program := m.program
	m.c.mu.Unlock()
	if program == nil {
		return nil
	}
	var names []string
	for _, k := range program.Kernels() {
		names = append(names, k.Name)
	}
	slices.Sort(names)
	return names
}

// Function returns a kernel.
func (m *module) Function(name string) (device.Function, error) {
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	k, err := m.kernel(name)
	if err != nil {
		return nil, err
	}
	return m.function(k), nil
}

// kernel returns a kernel if the module can be used. The caller must hold c.mu.
func (m *module) kernel(name string) (*simt.Kernel, error) {
	if err := m.usable(); err != nil {
		return nil, err
	}
	k := m.program.Kernel(name)
	if k == nil {
		return nil, fmt.Errorf("kernel %q: %w", name, device.ErrNotFound)
	}
	return k, nil
}

// Globals returns the variables.
func (m *module) Globals() []device.Global { return slices.Clone(m.globals) }

// Global returns a variable.
func (m *module) Global(name string) (device.Global, error) {
	if err := m.check(); err != nil {
		return device.Global{}, err
	}
	i, ok := slices.BinarySearchFunc(m.globals, name, func(g device.Global, name string) int { return cmp.Compare(g.Name, name) })
	if !ok {
		return device.Global{}, fmt.Errorf("variable %q: %w", name, device.ErrNotFound)
	}
	return m.globals[i], nil
}

func (m *module) check() error {
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	return m.usable()
}

// usable returns why the module cannot be used, or nil. The caller must hold c.mu.
func (m *module) usable() error {
	if m.c.err != nil {
		return m.c.err
	}
	if m.program == nil {
		return fmt.Errorf("module: %w", device.ErrClosed)
	}
	return nil
}

// Unload frees the variables and the program. It clears m.program because users may
// keep the module and its functions, which would otherwise keep the program alive.
func (m *module) Unload() error {
	c := m.c
	return c.still(func() error {
		if err := m.usable(); err != nil {
			return err
		}
		if size := m.at.to - m.at.from; size > 0 {
			if err := c.mem.remove(c.mem.vars, m.at.from, size); err != nil {
				return err
			}
		}
		for _, g := range m.globals {
			if c.checker != nil {
				c.checker.Free(g.Address)
			}
		}
		m.program = nil
		last := len(c.modules) - 1
		c.modules[m.index] = c.modules[last]
		c.modules[m.index].index = m.index
		c.modules[last] = nil
		c.modules = c.modules[:last]
		return nil
	})
}
