package together

import (
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
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

// Memory that has no page, as where the machine has none left, makes Do panic in its caller whichever
// thread meets it, and the threads go on with other tasks: also those that many callers have at the
// same time, each of which gets its own panic.
func TestCrewMeetsMemoryWithoutPages(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8))
	f, err := os.Create(filepath.Join(t.TempDir(), "memory"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const size, there = 8 << 20, 5 << 20
	if err := f.Truncate(there); err != nil {
		t.Fatal(err)
	}
	memory, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Munmap(memory) }()
	faults := func(dst, src []byte) (fault bool) {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		defer func() {
			r := recover()
			_, fault = r.(interface{ Addr() uintptr })
			if r != nil && !fault {
				t.Errorf("panicked with %v", r)
			}
		}()
		Copy(dst, src)
		return false
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			own := make([]byte, size)
			for range 10 {
				if !faults(own, memory) {
					t.Error("memory without pages was read")
				}
				if faults(own[:there], memory[:there]) {
					t.Error("memory with pages was not read")
				}
			}
		})
	}
	all.Wait()
	if !faults(memory, make([]byte, size)) {
		t.Error("memory without pages was written")
	}
}

// A caller waits for a helper that takes long.
func TestCrewTakesLong(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8))
	for range 5 {
		var done atomic.Int32
		Do(8, func(i int) {
			if i%2 == 1 {
				time.Sleep(20 * time.Millisecond)
			}
			done.Add(1)
		})
		if n := done.Load(); n != 8 {
			t.Fatalf("Do has returned when %d of 8 calls had", n)
		}
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
