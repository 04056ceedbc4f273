// Command dmm multiplies two square matrices with elements on the CPUs of a program's nodes, divided
// by DS-LB as in the paper (5.4.2): the result is cut into M x M tiles, each element computes one and
// creates the next on its node. Elements map only the rows and columns that they need.
//
//	muster run --nodes b,c -- dmm 512 4
//
// It knows the library alone, as any program does.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"muster/ivm"
	"muster/ivm/balance"
)

// job is what the elements know from their arguments.
type job struct {
	n, m int // the size of the matrices, and the tiles in a row
	balance.Spawning
}

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "dmm:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	j := job{n: 256, m: 4}
	for i, to := range []*int{&j.n, &j.m} {
		if i < len(args) {
			v, err := strconv.Atoi(args[i])
			if err != nil || v < 1 {
				return fmt.Errorf("usage: dmm [SIZE [TILES IN A ROW]], not %q", args[i])
			}
			*to = v
		}
	}
	if j.n%j.m != 0 {
		return fmt.Errorf("%d rows cannot be cut into %d tiles", j.n, j.m)
	}
	j.Spawning = balance.Spawning{Portions: j.m * j.m, Iterations: 1}
	e, err := ivm.Enter(ctx)
	if err != nil {
		return err
	}
	if e.ID() == 0 {
		err = j.root(ctx, e)
	} else {
		err = j.child(ctx, e)
	}
	if err != nil {
		return err
	}
	return e.Exit()
}

// root has the product computed, and checks it. B is kept by columns.
func (j *job) root(ctx context.Context, e *ivm.Element) error {
	a, err := ivm.Malloc[float32](ctx, e, "A", j.n*j.n)
	if err != nil {
		return err
	}
	b, err := ivm.Malloc[float32](ctx, e, "B", j.n*j.n)
	if err != nil {
		return err
	}
	c, err := ivm.Malloc[float32](ctx, e, "C", j.n*j.n)
	if err != nil {
		return err
	}
	for i := range j.n * j.n {
		a.Data[i], b.Data[i] = float32(i%7), float32(i%5)
	}
	nodes, err := e.Nodes(ctx)
	if err != nil {
		return err
	}
	for i := range nodes {
		j.Devices = append(j.Devices, ivm.CPU(i))
	}
	begun := time.Now()
	if err := j.Root(ctx, e, nil); err != nil {
		return err
	}
	took := time.Since(begun)
	for row := range j.n {
		for col := 0; col < j.n; col += 1 + j.n/16 {
			if want := dot(a.Data[row*j.n:], b.Data[col*j.n:], j.n); c.Data[row*j.n+col] != want {
				return fmt.Errorf("row %d, column %d is %v, not %v", row, col, c.Data[row*j.n+col], want)
			}
		}
	}
	fmt.Printf("PASS %d x %d in %d tiles on %d nodes: %.3f s\n", j.n, j.n, j.Portions, len(nodes), took.Seconds())
	return nil
}

func dot(a, b []float32, n int) (sum float32) {
	for i := range n {
		sum += a[i] * b[i]
	}
	return sum
}

// child computes one tile.
func (j *job) child(ctx context.Context, e *ivm.Element) error {
	side := j.n / j.m
	var c *ivm.Slice[float32]
	compute := func(portion int) error {
		row, col := portion/j.m*side, portion%j.m*side
		a, err := ivm.MapSubset[float32](ctx, e, "A", row*j.n, side*j.n)
		if err != nil {
			return err
		}
		b, err := ivm.MapSubset[float32](ctx, e, "B", col*j.n, side*j.n)
		if err != nil {
			return err
		}
		if c, err = ivm.MapSubset[float32](ctx, e, "C", row*j.n, side*j.n); err != nil {
			return err
		}
		for r := range side {
			for k := range side {
				c.Data[r*j.n+col+k] = dot(a.Data[r*j.n:], b.Data[k*j.n:], j.n)
			}
		}
		return nil
	}
	put := func(int) error { return c.Put(ctx, 0, len(c.Data)) }
	return j.Child(ctx, e, compute, put)
}
