package ivm

import (
	"context"
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"syscall"

	"muster/ivm/core"
	"muster/ivm/proto"
)

// mapping is an object's memory in this process. It stays mapped until Unmap, also if the object
// is freed.
type mapping struct {
	number, size uint64
	all          []byte  // the object, and the page behind it that tells whether it is gone
	parts        []Range // the ranges that were mapped
}

// isGone says whether the object was freed or lost.
func (m *mapping) isGone() bool {
	return binary.LittleEndian.Uint32(m.all[core.Pages(m.size)*core.Page:]) != 0
}

// covers says whether a range was mapped.
func (m *mapping) covers(r Range) bool {
	return slices.ContainsFunc(m.parts, func(p Range) bool { return p.Offset <= r.Offset && r.End() <= p.End() })
}

// Slice is an object, or a part of it, as values of a type. Data is memory that all elements on
// this node share.
type Slice[T any] struct {
	Data []T

	element *Element
	mapping *mapping
	name    string
	first   int // of Data, in the object
}

// Malloc allocates an object of n values, all zero, under a name. Its master is on this node.
func Malloc[T any](ctx context.Context, e *Element, name string, n int) (*Slice[T], error) {
	size, err := sizeOf[T]()
	if err != nil {
		return nil, err
	}
	if n < 1 {
		return nil, fmt.Errorf("ivm: Malloc: object %q has %d values", name, n)
	}
	a, err := e.call(ctx, "Malloc", proto.Frame{Op: proto.Malloc, Args: [6]uint64{uint64(n) * size}, Tail: []byte(name)})
	if err != nil {
		return nil, err
	}
	m, err := e.take(name, a, Range{Length: uint64(n) * size})
	return sliceOf[T](e, m, name, 0, n), err
}

// Map maps an object. The first map on a node fetches what the master has.
func Map[T any](ctx context.Context, e *Element, name string) (*Slice[T], error) {
	return mapPart[T](ctx, e, name, 0, 0)
}

// MapSubset maps n values of an object, from the given one on. Only they are fetched.
func MapSubset[T any](ctx context.Context, e *Element, name string, from, n int) (*Slice[T], error) {
	if from < 0 || n < 1 {
		return nil, fmt.Errorf("ivm: MapSubset: object %q from %d on, %d values", name, from, n)
	}
	return mapPart[T](ctx, e, name, from, n)
}

func mapPart[T any](ctx context.Context, e *Element, name string, from, n int) (*Slice[T], error) {
	size, err := sizeOf[T]()
	if err != nil {
		return nil, err
	}
	r := Range{Offset: uint64(from) * size, Length: uint64(n) * size}
	m, err := e.mapRange(ctx, name, r)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		n = int(m.size / size)
	}
	if uint64(from+n)*size > m.size {
		return nil, fmt.Errorf("ivm: Map: object %q has %d bytes, less than %d values of %d from %d on", name, m.size, n, size, from)
	}
	return sliceOf[T](e, m, name, from, n), nil
}

// mapRange maps a range; one without a length is all of the object. What this process has mapped
// before costs nothing.
func (e *Element) mapRange(ctx context.Context, name string, r Range) (*mapping, error) {
	e.mu.Lock()
	if m := e.mapped[name]; m != nil && !m.isGone() {
		want := r
		if want.Length == 0 {
			want = Range{Length: m.size}
		}
		if m.covers(want) {
			e.mu.Unlock()
			return m, nil
		}
	}
	e.mu.Unlock()
	a, err := e.call(ctx, "Map", proto.Frame{Op: proto.Map, Args: [6]uint64{r.Offset, r.Length}, Tail: []byte(name)})
	if err != nil {
		return nil, err
	}
	if r.Length == 0 {
		r.Length = a.Args[2]
	}
	return e.take(name, a, r)
}

// take maps the memory that an answer brings.
func (e *Element) take(name string, a *answer, r Range) (*mapping, error) {
	if a.file == nil {
		return nil, fmt.Errorf("ivm: the node sent no memory for object %q", name)
	}
	defer a.file.Close()
	e.mu.Lock()
	defer e.mu.Unlock()
	if m := e.mapped[name]; m != nil && m.number == a.Args[1] {
		m.parts = append(m.parts, r)
		return m, nil
	}
	m := &mapping{number: a.Args[1], size: a.Args[2], parts: []Range{r}}
	var err error
	m.all, err = syscall.Mmap(int(a.file.Fd()), 0, (core.Pages(m.size)+1)*core.Page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("ivm: mapping object %q: %w", name, err)
	}
	e.mapped[name] = m
	return m, nil
}

// Free ends an object on all nodes. Memory of it that is mapped stays mapped, but is no longer
// exchanged.
func (e *Element) Free(ctx context.Context, name string) error {
	_, err := e.call(ctx, "Free", proto.Frame{Op: proto.Free, Tail: []byte(name)})
	return err
}

// Unmap gives up an object's memory: no slice of it may be used any more. The copy stays on the node.
func (e *Element) Unmap(name string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	m := e.mapped[name]
	if m == nil {
		return fmt.Errorf("ivm: Unmap: object %q is not mapped", name)
	}
	delete(e.mapped, name)
	return syscall.Munmap(m.all)
}

// sizeOf is a type's size. Values must be plain: a pointer means nothing on another node.
func sizeOf[T any]() (uint64, error) {
	t := reflect.TypeFor[T]()
	if !isPlain(t) || t.Size() == 0 {
		return 0, fmt.Errorf("ivm: %v is no type for shared memory: use numbers, and arrays and structs of them", t)
	}
	return uint64(t.Size()), nil
}

func isPlain(t reflect.Type) bool {
	switch k := t.Kind(); k {
	case reflect.Array:
		return isPlain(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if !isPlain(t.Field(i).Type) {
				return false
			}
		}
		return true
	default:
		return k >= reflect.Bool && k <= reflect.Complex128 && k != reflect.Uintptr
	}
}

// rangeOf is values of the slice as bytes of the object.
func (s *Slice[T]) rangeOf(from, to int) (Range, error) {
	if from < 0 || to > len(s.Data) || from >= to {
		return Range{}, fmt.Errorf("ivm: values %d to %d of object %q: there are %d", from, to, s.name, len(s.Data))
	}
	size := uint64(reflect.TypeFor[T]().Size())
	return Range{Offset: uint64(s.first+from) * size, Length: uint64(to-from) * size}, nil
}

func (s *Slice[T]) sync(ctx context.Context, call string, op proto.Op, from, to int, all uint64) error {
	r, err := s.rangeOf(from, to)
	if err != nil {
		return err
	}
	_, err = s.element.call(ctx, call, proto.Frame{Op: op, Args: [6]uint64{s.mapping.number, r.Offset, r.Length, all}})
	return err
}

// Put writes what has changed in values from to to, less one, of this node's mirror to the master
// (SyncPut). It has no effect on the master's node.
func (s *Slice[T]) Put(ctx context.Context, from, to int) error {
	return s.sync(ctx, "SyncPut", proto.Put, from, to, 0)
}

// Overwrite is Put of all these values, also of those that have not changed here. An element uses
// it to store a value that its mirror already has, while another node may have put a different one.
func (s *Slice[T]) Overwrite(ctx context.Context, from, to int) error {
	return s.sync(ctx, "Overwrite", proto.Put, from, to, 1)
}

// Get reads what differs in these values from the master into this node's mirror (SyncGet).
func (s *Slice[T]) Get(ctx context.Context, from, to int) error {
	return s.sync(ctx, "SyncGet", proto.Get, from, to, 0)
}

// PutAsync is Put while the caller goes on. The values must not change before the result is there.
func (s *Slice[T]) PutAsync(ctx context.Context, from, to int) <-chan error {
	return async(func() error { return s.Put(ctx, from, to) })
}

// GetAsync is Get while the caller goes on. The values must not be used before the result is there.
func (s *Slice[T]) GetAsync(ctx context.Context, from, to int) <-chan error {
	return async(func() error { return s.Get(ctx, from, to) })
}

func async(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// Part is values of a slice, from one to before another.
type Part struct{ From, To int }

func (s *Slice[T]) group(ctx context.Context, call string, op proto.Op, parts []Part) error {
	f := proto.Frame{Op: op, Args: [6]uint64{s.mapping.number}}
	if len(parts) == 0 {
		parts = []Part{{0, len(s.Data)}}
	}
	for _, p := range parts {
		r, err := s.rangeOf(p.From, p.To)
		if err != nil {
			return err
		}
		f.Tail = proto.AppendRanges(f.Tail, []Range{r})
	}
	_, err := s.element.call(ctx, call, f)
	return err
}

// PutGroup writes parts of the master, or all of it, to the mirrors of all nodes that have mapped
// them (SyncPutGroup).
func (s *Slice[T]) PutGroup(ctx context.Context, parts ...Part) error {
	return s.group(ctx, "SyncPutGroup", proto.PutGroup, parts)
}

// GetGroup writes what has changed in parts of all mirrors to the master (SyncGetGroup).
func (s *Slice[T]) GetGroup(ctx context.Context, parts ...Part) error {
	return s.group(ctx, "SyncGetGroup", proto.GetGroup, parts)
}
