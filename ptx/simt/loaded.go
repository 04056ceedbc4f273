package simt

import (
	"sync"
	"sync/atomic"

	"muster/ptx"
	"muster/ptx/simt/program"
)

// Program is a module, ready to run. Many executions may use it at the same time: only
// caches in it change, under locks.
type Program struct {
	code    *program.Program
	kernels []*Kernel
	byName  map[string]*Kernel

	// mu protects what follows. It is the innermost lock: a goroutine may hold
	// the locks of a kernel and of its functions when it takes mu, never the reverse.
	mu         sync.Mutex
	prepared   []*Kernel // kernels that have images, in the order in which keepImage examines them
	imageBytes int       // of all images
	imageRoom  int       // the limit of imageBytes
	teams      []*team   // of launches that have ended, the oldest first; see keep
	teamBytes  int       // of all these
}

// Kernel is a kernel of a program.
type Kernel struct {
	*program.Kernel
	program *Program

	preparing sync.Mutex            // held while a launch makes the image, so that only one does
	image     atomic.Pointer[image] // nil before the first launch, and after keepImage has dropped it
	used      atomic.Bool           // launched since keepImage last examined it
}

// Load prepares a module to run: see program.Load. A launch never refuses what a kernel does.
func Load(name string, m *ptx.Module, place func(v *ptx.Variable) (uint64, error)) (*Program, error) {
	code, err := program.Load(name, m, place)
	if err != nil {
		return nil, err
	}
	p := &Program{code: code, byName: map[string]*Kernel{}}
	p.imageRoom = max(minImageRoom, 2*code.Instructions()*instBytes) // enough for all images if kernels share no functions
	for _, k := range code.Kernels() {
		kernel := &Kernel{Kernel: k, program: p}
		p.kernels = append(p.kernels, kernel)
		p.byName[k.Name] = kernel
	}
	return p, nil
}

// Kernels returns the kernels in the order of the module.
func (p *Program) Kernels() []*Kernel { return p.kernels }

// Kernel returns the kernel with a name, or nil.
func (p *Program) Kernel(name string) *Kernel { return p.byName[name] }

// Globals returns the variables that must be in memory before a kernel runs.
func (p *Program) Globals() []program.Global { return p.code.Globals() }

// Lowered returns the kernel's code for people.
func (k *Kernel) Lowered() *program.Lowered {
	return k.Kernel.Lowered(func(name string) bool { return affines[name] != nil })
}

// The code of a kernel is made when it is first launched, and kept while there is room for it.

// image is a kernel's code, ready to run. Apart from machines and checkedCode, which
// have locks of their own, it does not change.
type image struct {
	code []inst // begins with the kernel's own
	program.Layout

	machines machines

	checkedOnce sync.Once
	checkedCode *checkedImage // the same code with calls of a checker, made at the first checked launch
}

// linked gives the instructions of a program the functions that run them.
func linked(m *program.Image) *image {
	code := make([]inst, len(m.Code))
	for i := range m.Code {
		in := &code[i]
		in.Inst = m.Code[i]
		in.run, in.affine = functionOf(in), affines[in.Name]
		if in.Guard >= 0 && in.Flow == program.FlowNone {
			in.inner, in.run = in.run, guarded
		}
	}
	return &image{code: code, Layout: m.Layout}
}

// instBytes is about what an instruction of an image takes.
const instBytes = 200

func (m *image) size() int { return len(m.code) * instBytes }

// prepare returns the kernel's image, and makes it if there is none. A launch that
// finds another one making it waits. keepImage may drop the image at any time;
// executions that use it keep it alive.
func (k *Kernel) prepare() *image {
	k.used.Store(true)
	if m := k.image.Load(); m != nil {
		return m
	}
	k.preparing.Lock()
	defer k.preparing.Unlock()
	if m := k.image.Load(); m != nil {
		return m
	}
	m := linked(k.Assemble(0, nil))
	k.image.Store(m)
	k.program.keepImage(k, m)
	return m
}

// minImageRoom is how many bytes of images a program keeps at least.
const minImageRoom = 64 << 20

// keepImage counts a new image. If the images take too much room it drops some by
// the second-chance rule: it goes round the kernels, spares each that was launched
// since its last visit, and drops the image of each that was not. After two rounds
// it stops: then only the new image may be left.
func (p *Program) keepImage(k *Kernel, m *image) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.prepared = append(p.prepared, k)
	p.imageBytes += m.size()
	for n := 2 * len(p.prepared); n > 0 && p.imageBytes > p.imageRoom; n-- {
		old := p.prepared[0]
		p.prepared = p.prepared[1:]
		if old == k || old.used.Swap(false) {
			p.prepared = append(p.prepared, old)
			continue
		}
		m := old.image.Swap(nil)
		p.imageBytes -= m.size()
		p.dropTeams(m)
	}
}
