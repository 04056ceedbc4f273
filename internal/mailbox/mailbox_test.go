package mailbox

import (
	"slices"
	"sync"
	"testing"
)

func all[T any](b *Box[T]) (got []T) {
	for v, ok := b.Take(); ok; v, ok = b.Take() {
		got = append(got, v)
	}
	return got
}

// What is put comes out in the same order, and the oldest that is wanted before the others.
func TestOrder(t *testing.T) {
	b := New[int](nil)
	for v := range 5 {
		b.Put(v)
	}
	if v, ok := b.Pick(func(v int) bool { return v%2 == 1 }); v != 1 || !ok {
		t.Errorf("picked %d, %v", v, ok)
	}
	if _, ok := b.Pick(func(v int) bool { return v > 4 }); ok || b.Len() != 4 {
		t.Errorf("picked what is not there, and %d are left", b.Len())
	}
	if got := all(b); !slices.Equal(got, []int{0, 2, 3, 4}) || b.Len() != 0 {
		t.Errorf("%v, and %d are left", got, b.Len())
	}
}

// An element takes the place of the one before it where it says all of that, and no other's.
func TestReplaces(t *testing.T) {
	b := New(func(next, last int) bool { return next/10 == last/10 })
	for _, v := range []int{11, 12, 21, 13, 14} {
		b.Put(v)
	}
	if got := all(b); !slices.Equal(got, []int{12, 21, 14}) {
		t.Error(got)
	}
}

// A reader that sleeps until there is news misses nothing.
func TestNews(t *testing.T) {
	const writers, each = 8, 200
	b := New[int](nil)
	var writing sync.WaitGroup
	for range writers {
		writing.Go(func() {
			for v := range each {
				b.Put(v)
			}
		})
	}
	for got := 0; got < writers*each; {
		<-b.News()
		got += len(all(b))
	}
	writing.Wait()
}
