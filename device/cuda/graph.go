//go:build linux && cgo

package cuda

// #include "driver.h"
import "C"

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"muster/device"
)

// graph is an instantiated graph of the driver.
type graph struct {
	c        *gpuContext
	memory   bool   // it has a copy or a fill
	prints   bool   // it has a kernel that may print
	unmapped uint64 // gpuContext.unmapped when it was made; see Holds
	stack    uint64 // stack per thread when it was made; see Holds

	nodes []device.GraphNode // what the instance does

	mu sync.Mutex // guards instantiated
	instantiated
}

// instantiated has the driver's objects of a graph. A graph that replaces another one may take them
// over.
type instantiated struct {
	instance C.mcu_handle // 0 when the graph is closed
	// described is the graph that the instance was made from, and made its nodes: the driver needs
	// them to change single nodes of the instance. They are 0 and nil if the instance was updated
	// to a graph of another shape, so that made no longer corresponds to graph.nodes.
	described C.mcu_handle
	made      []C.mcu_handle
}

// newGraph makes a graph. It tries the cheapest way first: if before differs in a few nodes, these are
// changed in its instance; else its instance is updated to the new graph, if the driver accepts that;
// else a new instance is made.
func (d *gpu) newGraph(context device.Context, nodes []device.GraphNode, before device.Graph) (device.Graph, error) {
	c, ok := context.(*gpuContext)
	if !ok {
		return nil, fmt.Errorf("a context of another device: %w", device.ErrInvalidValue)
	}
	g := &graph{c: c, unmapped: c.unmapped.Load(), nodes: nodes}
	for i := range nodes {
		if err := g.checkNode(&nodes[i], i); err != nil {
			return nil, fmt.Errorf("node %d of a graph: %w", i, err)
		}
		if nodes[i].Function == nil {
			g.memory = true
			continue
		}
		g.prints = g.prints || nodes[i].Function.(*function).module.prints
		if err := c.stack.grow(nodes[i].How.Stack); err != nil {
			return nil, err
		}
	}
	g.stack = c.stack.size()
	old, ok := before.(*graph)
	if !ok || old.c != c || !old.Holds() {
		old = nil
	}
	if old != nil && old.change(nodes) {
		g.instantiated = old.release()
		return g, nil
	}
	described, made, err := g.describe(nodes)
	if err != nil {
		return nil, err
	}
	if old != nil && old.becomes(described) {
		_ = g.destroyGraph(described)
		g.instantiated = old.release()
		if !sameShape(old.nodes, nodes) {
			_ = g.destroyGraph(g.described)
			g.described, g.made = 0, nil
		}
		return g, nil
	}
	g.described, g.made = described, made
	if err := c.call(func() C.mcu_result { return C.mcu_graph_instantiate(c.handle, described, &g.instance) }); err != nil {
		_ = g.destroyGraph(described)
		return nil, err
	}
	return g, nil
}

// checkNode returns why a node, the i-th of its graph, must be refused, or nil.
func (g *graph) checkNode(n *device.GraphNode, i int) error {
	for _, before := range n.After {
		if before < 0 || before >= i {
			return fmt.Errorf("it comes behind node %d: %w", before, device.ErrInvalidValue)
		}
	}
	if n.Function == nil {
		return nil
	}
	f, ok := n.Function.(*function)
	if !ok || f == nil || f.module.c != g.c {
		return fmt.Errorf("a function of another context: %w", device.ErrInvalidValue)
	}
	if err := f.module.usable(); err != nil {
		return err
	}
	return f.check(n.How)
}

// describe makes a graph in the driver, without an instance.
func (g *graph) describe(nodes []device.GraphNode) (described C.mcu_handle, made []C.mcu_handle, err error) {
	if err := g.c.call(func() C.mcu_result { return C.mcu_graph_create(&described) }); err != nil {
		return 0, nil, err
	}
	made = make([]C.mcu_handle, len(nodes))
	for i := range nodes {
		after := make([]C.mcu_handle, len(nodes[i].After))
		for k, n := range nodes[i].After {
			after[k] = made[n]
		}
		if err := g.addNode(described, &nodes[i], after, &made[i]); err != nil {
			_ = g.destroyGraph(described)
			return 0, nil, fmt.Errorf("node %d of a graph: %w", i, err)
		}
	}
	return described, made, nil
}

func (g *graph) destroyGraph(described C.mcu_handle) error {
	if described == 0 {
		return nil
	}
	return g.c.call(func() C.mcu_result { return C.mcu_graph_destroy(described) })
}

// sameShape says whether two graphs have the same kinds of nodes with the same dependencies, in the
// same order.
func sameShape(a, b []device.GraphNode) bool {
	return slices.EqualFunc(a, b, func(m, n device.GraphNode) bool {
		return (m.Function == nil) == (n.Function == nil) && (m.Element == 0) == (n.Element == 0) && slices.Equal(m.After, n.After)
	})
}

// fewChanges says that nodes are changed one by one if at most one in fewChanges differs. Changing one
// node takes the driver longer than describing it in a new graph, so for more nodes it is cheaper to
// describe all of them and update the instance.
const fewChanges = 4

// change changes those nodes of the instance that differ from the given ones, if they are few. It
// returns false if it cannot. Some nodes may be changed even then; NewGraph then updates the whole
// instance or makes another, and the caller no longer launches this graph.
func (g *graph) change(nodes []device.GraphNode) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.instance == 0 || g.made == nil || !sameShape(g.nodes, nodes) {
		return false
	}
	var others []int
	for i := range nodes {
		same, may := compare(&g.nodes[i], &nodes[i])
		if !may {
			return false
		}
		if !same {
			others = append(others, i)
		}
	}
	if len(others) > max(len(nodes)/fewChanges, 1) {
		return false
	}
	for _, i := range others {
		if err := g.c.call(func() C.mcu_result { return g.set(i, &nodes[i]) }); err != nil {
			return false
		}
	}
	return true
}

// compare says whether two nodes of the same kind do the same, and whether the first may be changed into
// the second: the function of a node and the attributes of its launch cannot be changed.
func compare(a, b *device.GraphNode) (same, may bool) {
	if a.Function == nil {
		return movesSame(a, b), true
	}
	x, y := &a.How, &b.How
	may = a.Function == b.Function && x.Cooperative == y.Cooperative && x.Cluster == y.Cluster && x.LargeCluster == y.LargeCluster
	return may && x.Grid == y.Grid && x.Block == y.Block && x.Shared == y.Shared && bytes.Equal(x.Params, y.Params), may
}

// movesSame says whether two copies or fills do the same.
func movesSame(a, b *device.GraphNode) bool {
	return a.To == b.To && a.From == b.From && a.ToPitch == b.ToPitch && a.FromPitch == b.FromPitch &&
		a.Width == b.Width && a.Height == b.Height && a.Value == b.Value && a.Element == b.Element
}

// set changes a node of the instance.
func (g *graph) set(i int, n *device.GraphNode) C.mcu_result {
	c, node := g.c, g.made[i]
	if n.Function != nil {
		f, how := n.Function.(*function), shape(n.How)
		return C.mcu_graph_set_kernel(c.handle, g.instance, node, f.handle, &how,
			(*C.char)(unsafe.Pointer(unsafe.SliceData(n.How.Params))), unsafe.SliceData(f.offsets), C.size_t(len(f.offsets)))
	}
	dst, src := rowsOf(n)
	if n.Element != 0 {
		return C.mcu_graph_set_fill(c.handle, g.instance, node, &dst, C.uint32_t(n.Value), C.int(n.Element))
	}
	return C.mcu_graph_set_copy(c.handle, g.instance, node, &dst, &src)
}

// becomes updates the instance to a described graph, if the driver accepts that. Launches made before
// are not affected.
func (g *graph) becomes(described C.mcu_handle) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.instance != 0 && g.c.call(func() C.mcu_result { return C.mcu_graph_update(g.c.handle, g.instance, described) }) == nil
}

// release returns the driver's objects, and leaves the graph closed. The caller owns them then.
func (g *graph) release() instantiated {
	g.mu.Lock()
	defer g.mu.Unlock()
	had := g.instantiated
	g.instantiated = instantiated{}
	return had
}

// rowsOf returns the rows that a copy or fill writes, and those that a copy reads.
func rowsOf(n *device.GraphNode) (to, from C.mcu_rows) {
	rows := func(at, pitch uint64) C.mcu_rows {
		return C.mcu_rows{at: C.uint64_t(at), pitch: C.size_t(pitch), width: C.size_t(n.Width), height: C.size_t(n.Height)}
	}
	return rows(n.To, n.ToPitch), rows(n.From, n.FromPitch)
}

// addNode adds a node to a graph. checkNode must have accepted it.
func (g *graph) addNode(to C.mcu_handle, n *device.GraphNode, after []C.mcu_handle, made *C.mcu_handle) error {
	behind, count := unsafe.SliceData(after), C.size_t(len(after))
	if n.Function != nil {
		f, how := n.Function.(*function), shape(n.How)
		return g.c.call(func() C.mcu_result {
			return C.mcu_graph_kernel(g.c.handle, to, behind, count, f.handle, &how,
				(*C.char)(unsafe.Pointer(unsafe.SliceData(n.How.Params))), unsafe.SliceData(f.offsets), C.size_t(len(f.offsets)), made)
		})
	}
	dst, src := rowsOf(n)
	if n.Element != 0 {
		return g.c.call(func() C.mcu_result {
			return C.mcu_graph_fill(g.c.handle, to, behind, count, &dst, C.uint32_t(n.Value), C.int(n.Element), made)
		})
	}
	return g.c.call(func() C.mcu_result { return C.mcu_graph_copy(g.c.handle, to, behind, count, &dst, &src, made) })
}

// Launch submits the graph.
func (g *graph) Launch(on device.Stream) error {
	s, ok := on.(*stream)
	if !ok || s.c != g.c {
		return fmt.Errorf("a stream of another context: %w", device.ErrInvalidValue)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.instance == 0 {
		return fmt.Errorf("graph: %w", device.ErrClosed)
	}
	defer g.c.launched(g.prints)
	return s.submit(func() C.mcu_result { return C.mcu_graph_launch(g.c.handle, g.instance, s.handle) })
}

// Holds says whether the graph can still be launched.
func (g *graph) Holds() bool {
	return (!g.memory || g.unmapped == g.c.unmapped.Load()) && g.stack == g.c.stack.size()
}

// Close destroys the graph. The driver frees it when all its launches have ended.
func (g *graph) Close() error {
	had := g.release()
	if had.instance == 0 {
		return nil
	}
	first := g.destroyGraph(had.described)
	if err := g.c.call(func() C.mcu_result { return C.mcu_graph_end(g.c.handle, had.instance) }); err != nil {
		return err
	}
	return first
}
