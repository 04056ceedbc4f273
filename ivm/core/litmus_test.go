package core

import (
	"bytes"
	"testing"
)

// The litmus tests of docs/ivm.md, with its numbers. Node 0 has the master of object 0.
func litmus() *cluster {
	const size = 3 * Page
	c := newCluster(3, size, 0)
	for n := 1; n < 3; n++ {
		c.mapAll(n, 0, whole(size))
	}
	return c
}

func TestLitmus1WhatWasPutIsGot(t *testing.T) {
	c := litmus()
	c.mem(1, 0)[5000] = 7
	c.put(1, 0, Range{5000, 1})
	c.get(2, 0, Range{5000, 1})
	if c.mem(0, 0)[5000] != 7 || c.mem(2, 0)[5000] != 7 {
		t.Errorf("master has %d, node 2 has %d", c.mem(0, 0)[5000], c.mem(2, 0)[5000])
	}
}

func TestLitmus2WithoutGetAMirrorStays(t *testing.T) {
	c := litmus()
	c.mem(0, 0)[0] = 1 // an element at the master's memory
	c.mem(1, 0)[1] = 1
	c.put(1, 0, Range{0, Page})
	if got := c.mem(2, 0)[:2]; got[0] != 0 || got[1] != 0 {
		t.Errorf("node 2 has %v without a get", got)
	}
	if c.mem(1, 0)[0] != 0 {
		t.Error("a put is no get")
	}
}

func TestLitmus3NeighboursDoNotOverwriteEachOther(t *testing.T) {
	c := litmus()
	for n := 1; n < 3; n++ { // every other byte of one page
		for i := n - 1; i < Page; i += 2 {
			c.mem(n, 0)[i] = byte(n)
		}
	}
	c.put(1, 0, whole(c.size))
	c.put(2, 0, whole(c.size))
	for i := range Page {
		if want := byte(1 + i%2); c.mem(0, 0)[i] != want {
			t.Fatalf("byte %d is %d, not %d", i, c.mem(0, 0)[i], want)
		}
	}
}

// Listing 5-1: the first element names the second's half, too.
func TestLitmus4TheListingsRangesAreTooLong(t *testing.T) {
	c := litmus()
	half := c.size / 2
	fill := func(n int, from, to uint64) {
		for i := from; i < to; i++ {
			c.mem(n, 0)[i] = byte(n)
		}
	}
	fill(1, 0, half)
	fill(2, half, c.size)
	first, _ := Range{0, c.size}.Clip(c.size)
	second, _ := Range{half, c.size}.Clip(c.size)
	c.put(2, 0, second)
	c.put(1, 0, first)
	if c.mem(0, 0)[half-1] != 1 || c.mem(0, 0)[half] != 2 || c.mem(0, 0)[c.size-1] != 2 {
		t.Errorf("%d %d %d", c.mem(0, 0)[half-1], c.mem(0, 0)[half], c.mem(0, 0)[c.size-1])
	}
}

func TestLitmus5AGetDropsWhatWasNotPutInItsRangeAlone(t *testing.T) {
	c := litmus()
	for i := range 3 {
		c.mem(1, 0)[i*100] = 9
	}
	c.mem(0, 0)[200] = 5
	c.get(1, 0, Range{100, 101})
	if got := []byte{c.mem(1, 0)[0], c.mem(1, 0)[100], c.mem(1, 0)[200]}; !bytes.Equal(got, []byte{9, 0, 5}) {
		t.Errorf("got %v: outside the range stays, inside is as the master", got)
	}
	c.put(1, 0, whole(c.size))
	if c.mem(0, 0)[0] != 9 || c.mem(0, 0)[100] != 0 {
		t.Error("what was outside must still be put, what was dropped must not")
	}
}

func TestLitmus6OnlyWhatChangedMoves(t *testing.T) {
	c := litmus()
	all := whole(c.size)
	if n := c.put(1, 0, all); n != 0 {
		t.Errorf("a put of nothing moved %d bytes", n)
	}
	if n := c.get(1, 0, all); n != 0 {
		t.Errorf("a get of nothing moved %d pages", n)
	}
	c.mem(1, 0)[Page] = 1
	if n := c.put(1, 0, all); n > 64 {
		t.Errorf("a put of one byte moved %d bytes", n)
	}
	if n := c.get(1, 0, all); n != 0 {
		t.Errorf("a node got %d pages back that it had put itself", n)
	}
	if n := c.get(2, 0, all); n != 1 {
		t.Errorf("the other node got %d pages for one", n)
	}
}

func TestLitmus7ASubsetMovesAlone(t *testing.T) {
	c := newCluster(2, 8*Page, 0)
	for i := range c.mem(0, 0) {
		c.mem(0, 0)[i] = 1
	}
	for _, s := range []struct {
		r     Range
		moved int
	}{{Range{Page, 2 * Page}, 2}, {Range{Page + 5, 10}, 0}, {Range{0, 4 * Page}, 2}, {whole(8 * Page), 4}, {whole(8 * Page), 0}} {
		if n := c.mapAll(1, 0, s.r); n != s.moved {
			t.Errorf("mapping %v moved %d pages, not %d", s.r, n, s.moved)
		}
	}
}

// What is not mapped when a mirror is filled must not be taken from elements that write to the rest.
func TestFillingLeavesMappedPagesAlone(t *testing.T) {
	c := newCluster(2, 3*Page, 0)
	c.mapAll(1, 0, Range{Page, Page})
	c.mem(1, 0)[Page] = 3
	c.mapAll(1, 0, whole(3*Page))
	if c.mem(1, 0)[Page] != 3 {
		t.Error("mapping the rest dropped what an element wrote")
	}
}
