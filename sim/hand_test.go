package sim_test

import (
	"fmt"
	"testing"
	"time"

	"muster/model"
)

// Scenarios worked by hand from docs/policies.md, which the oracle must get right.

type handJob struct {
	id                string
	submit, run, wall int // seconds
	priority          int64
	request           model.Request
	traffic           model.Traffic
	intensity         float64

	start, end int // expected; start -1: impossible
	killed     bool
	where      string // expected: the nodes, and after a slash what is borrowed, as lender.device>part
}

type handCase struct {
	name    string
	policy  string
	cluster *model.Cluster
	options oracleOptions // Depth and Window
	jobs    []handJob
}

// handCluster has a node for each number: that many GPUs, 4 cores, 16 bytes of memory.
func handCluster(gpus ...int) *model.Cluster {
	c := &model.Cluster{
		Name:     "hand",
		GPUTypes: []model.GPUType{{Name: "g", Memory: 8, Speed: 1, PeerBandwidth: 4000}},
		Remote:   model.Remote{Latency: 500 * time.Millisecond, Overhead: 1},
	}
	for i, n := range gpus {
		c.Nodes = append(c.Nodes, model.Node{Name: string(rune('a' + i)), Cores: 4, Memory: 16,
			GPUs: make([]int, n), Link: model.Link{Bandwidth: 1000, Latency: 500 * time.Millisecond}})
	}
	return c
}

func nodes(n int) model.Request { return model.Request{Nodes: n, CoresPerNode: 4} }
func cores(n int) model.Request { return model.Request{Nodes: 1, CoresPerNode: n} }
func gpus(n, perNode int) model.Request {
	return model.Request{Nodes: n, CoresPerNode: 1, GPUs: perNode}
}
func share(memory int64) model.Request { return model.Request{Nodes: 1, GPUs: 1, GPUMemory: memory} }
func on(name string) model.Request {
	return model.Request{Nodes: 1, CoresPerNode: 4, NodeList: []string{name}}
}
func remote(m model.RemoteGPUs) model.Request { return model.Request{Nodes: 1, Remote: &m} }

var handCases = []handCase{
	{
		name: "nothing overtakes the first job", policy: "fcfs", cluster: handCluster(0, 0),
		jobs: []handJob{
			{id: "x", submit: 0, run: 10, request: nodes(1), start: 0, end: 10, where: "a"},
			{id: "y", submit: 1, run: 10, request: nodes(2), start: 10, end: 20, where: "ab"},
			{id: "z", submit: 2, run: 1, request: nodes(1), start: 20, end: 21, where: "a"},
		},
	},
	{
		name: "the shortest goes first, once it waits", policy: "sjf", cluster: handCluster(0),
		jobs: []handJob{
			{id: "x", submit: 0, run: 10, request: nodes(1), start: 0, end: 10},
			{id: "y", submit: 1, run: 9, request: nodes(1), start: 17, end: 26},
			{id: "z", submit: 2, run: 2, wall: 5, request: nodes(1), start: 10, end: 12},
			{id: "w", submit: 2, run: 5, request: nodes(1), start: 12, end: 17},
		},
	},
	{
		name: "jobs overtake freely", policy: "first-fit", cluster: handCluster(0, 0),
		jobs: []handJob{
			{id: "x", submit: 0, run: 10, request: nodes(1), start: 0, end: 10, where: "a"},
			{id: "y", submit: 1, run: 10, request: nodes(2), start: 22, end: 32, where: "ab"},
			{id: "z", submit: 2, run: 10, request: nodes(1), start: 2, end: 12, where: "b"},
			{id: "w", submit: 3, run: 12, request: nodes(1), start: 10, end: 22, where: "a"},
		},
	},
	{
		name: "what a node gives", policy: "fcfs", cluster: handCluster(2, 1, 0),
		jobs: []handJob{
			{id: "shares go to one device", run: 9, request: share(4), intensity: 0.5, start: 0, end: 9, where: "a/a0:4>0"},
			{id: "while it has room", run: 9, request: share(4), intensity: 0.5, start: 0, end: 9, where: "a/a0:4>0"},
			{id: "a whole one leaves shared ones alone", run: 9, request: gpus(2, 1), start: 0, end: 9, where: "ab"},
			{id: "cores are spread", run: 9, request: model.Request{Cores: 6, MemoryPerCore: 3}, start: 0, end: 9, where: "bc"},
		},
	},
	{
		name: "impossible jobs never wait", policy: "fcfs", cluster: handCluster(1, 0),
		jobs: []handJob{
			{id: "too many nodes", run: 1, request: nodes(3), start: -1},
			{id: "too many cores", run: 1, request: cores(5), start: -1},
			{id: "too many GPUs", run: 1, request: gpus(2, 1), start: -1},
			{id: "no such type", run: 1, request: model.Request{Nodes: 1, GPUs: 1, GPUType: "h"}, start: -1},
			{id: "no such node", run: 1, request: on("q"), start: -1},
			{id: "fits", run: 1, request: nodes(2), start: 0, end: 1},
		},
	},
	{
		name: "zero length, equal times, and the wall", policy: "fcfs", cluster: handCluster(0),
		jobs: []handJob{
			{id: "x", run: 0, request: nodes(1), start: 0, end: 0},
			{id: "y", run: 0, request: nodes(1), start: 0, end: 0},
			{id: "z", run: 9, wall: 4, request: nodes(1), start: 0, end: 4, killed: true},
			{id: "w", run: 4, wall: 4, request: nodes(1), start: 4, end: 8},
		},
	},
	{
		name: "an exclusive job wants the node and its devices to itself", policy: "first-fit", cluster: handCluster(1, 0),
		jobs: []handJob{
			{id: "x", submit: 0, run: 10, request: on("b"), start: 0, end: 10},
			{id: "y", submit: 1, run: 4, request: model.Request{Nodes: 1, NodeList: []string{"b"}, Remote: &model.RemoteGPUs{Count: 1}}, start: 10, end: 14, where: "b/a0>0"},
			{id: "z", submit: 10, run: 5, request: model.Request{Nodes: 1, Exclusive: true}, start: 14, end: 19, where: "b"},
			{id: "w", submit: 15, run: 5, request: cores(1), start: 15, end: 20, where: "a"},
		},
	},
	{
		name: "jobs that ask for no GPU keep away from those who do", policy: "first-fit", cluster: handCluster(2, 1, 0),
		jobs: []handJob{
			{id: "x", run: 9, request: model.Request{Nodes: 1, CoresPerNode: 4}, start: 0, end: 9, where: "c"},
			{id: "y", run: 9, request: model.Request{Nodes: 1, CoresPerNode: 2}, start: 0, end: 9, where: "b"},
			{id: "z", run: 9, request: model.Request{Nodes: 2, CoresPerNode: 2}, start: 0, end: 9, where: "ab"},
			{id: "g", run: 9, request: gpus(1, 2), start: 0, end: 9, where: "a"},
		},
	},
	{
		name: "contiguous nodes", policy: "first-fit", cluster: handCluster(0, 0, 0, 0),
		jobs: []handJob{
			{id: "x", run: 10, request: on("b"), start: 0, end: 10},
			{id: "y", run: 10, request: model.Request{Nodes: 2, Contiguous: true}, start: 0, end: 10, where: "cd"},
			{id: "z", run: 10, request: model.Request{Nodes: 3, Contiguous: true}, start: 10, end: 20, where: "abc"},
		},
	},
	{
		name: "one short job passes the reservation, one long does not", policy: "easy", cluster: handCluster(0, 0),
		jobs: []handJob{
			{id: "x", submit: 0, run: 10, request: nodes(1), start: 0, end: 10},
			{id: "head", submit: 1, run: 5, request: nodes(2), start: 10, end: 15},
			{id: "long", submit: 2, run: 9, request: nodes(1), start: 15, end: 24},
			{id: "short", submit: 2, run: 8, request: nodes(1), start: 2, end: 10, where: "b"},
		},
	},
	{
		name: "a long job runs beside the reservation", policy: "easy", cluster: handCluster(0, 0, 0),
		jobs: []handJob{
			{id: "x", submit: 0, run: 10, request: on("b"), start: 0, end: 10},
			{id: "head", submit: 1, run: 5, request: model.Request{Nodes: 2, CoresPerNode: 4, Contiguous: true, NodeList: []string{"a", "b"}}, start: 10, end: 15},
			{id: "long", submit: 2, run: 90, request: nodes(1), start: 2, end: 92, where: "c"},
			{id: "longer", submit: 3, run: 90, request: nodes(1), start: 15, end: 105, where: "a"},
		},
	},
	{
		name: "priorities, an early end, and the reservation that follows it", policy: "easy", cluster: handCluster(0, 0),
		jobs: []handJob{
			{id: "x", submit: 0, run: 6, wall: 10, request: nodes(2), start: 0, end: 6},
			{id: "low", submit: 1, run: 3, request: nodes(2), start: 8, end: 11},
			{id: "high", submit: 2, run: 2, request: nodes(2), priority: 1, start: 6, end: 8},
		},
	},
	{
		name: "only depth jobs are looked at", policy: "easy", cluster: handCluster(0, 0), options: oracleOptions{Depth: 1},
		jobs: []handJob{
			{id: "x", submit: 0, run: 10, request: nodes(1), start: 0, end: 10},
			{id: "head", submit: 1, run: 5, request: nodes(2), start: 10, end: 15},
			{id: "long", submit: 2, run: 50, request: nodes(1), start: 15, end: 65},
			{id: "short", submit: 3, run: 1, request: nodes(1), start: 15, end: 16},
		},
	},
	{
		name: "no reservation beyond the window", policy: "easy", cluster: handCluster(0, 0), options: oracleOptions{Window: 5 * time.Second},
		jobs: []handJob{
			{id: "x", submit: 0, run: 10, request: nodes(1), start: 0, end: 10},
			{id: "head", submit: 1, run: 5, request: nodes(2), start: 32, end: 37},
			{id: "long", submit: 2, run: 30, request: nodes(1), start: 2, end: 32},
			{id: "late", submit: 28, run: 9, request: nodes(1), start: 37, end: 46},
		},
	},
	{
		name: "everybody's reservation is kept", policy: "conservative", cluster: handCluster(0, 0, 0),
		// y waits for two nodes until 10, z for all until 15. w would delay z
		// alone: EASY would let it pass, conservative does not.
		jobs: []handJob{
			{id: "x", submit: 0, run: 10, request: nodes(2), start: 0, end: 10, where: "ab"},
			{id: "y", submit: 1, run: 5, request: nodes(2), start: 10, end: 15, where: "ab"},
			{id: "z", submit: 2, run: 5, request: nodes(3), start: 15, end: 20},
			{id: "w", submit: 3, run: 14, request: nodes(1), start: 20, end: 34},
			{id: "v", submit: 3, run: 12, request: nodes(1), start: 3, end: 15, where: "c"},
		},
	},
	{
		name: "the same under easy", policy: "easy", cluster: handCluster(0, 0, 0),
		jobs: []handJob{
			{id: "x", submit: 0, run: 10, request: nodes(2), start: 0, end: 10, where: "ab"},
			{id: "y", submit: 1, run: 5, request: nodes(2), start: 10, end: 15, where: "ab"},
			{id: "z", submit: 2, run: 5, request: nodes(3), start: 17, end: 22},
			{id: "w", submit: 3, run: 14, request: nodes(1), start: 3, end: 17, where: "c"},
			{id: "v", submit: 3, run: 12, request: nodes(1), start: 22, end: 34},
		},
	},
	{
		name: "reservations move forward when a job ends early", policy: "conservative", cluster: handCluster(0, 0),
		jobs: []handJob{
			{id: "x", submit: 0, run: 4, wall: 10, request: nodes(1), start: 0, end: 4, where: "a"},
			{id: "y", submit: 1, run: 5, request: nodes(2), start: 4, end: 9},
			{id: "z", submit: 2, run: 9, request: nodes(1), start: 9, end: 18},
			{id: "w", submit: 2, run: 1, request: nodes(1), start: 2, end: 3, where: "b"},
		},
	},
	{
		// high comes last and goes first, but not before what low was promised.
		name: "a promise holds against a later job of higher priority", policy: "conservative", cluster: handCluster(0),
		jobs: []handJob{
			{id: "x", submit: 0, run: 10, request: nodes(1), start: 0, end: 10},
			{id: "low", submit: 1, run: 5, request: nodes(1), start: 10, end: 15},
			{id: "high", submit: 2, run: 5, priority: 9, request: nodes(1), start: 15, end: 20},
		},
	},
	{
		name: "no reservations beyond the window", policy: "conservative", cluster: handCluster(0, 0), options: oracleOptions{Window: 5 * time.Second},
		jobs: []handJob{
			{id: "x", submit: 0, run: 10, request: nodes(1), start: 0, end: 10},
			{id: "y", submit: 1, run: 5, request: nodes(2), start: 32, end: 37},
			{id: "z", submit: 2, run: 30, request: nodes(1), start: 2, end: 32},
		},
	},
	{
		name: "a node serves one job at a time", policy: "g-queue", cluster: handCluster(2, 2),
		jobs: []handJob{
			{id: "x", submit: 0, run: 10, request: gpus(1, 1), start: 0, end: 10, where: "a"},
			{id: "y", submit: 0, run: 12, request: gpus(1, 1), start: 0, end: 12, where: "b"},
			{id: "z", submit: 0, run: 5, request: gpus(1, 1), start: 10, end: 15, where: "a"},
			{id: "borrower", submit: 0, run: 5, request: gpus(1, 3), start: -1},
			{id: "remote", submit: 0, run: 5, request: remote(model.RemoteGPUs{Count: 2}), start: 12, end: 17, where: "b"},
		},
	},
	{
		name: "the same with borrowing", policy: "r-queue", cluster: handCluster(2, 2),
		jobs: []handJob{
			{id: "x", submit: 0, run: 10, request: gpus(1, 1), start: 0, end: 10, where: "a"},
			{id: "y", submit: 0, run: 12, request: gpus(1, 1), start: 0, end: 12, where: "b"},
			{id: "z", submit: 0, run: 5, request: gpus(1, 1), start: 0, end: 5, where: "a"},
			{id: "borrower", submit: 6, run: 5, request: gpus(1, 2), start: 6, end: 11, where: "a/b1>0"},
		},
	},
	{
		// Both nodes are busy, a with its GPU: y takes c first, then a, for
		// which it borrows c's second device.
		name: "idle nodes first, then shared ones that borrow", policy: "r-queue", cluster: handCluster(1, 0, 2),
		jobs: []handJob{
			{id: "x", submit: 0, run: 20, request: gpus(1, 1), start: 0, end: 20, where: "a"},
			{id: "y", submit: 1, run: 9, request: gpus(2, 1), traffic: model.Traffic{GPUConns: 2}, start: 1, end: 12, where: "ac/c1>0"},
			{id: "z", submit: 2, run: 1, request: gpus(1, 1), start: 12, end: 13, where: "c"},
		},
	},
	{
		// 4,000 bytes take 4 s over the network and 1 s at home: 3 s more, and 1 s of latency.
		name: "borrowing costs time", policy: "r-queue", cluster: handCluster(1, 1),
		jobs: []handJob{
			{id: "x", run: 7, request: gpus(1, 2), traffic: model.Traffic{GPUBytes: 4000, GPUConns: 1}, start: 0, end: 11, where: "a/b0>0"},
		},
	},
	{
		// Alone, each would take 4 + 6 - 2 = 8 s. From 4 to x's end they share the
		// lender's port, and a whole job would take 4 + 12 - 2 = 14 s. At 4 x is half
		// done: 7 s more. By 11 y is half done: 4 s more.
		name: "two borrowers share the lender's port", policy: "r-queue", cluster: lenderCluster(),
		jobs: []handJob{
			{id: "x", submit: 0, run: 4, request: gpuFor("a"), traffic: model.Traffic{GPUBytes: 6000}, start: 0, end: 11, where: "a/c0>0"},
			{id: "y", submit: 4, run: 4, request: gpuFor("b"), traffic: model.Traffic{GPUBytes: 6000}, start: 4, end: 15, where: "b/c1>0"},
		},
	},
	{
		// x moves 4,000 bytes between its nodes, in 4 s of its 10 when alone. y on a's
		// port from 5 on doubles that. x is half done at 5, and needs 7 s more.
		name: "two jobs share the port of a node", policy: "first-fit", cluster: handCluster(0, 0, 0),
		jobs: []handJob{
			{id: "x", submit: 0, run: 10, request: model.Request{Nodes: 2, CoresPerNode: 2, NodeList: []string{"a", "b"}}, traffic: model.Traffic{NetBytes: 4000}, start: 0, end: 12, where: "ab"},
			{id: "y", submit: 5, run: 20, request: model.Request{Nodes: 2, CoresPerNode: 2, NodeList: []string{"a", "c"}}, traffic: model.Traffic{NetBytes: 8000, NetConns: 5}, start: 5, end: 27, where: "ac"},
		},
	},
	{
		// y's node a borrows b1, c0 and, since x has some of it, a share of b0: two
		// lenders. With the traffic between a and d, three users share a's port:
		// 7 s + (3 s - 1 s) for 1,000 bytes + (6 s - 1 s) for twice 2,000 bytes.
		name: "a lender is one user of a port, whatever it lends", policy: "r-queue", cluster: handCluster(0, 2, 1, 2),
		jobs: []handJob{
			{id: "x", run: 50, request: share(2), intensity: 0.5, start: 0, end: 50, where: "b/b0:2>0"},
			{id: "y", run: 7, request: model.Request{Nodes: 2, CoresPerNode: 1, GPUs: 2, NodeList: []string{"a", "d"}, Remote: &model.RemoteGPUs{Count: 1, Memory: 2, Shared: true}},
				traffic: model.Traffic{NetBytes: 1000, GPUBytes: 4000}, intensity: 0.5, start: 0, end: 14},
		},
	},
	{
		name: "who shares a device that has time for both does not notice", policy: "fcfs", cluster: handCluster(1),
		jobs: []handJob{
			{id: "x", run: 10, request: share(4), intensity: 0.4, start: 0, end: 10, where: "a/a0:4>0"},
			{id: "y", submit: 3, run: 10, request: share(4), intensity: 0.6, start: 3, end: 13, where: "a/a0:4>0"},
		},
	},
	{
		// From 3 to y's end both need 1.4 devices: y takes 14 s, in which x does 10 s of its work.
		// Then x has 10 s to do, with the device to itself.
		name: "who shares a device that has not slows down", policy: "fcfs", cluster: handCluster(1),
		jobs: []handJob{
			{id: "x", run: 23, request: share(4), intensity: 0.5, start: 0, end: 27, where: "a/a0:4>0"},
			{id: "y", submit: 3, run: 10, request: share(4), intensity: 0.9, start: 3, end: 17, where: "a/a0:4>0"},
		},
	},
	{
		// z has shares of both devices, of which x has the first and y the second with
		// it. While all run, the fullest device, a1, needs 2: z takes twice as long, x
		// 1.5 times. At 6 x is done, at 8 y, and z has done 4 s.
		name: "the fullest of a job's devices counts", policy: "first-fit", cluster: handCluster(2),
		jobs: []handJob{
			{id: "x", run: 4, request: share(6), intensity: 0.5, start: 0, end: 6, where: "a/a0:6>0"},
			{id: "y", run: 4, request: share(6), start: 0, end: 8, where: "a/a1:6>0"},
			{id: "z", run: 9, request: model.Request{Nodes: 1, GPUs: 2, GPUMemory: 2}, start: 0, end: 13, where: "a/a0:2>0 a1:2>0"},
		},
	},
	{
		// y is killed at its wall time, of which x's load has eaten a half.
		name: "a crowded job may reach its wall time; whole devices are never crowded", policy: "first-fit", cluster: handCluster(2),
		jobs: []handJob{
			{id: "x", run: 10, request: share(4), start: 0, end: 13, where: "a/a0:4>0"},
			{id: "y", run: 5, wall: 6, request: share(4), start: 0, end: 6, killed: true, where: "a/a0:4>0"},
			{id: "whole", run: 10, request: gpus(1, 1), start: 0, end: 10, where: "a"},
		},
	},
	{
		// 4,000 bytes take 4 s to b and 1 s at home, and 1 s of latency; to c, on
		// another switch, three times 4 s and 1 s.
		name: "far devices cost more", policy: "r-queue", cluster: switchedCluster(),
		jobs: []handJob{
			{id: "near", run: 7, request: gpuFor("a"), traffic: model.Traffic{GPUBytes: 4000, GPUConns: 1}, start: 0, end: 11, where: "a/b0>0"},
			{id: "wait", submit: 20, run: 99, request: gpuFor("b"), start: 20, end: 119, where: "b"},
			{id: "far", submit: 21, run: 7, request: gpuFor("a"), traffic: model.Traffic{GPUBytes: 4000, GPUConns: 1}, start: 21, end: 42, where: "a/c0>0"},
		},
	},
	{
		// Of 4 cores and 16 bytes a node gives 3, which are one process with 6 + 3 x 2
		// bytes; and one GPU, which b has not.
		name: "spread cores keep processes together, with memory and GPUs on each node", policy: "fcfs", cluster: handCluster(1, 0, 1, 1),
		jobs: []handJob{
			{id: "x", run: 5, request: model.Request{Cores: 6, CoresPerProcess: 3, Memory: 6, MemoryPerCore: 2, GPUs: 1}, start: 0, end: 5, where: "ac"},
			{id: "y", run: 5, request: model.Request{Cores: 6, CoresPerProcess: 3, GPUs: 1}, start: 5, end: 10, where: "ac"},
			{id: "too wide", run: 5, request: model.Request{Cores: 10, CoresPerProcess: 5}, start: -1},
		},
	},
	{
		// Nodes a and d have one core left, b and c two: processes of two cores on adjacent nodes
		// go to b and c.
		name: "contiguous spread cores begin where all nodes give some", policy: "first-fit", cluster: handCluster(0, 0, 0, 0),
		jobs: []handJob{
			{id: "a", run: 9, request: model.Request{Nodes: 1, CoresPerNode: 3, NodeList: []string{"a"}}, start: 0, end: 9},
			{id: "bc", run: 9, request: model.Request{Nodes: 2, CoresPerNode: 2, NodeList: []string{"b", "c"}}, start: 0, end: 9},
			{id: "pairs", run: 5, request: model.Request{Cores: 4, CoresPerProcess: 2, Contiguous: true}, start: 0, end: 5, where: "bc"},
			{id: "more", submit: 1, run: 1, request: model.Request{Cores: 5, Contiguous: true}, start: 5, end: 6, where: "abc"},
		},
	},
	{
		name: "a request may say how long the job takes with it", policy: "sjf", cluster: handCluster(0),
		jobs: []handJob{
			{id: "x", run: 3, request: nodes(1), start: 0, end: 3},
			{id: "y", submit: 1, run: 1, request: model.Request{Nodes: 1, CoresPerNode: 4, Run: seconds(8)}, start: 8, end: 16},
			{id: "z", submit: 2, run: 9, wall: 9, request: model.Request{Nodes: 1, CoresPerNode: 4, WallTime: seconds(5)}, start: 3, end: 8, killed: true},
		},
	},
}

func switchedCluster() *model.Cluster {
	c := handCluster(0, 1, 1)
	c.Nodes[2].Switch = "other"
	c.Remote.Far = 3
	return c
}

func lenderCluster() *model.Cluster {
	c := handCluster(0, 0, 2)
	c.GPUTypes[0].PeerBandwidth = 3000
	return c
}

func gpuFor(name string) model.Request {
	return model.Request{Nodes: 1, CoresPerNode: 1, GPUs: 1, NodeList: []string{name}}
}

func (h *handCase) workload() []model.Job {
	jobs := make([]model.Job, len(h.jobs))
	for i, j := range h.jobs {
		jobs[i] = model.Job{ID: j.id, Submit: seconds(j.submit), Run: seconds(j.run), WallTime: seconds(j.wall),
			Priority: j.priority, Request: j.request, Traffic: j.traffic, Intensity: j.intensity}
	}
	return jobs
}

func seconds(s int) time.Duration { return time.Duration(s) * time.Second }

// where writes an allocation as the cases do.
func where(a *model.Allocation) string {
	name := func(node int32) string { return string(rune('a' + node)) }
	s := ""
	for _, p := range a.Parts {
		s += name(p.Node)
	}
	for i, g := range a.Grants {
		s += map[bool]string{true: "/", false: " "}[i == 0]
		s += fmt.Sprint(name(g.Node), g.Device)
		if g.Memory > 0 {
			s += fmt.Sprint(":", g.Memory)
		}
		s += fmt.Sprint(">", g.For)
	}
	return s
}

func TestOracleByHand(t *testing.T) {
	for _, h := range handCases {
		t.Run(h.policy+"/"+h.name, func(t *testing.T) {
			if err := h.cluster.Validate(); err != nil {
				t.Fatal(err)
			}
			h.options.Kill = true
			h.check(t, oracle(h.cluster, h.workload(), h.policy, h.options))
		})
	}
}

func (h *handCase) check(t *testing.T, got []oracleOutcome) {
	t.Helper()
	for i, want := range h.jobs {
		out := got[i]
		if want.start < 0 || out.Impossible {
			if want.start >= 0 || !out.Impossible {
				t.Errorf("%s: impossible is %v", want.id, out.Impossible)
			}
			continue
		}
		if out.Start != seconds(want.start) || out.End != seconds(want.end) || out.Killed != want.killed || !out.Ran {
			t.Errorf("%s: ran [%v, %v) killed %v, want [%ds, %ds) killed %v", want.id,
				out.Start, out.End, out.Killed, want.start, want.end, want.killed)
		}
		if got := where(&out.Alloc); want.where != "" && got != want.where {
			t.Errorf("%s: on %s, want %s", want.id, got, want.where)
		}
	}
}
