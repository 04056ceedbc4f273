package simt

import (
	"sync"

	"muster/ptx/simt/program"
)

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
