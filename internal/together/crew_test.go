package together

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// The threads of the crew do every call once, however tasks follow each other: at once, several
// at a time, and one in the other.
func TestCrew(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8))
	var calls atomic.Int64
	work := func(n int) {
		done := make([]atomic.Int32, n)
		Do(n, func(i int) {
			done[i].Add(1)
			calls.Add(1)
		})
		for i := range done {
			if times := done[i].Load(); times != 1 {
				t.Errorf("call %d of %d was made %d times", i, n, times)
			}
		}
	}
	for i := range 300 {
		work(i % 70)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 50 {
				work(i)
			}
		})
	}
	all.Wait()
	Do(5, func(int) { work(20) })
	for range 3 {
		func() {
			defer func() {
				if r := recover(); r != "wrong" {
					t.Errorf("panicked with %v", r)
				}
			}()
			Do(50, func(i int) {
				if i == 31 {
					panic("wrong")
				}
			})
		}()
		work(10)
	}
}

func TestAside(t *testing.T) {
	done := false
	Aside(func() { done = true })()
	if !done {
		t.Error("it was not waited for")
	}
	defer func() {
		if r := recover(); r != "wrong" {
			t.Errorf("panicked with %v", r)
		}
	}()
	Aside(func() { panic("wrong") })()
}
