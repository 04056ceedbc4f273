package winner_test

import (
	"testing"

	"muster/policy/winner"
)

// problemFrom reads a small problem out of bytes; any bytes make one.
func problemFrom(data []byte) *winner.Problem {
	next := func(below int) int32 {
		if len(data) == 0 {
			return 0
		}
		v := int32(data[0]) % int32(below)
		data = data[1:]
		return v
	}
	p := &winner.Problem{Jobs: 1 + int(next(5))}
	nodes := 1 + next(5)
	for range nodes {
		p.Cores = append(p.Cores, next(4))
		p.GPUs = append(p.GPUs, next(3))
	}
	for len(data) > 0 && len(p.Bids) < 10 {
		b := winner.Bid{Job: next(p.Jobs), Value: 1 + int64(next(40)), GPUs: max(0, next(4)-1)}
		class := 1 + next(1<<nodes-1)
		for n := range nodes {
			if class>>n&1 != 0 {
				b.Nodes = append(b.Nodes, n)
			}
		}
		b.Count = 1 + next(len(b.Nodes))
		if b.PerNode = next(4); b.PerNode == 0 {
			b.Total = b.Count + next(8)
		}
		p.Bids = append(p.Bids, b)
	}
	return p
}

func FuzzSearch(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{3, 3, 3, 1, 3, 2, 3, 0, 0, 9, 0, 6, 1, 0, 3, 1, 7, 1, 6, 0, 2, 2, 4, 0, 7, 2, 1})
	f.Add([]byte{4, 1, 3, 2, 3, 2, 0, 5, 0, 2, 1, 2, 1, 6, 0, 2, 1, 0, 3, 2, 7, 1, 0, 0, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		p := problemFrom(data)
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		limits := winner.DefaultLimits()
		limits.Iterations = 2000
		a, err := new(winner.Search).Solve(p, limits)
		if err != nil {
			t.Fatal(err)
		}
		if err := winner.Check(p, a); err != nil {
			t.Fatalf("%v\n%+v", err, p)
		}
		best := optimum(p)
		if a.Value > best || a.Bound < best {
			t.Fatalf("value %d, optimum %d, bound %d\n%+v", a.Value, best, a.Bound, p)
		}
		if g := winner.Greedy(p); winner.Check(p, g) != nil || g.Bound < best {
			t.Fatalf("greedy: %v, bound %d, optimum %d\n%+v", winner.Check(p, g), g.Bound, best, p)
		}
	})
}
