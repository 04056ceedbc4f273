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
