package devicetest

import (
	"encoding/binary"
	"errors"
	"syscall"

	"muster/device"
)

// hostPages returns whole pages of host memory that Go's runtime does not manage.
func (b *bench) hostPages(size int) []byte {
	host, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED|syscall.MAP_ANON)
	b.ok(err)
	b.Cleanup(func() { _ = syscall.Munmap(host) })
	return host
}

// mapHost makes host memory reachable for kernels, or skips the test.
func (o *opened) mapHost(host []byte) (unmap func() error) {
	m := o.Can()
	if m.MapHost == nil {
		o.Skip("the backend has no memory of the host for kernels")
	}
	unmap, err := m.MapHost(host)
	if errors.Is(err, device.ErrNotSupported) {
		o.Skip("the device has no memory of the host for kernels")
	}
	o.ok(err)
	return unmap
}

var hostTests = []test{
	{"kernels write memory of the host", always, testHostWrites},
	{"memory of the host is taken away", notIsolated, testHostTakenAway},
}

// Kernels read and write the host's own pages at their own address, beside device memory.
func testHostWrites(b *bench) {
	o := b.open()
	host := b.hostPages(8192)
	at := addressOf(host)
	for i := range 2048 {
		binary.LittleEndian.PutUint32(host[4*i:], uint32(i))
	}
	unmap := o.mapHost(host)
	o.launch(o.stream, "step", 16, 128, at, uint32(3), uint32(2048))
	o.finish()
	for i := range 2048 {
		if got := binary.LittleEndian.Uint32(host[4*i:]); got != uint32(3*i+3) {
			b.Fatalf("word %d is %d", i, got)
		}
	}
	addr := o.mapped(0, o.g)
	o.putWords(addr, 5)
	o.launch(o.stream, "step", 1, 1, addr, uint32(3), uint32(1))
	if got := o.getWords(addr, 1)[0]; got != 18 {
		b.Errorf("memory of the device holds %d", got)
	}
	o.ok(unmap())
	o.ok(o.mapHost(host)()) // nothing is left of the first time
}

// After unmap a kernel that uses the host memory faults.
func testHostTakenAway(b *bench) {
	o := b.open()
	host := b.hostPages(4096)
	o.ok(o.mapHost(host)())
	o.launch(o.stream, "step", 1, 1, addressOf(host), uint32(1), uint32(1))
	if f := o.fault(); f.Kind != device.IllegalAddress {
		b.Errorf("the fault is %v", f)
	}
}
