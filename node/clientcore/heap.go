package clientcore

import (
	"errors"
	"fmt"
	"slices"

	"muster/device"
	"muster/vmm"
)

// The heap of kernels that call malloc (device.FunctionInfo.Heap). It is an allocation like those of
// the program, made before the first such launch: it counts against the program's limit, is swapped and
// saved, and follows the client to other devices. What kernels have allocated of it is written in it. A
// guest's heap is provided by the node on which its program runs.

var errHeapInUse = errors.New("the size of the heap was not changed: kernels that call malloc have run already, so set CU_LIMIT_MALLOC_HEAP_SIZE before")

// heapIn is where a heap of a size lies.
func heapIn(arena vmm.Range, size uint64) vmm.Range {
	at := device.Arena{Base: arena.Addr, Size: arena.Size}.Heap(size)
	return vmm.Range{Addr: at.Base, Size: at.Size}
}

// heapFor is where the heap of a size that the program asked for lies; empty if it cannot be.
func (c *Core) heapFor(size uint64) vmm.Range { return heapIn(c.config.Arena, size) }

// heap is where the heap is, if there is one.
func (c *Core) heap() vmm.Range { return c.heapFor(c.Heap) }

// provideHeap makes the heap if there is none yet. It returns false if the message must wait.
func (c *Core) provideHeap() (bool, error) {
	if c.Heap > 0 || c.config.Guest {
		return true, nil
	}
	size := uint64(device.DefaultHeap)
	if set, ok := c.Limits[device.LimitHeap]; ok {
		size = set
	}
	r := c.heapFor(size)
	if r.Size == 0 {
		return true, fmt.Errorf("a heap of %s for kernels that call malloc: the program has no addresses for it: set a smaller CU_LIMIT_MALLOC_HEAP_SIZE: %w", sizeOf(size), device.ErrOutOfMemory)
	}
	if err := c.space.Alloc(r); err != nil {
		if errors.Is(err, vmm.ErrLimit) {
			err = c.beyondLimit()
		}
		return true, fmt.Errorf("a heap of %s for kernels that call malloc: %w", sizeOf(size), err)
	}
	if ok, err := c.commit(c.onHost()); !ok || err != nil {
		if _, wrong := c.space.Free(r.Addr); wrong != nil {
			return true, wrong
		}
		return ok, err
	}
	if c.config.Reserves {
		c.emit(Op{Kind: Reserve, Range: r})
	}
	const head = 64 // bytes that must be zeros before the heap is first used
	if ok, err := c.hostWrite(vmm.Range{Addr: r.Addr, Size: head}, line(r.Addr, head)); !ok || err != nil {
		return true, errors.Join(errors.New("new memory cannot be written"), err)
	}
	o := c.next(HostIn)
	o.To, o.Data = line(r.Addr, head), make([]byte, head)
	c.Heap = r.Size
	return true, nil
}

// withHeap adds the heap to ranges that are sorted by address: a kernel may have left pointers to it
// anywhere.
func (c *Core) withHeap(ranges []vmm.Range) []vmm.Range {
	if c.Heap == 0 {
		return ranges
	}
	h := c.heap()
	i, found := slices.BinarySearchFunc(ranges, h, func(r, h vmm.Range) int {
		switch {
		case r.Addr+r.Size <= h.Addr:
			return -1
		case r.Addr >= h.Addr+h.Size:
			return 1
		}
		return 0
	})
	if found {
		ranges[i] = h // it is one allocation
		return ranges
	}
	return slices.Insert(ranges, i, h)
}

// checkHeap checks that the heap is an allocation.
func (c *Core) checkHeap() error {
	if c.Heap == 0 {
		return nil
	}
	if r, ok := c.space.Find(c.heap().Addr); !ok || r != c.heap() || r.Size != c.Heap {
		return fmt.Errorf("a heap of %d bytes that is not there", c.Heap)
	}
	return nil
}
