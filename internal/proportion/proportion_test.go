package proportion

import "testing"

// failing notes that a test was failed.
type failing struct {
	testing.TB
	failed bool
}

func (f *failing) Helper()               {}
func (f *failing) Errorf(string, ...any) { f.failed = true }

var sum int

func work(n int) func() {
	return func() {
		for i := range n {
			sum += i * i % 7
		}
	}
}

func TestHold(t *testing.T) {
	const n = 200_000
	for _, c := range []struct {
		times, most int
		fails       bool
	}{{1, 8, false}, {4, 40, false}, {64, 4, true}} {
		f := failing{TB: t}
		Hold(&f, "work", c.most, work(n), work(c.times*n))
		if f.failed != c.fails {
			t.Errorf("%d times the work, of which %d times as long is allowed: failed %t", c.times, c.most, f.failed)
		}
	}
}
