//go:build linux && cgo

package cuda

// #include "driver.h"
import "C"

import (
	"fmt"
	"sync"
	"unsafe"

	"muster/device"
)

var _ device.Grapher = (*gpu)(nil)

// graph is an instantiated graph of the driver's.
type graph struct {
	c        *gpuContext
	memory   bool   // it copies or fills
	unmapped uint64 // how often memory had been unmapped when it was made
	stack    uint64 // that threads had then

	mu       sync.Mutex
	instance C.mcu_handle // 0 when it is closed
}

// NewGraph makes a graph of the driver's.
func (d *gpu) NewGraph(context device.Context, nodes []device.GraphNode, before device.Graph) (device.Graph, error) {
	c, ok := context.(*gpuContext)
	if !ok {
		return nil, fmt.Errorf("a context of another device: %w", device.ErrInvalidValue)
	}
	g := &graph{c: c, unmapped: c.unmapped.Load()}
	for i := range nodes {
		if nodes[i].Function == nil {
			g.memory = true
		} else if err := c.growStack(nodes[i].How.Stack); err != nil {
			return nil, err
		}
	}
	g.stack = c.threadStack()
	var described C.mcu_handle
	if err := c.call(func() C.mcu_result { return C.mcu_graph_create(&described) }); err != nil {
		return nil, err
	}
	defer func() { _ = c.call(func() C.mcu_result { return C.mcu_graph_destroy(described) }) }()
	made := make([]C.mcu_handle, len(nodes))
	for i := range nodes {
		after := make([]C.mcu_handle, len(nodes[i].After))
		for k, n := range nodes[i].After {
			if n < 0 || n >= i {
				return nil, fmt.Errorf("node %d of a graph comes behind node %d: %w", i, n, device.ErrInvalidValue)
			}
			after[k] = made[n]
		}
		if err := c.addNode(described, &nodes[i], after, &made[i]); err != nil {
			return nil, fmt.Errorf("node %d of a graph: %w", i, err)
		}
	}
	if old, ok := before.(*graph); ok && old.c == c && old.becomes(described) {
		g.instance = old.release()
		return g, nil
	}
	if err := c.call(func() C.mcu_result { return C.mcu_graph_instantiate(c.handle, described, &g.instance) }); err != nil {
		return nil, err
	}
	return g, nil
}

// becomes changes the instance to what a description says, if they have the same shape. What was
// launched before is as it was.
func (g *graph) becomes(described C.mcu_handle) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.instance != 0 && g.c.call(func() C.mcu_result { return C.mcu_graph_update(g.c.handle, g.instance, described) }) == nil
}

// release gives the instance away.
func (g *graph) release() C.mcu_handle {
	g.mu.Lock()
	defer g.mu.Unlock()
	instance := g.instance
	g.instance = 0
	return instance
}

func (c *gpuContext) addNode(to C.mcu_handle, n *device.GraphNode, after []C.mcu_handle, made *C.mcu_handle) error {
	behind, count := unsafe.SliceData(after), C.size_t(len(after))
	if n.Function != nil {
		f, ok := n.Function.(*function)
		if !ok || f == nil || f.module.c != c {
			return fmt.Errorf("a function of another context: %w", device.ErrInvalidValue)
		}
		if err := f.module.usable(); err != nil {
			return err
		}
		if err := f.check(n.How); err != nil {
			return err
		}
		how := shape(n.How)
		return c.call(func() C.mcu_result {
			return C.mcu_graph_kernel(c.handle, to, behind, count, f.handle, &how,
				(*C.char)(unsafe.Pointer(unsafe.SliceData(n.How.Params))), unsafe.SliceData(f.offsets), C.size_t(len(f.offsets)), made)
		})
	}
	rows := func(at, pitch uint64) C.mcu_rows {
		return C.mcu_rows{at: C.uint64_t(at), pitch: C.size_t(pitch), width: C.size_t(n.Width), height: C.size_t(n.Height)}
	}
	dst := rows(n.To, n.ToPitch)
	if n.Element != 0 {
		return c.call(func() C.mcu_result {
			return C.mcu_graph_fill(c.handle, to, behind, count, &dst, C.uint32_t(n.Value), C.int(n.Element), made)
		})
	}
	src := rows(n.From, n.FromPitch)
	return c.call(func() C.mcu_result { return C.mcu_graph_copy(c.handle, to, behind, count, &dst, &src, made) })
}

// threadStack is how much stack a thread has.
func (c *gpuContext) threadStack() uint64 {
	c.stacks.Lock()
	defer c.stacks.Unlock()
	return c.stack
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
	return s.submit(func() C.mcu_result { return C.mcu_graph_launch(g.c.handle, g.instance, s.handle) })
}

// Holds says whether the graph can still be launched.
func (g *graph) Holds() bool {
	return (!g.memory || g.unmapped == g.c.unmapped.Load()) && g.stack == g.c.threadStack()
}

// Close ends the graph. The driver frees it when what was launched has ended.
func (g *graph) Close() error {
	instance := g.release()
	if instance == 0 {
		return nil
	}
	return g.c.call(func() C.mcu_result { return C.mcu_graph_end(g.c.handle, instance) })
}
