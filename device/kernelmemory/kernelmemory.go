// Package kernelmemory tells what memory the kernels of an image use, in the words of the device
// contract, from the PTX that the image holds. A device whose driver does not say so (NVIDIA's)
// asks it. It runs nothing, and knows no device.
package kernelmemory

import (
	"muster/device"
	"muster/ptx"
	"muster/ptx/fatbin"
	"muster/ptx/reach"
)

// maxText is how much PTX is read of one image. Libraries have images with much more, which would
// take seconds; their kernels are unknown.
const maxText = 8 << 20

// In puts what a kernel's code says into the contract's words: nil if the kernel may use any memory,
// and whether that is so only because it follows pointers.
func In(m reach.Memory) (_ *device.Touches, follows bool) {
	if !m.Known {
		return nil, m.Follows
	}
	all := &device.Touches{}
	for _, a := range m.Accesses {
		all.Accesses = append(all.Accesses, device.Access(a))
	}
	return all, false
}

// OfImage reads what the kernels of an image use on a device with the given compute capability, by
// their names. Kernels of which nothing is known are left out: those without PTX, and those whose PTX
// may be other code than what the device runs.
func OfImage(image []byte, compute device.Compute) map[string]*device.Touches {
	known := map[string]*device.Touches{}
	twice := map[string]bool{}
	left := maxText
	for _, text := range textsOf(image, compute) {
		if left -= len(text); left < 0 {
			return nil
		}
		tree, err := ptx.Parse("module.ptx", text)
		if err != nil {
			return nil // the driver may know an instruction that we do not
		}
		for _, f := range tree.Functions {
			if !f.Entry || !f.Defined {
				continue
			}
			if t, _ := In(reach.Of(f)); t != nil && !twice[f.Name] {
				known[f.Name] = t
			}
			if twice[f.Name] {
				delete(known, f.Name)
			}
			twice[f.Name] = true
		}
	}
	return known
}

// textsOf returns the PTX from which the code is made that the device runs.
//
// Programs may have other code for another architecture (__CUDA_ARCH__), so PTX tells something about
// machine code only if both are for the same one. If the image has no machine code for the device, the
// driver compiles the PTX of the newest architecture that the device has.
func textsOf(image []byte, compute device.Compute) []string {
	if !fatbin.Recognise(image) {
		return []string{string(image)} // a cubin is no PTX, and fails to parse
	}
	entries, err := fatbin.List(image)
	if err != nil {
		return nil
	}
	newest := func(kind fatbin.Kind, runs func(arch int) bool) (arch int) {
		for _, e := range entries {
			if e.Kind == kind && runs(e.Arch) {
				arch = max(arch, e.Arch)
			}
		}
		return arch
	}
	own := compute.Arch()
	arch := newest(fatbin.ELF, func(arch int) bool { return arch/10 == own/10 && arch <= own })
	if arch == 0 {
		arch = newest(fatbin.PTX, func(arch int) bool { return arch <= own })
	}
	var texts []string
	variants := map[string]bool{}
	for _, e := range entries {
		if e.Arch != arch {
			continue
		}
		variants[e.Variant] = true
		if e.Kind == fatbin.PTX {
			if e.Load() != nil {
				return nil
			}
			texts = append(texts, string(e.Data))
		}
	}
	if len(variants) > 1 { // sm_90 beside sm_90a: which of them the driver takes is not known
		return nil
	}
	return texts
}
