package slurmopt

import (
	"cmp"
	"slices"
	"strings"

	"muster/model"
)

// request builds the request from the settings, by Slurm's rules:
//
//   - -n tasks of -c cores are spread over any nodes, each task on one node.
//   - With -N they are spread evenly over that many nodes, possibly with fewer on
//     the last ones; every node gives what the fullest needs.
//   - --ntasks-per-node sets the number of tasks if -n does not, and limits it if
//     -n does. Every node then gives the cores of that many tasks, even if it runs
//     fewer.
//   - Fewer tasks than nodes reduce the number of nodes.
//   - -w sets the number of nodes if -N does not.
//   - --gres=gpu is per node, --gres=rgpu per job.
func (p *parser) request() (model.Request, error) {
	var r model.Request
	g := &p.requested
	cores := max(1, g.cpus.n)
	nodes, tasks, err := p.nodesAndTasks()
	if err != nil {
		return r, err
	}
	if g.exclusive && nodes == 0 {
		if tasks > 1 {
			return r, g.exclusiveAt.errorf("--exclusive: say how many nodes with -N")
		}
		nodes = 1
	}
	r.Contiguous, r.Exclusive, r.NodeList = g.contiguous, g.exclusive, g.nodeList
	if most/cores < tasks {
		return r, g.cpus.at.errorf("--cpus-per-task: %d tasks of %d cores are more than any machine has", tasks, cores)
	}
	r.Nodes, r.Processes = int(nodes), int(tasks)
	perNode := tasks
	if nodes == 0 {
		r.Cores, r.CoresPerProcess = int(tasks*cores), int(cores)
	} else {
		perNode = ceilDiv(tasks, nodes)
		room := perNode
		if g.tasksPerNode.set() && tasks > 1 {
			room = g.tasksPerNode.n
		}
		if most/cores < room {
			return r, g.tasksPerNode.at.errorf("--ntasks-per-node: %d tasks of %d cores are more than any node has", room, cores)
		}
		r.CoresPerNode = int(room * cores)
	}
	if g.memory.set() && g.memoryPerCPU.set() {
		return r, g.memoryPerCPU.at.errorf("--mem and --mem-per-cpu exclude each other: give one")
	}
	r.Memory, r.MemoryPerCore = g.memory.n, g.memoryPerCPU.n
	if err := p.setGPUs(&r, nodes, tasks, perNode); err != nil {
		return r, err
	}
	return r, p.setRemote(&r)
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

// nodesAndTasks are the numbers of both; 0 nodes means any number.
func (p *parser) nodesAndTasks() (nodes, tasks int64, err error) {
	g := &p.requested
	nodes, tasks = g.nodes.n, g.tasks.n
	listed := int64(len(g.nodeList))
	top := max(nodes, g.mostNodes.n)
	// srun takes the first ones instead.
	if g.nodes.set() && listed > top && p.options.Tool != "srun" {
		return 0, 0, g.nodeListAt.errorf("--nodelist names %d nodes, and --nodes allows %d: name no more", listed, top)
	}
	if top > nodes {
		least := nodes
		nodes = min(top, max(nodes, listed))
		if limit := g.tasksPerNode.n; tasks > 0 && limit > 0 {
			nodes = min(top, max(nodes, ceilDiv(tasks, limit)))
		}
		p.note("--nodes=%d-%d is taken as %d: jobs do not stretch here", least, top, nodes)
	}
	if tasks > 0 && nodes > tasks {
		p.note("--nodes=%d is taken as %d: there are no more processes (--ntasks) than that", nodes, tasks)
		nodes = tasks
	}
	if listed > 0 {
		switch {
		case nodes > listed:
			return 0, 0, g.nodeListAt.errorf("--nodelist names %d of %d nodes: name all of them, or leave it out", listed, nodes)
		case nodes == 0 && tasks > 0:
			nodes = min(listed, tasks)
		case nodes == 0:
			nodes = listed
		}
		if nodes < listed {
			p.note("--nodelist names %d nodes, of which the job needs the first %d", listed, nodes)
			slices.SortStableFunc(g.nodeList, compareNames)
			g.nodeList = g.nodeList[:nodes]
		}
	}
	limit := g.tasksPerNode.n
	switch {
	case tasks == 0 && limit > 0:
		nodes = max(1, nodes)
		if most/limit < nodes {
			return 0, 0, g.tasksPerNode.at.errorf("--ntasks-per-node: %d nodes of %d tasks are more than any machine has", nodes, limit)
		}
		tasks = nodes * limit
	case tasks == 0:
		tasks = max(1, nodes)
	case limit > 0 && nodes == 0:
		nodes = ceilDiv(tasks, limit)
	case limit > 0 && ceilDiv(tasks, nodes) > limit:
		return 0, 0, g.tasksPerNode.at.errorf("--ntasks-per-node: %d tasks do not fit in %d nodes of %d tasks: ask for more nodes", tasks, nodes, limit)
	}
	return nodes, tasks, nil
}

// compareNames orders nodes as Slurm does, n2 before n10.
func compareNames(a, b string) int {
	const digits = "0123456789"
	stemA, stemB := strings.TrimRight(a, digits), strings.TrimRight(b, digits)
	numberA, numberB := strings.TrimLeft(a[len(stemA):], "0"), strings.TrimLeft(b[len(stemB):], "0")
	return cmp.Or(cmp.Compare(stemA, stemB), cmp.Compare(len(numberA), len(numberB)), cmp.Compare(numberA, numberB))
}

// setGPUs sets the GPUs per node from the various options for them.
func (p *parser) setGPUs(r *model.Request, nodes, tasks, perNode int64) error {
	g := &p.requested
	var asked *setting
	for _, s := range g.gpuSettings() {
		if !s.set() {
			continue
		}
		if asked != nil {
			return s.at.errorf("GPUs are asked for twice: use one of --gres=gpu, --gpus-per-node, --gpus and --gpus-per-task")
		}
		asked = s
	}
	if asked == nil {
		return nil
	}
	count := asked.n
	switch asked {
	case &g.gpus:
		switch {
		case nodes == 0 && tasks > 1:
			return asked.at.errorf("--gpus: how many are on a node is open: say how many nodes with -N, or use --gpus-per-node")
		case nodes > 0 && count%nodes != 0:
			return asked.at.errorf("--gpus: %d GPUs cannot be divided evenly over %d nodes", count, nodes)
		case nodes > 0:
			count /= nodes
		}
	case &g.gpusPerTask:
		if !g.tasks.set() && !g.nodes.set() && !g.tasksPerNode.set() {
			return asked.at.errorf("--gpus-per-task: say how many tasks with -n")
		}
		if nodes == 0 && tasks > 1 {
			return asked.at.errorf("--gpus-per-task: how many tasks are on a node is open: say how many nodes with -N, or use --gpus-per-node")
		}
		if count > model.MaxGPUsPerNode || perNode > model.MaxGPUsPerNode {
			return asked.at.errorf("--gpus-per-task: more than %d GPUs on a node", model.MaxGPUsPerNode)
		}
		count *= perNode
	}
	if count > model.MaxGPUsPerNode {
		return asked.at.errorf("%d GPUs on a node: at most %d are supported", count, model.MaxGPUsPerNode)
	}
	r.GPUs, r.GPUType = int(count), g.gpuType
	if asked == &g.gresGPUs {
		r.GPUType, r.GPUMemory, r.MoreGPUs = g.gresType, g.gpuMemory, g.moreGPUs
	}
	return nil
}

// setRemote sets the remote GPUs. A memory selects the shared mode, unless the exclusive mode was
// asked for: then it is the minimum memory of a GPU.
func (p *parser) setRemote(r *model.Request) error {
	g := &p.requested
	if !g.rgpu.set() {
		if g.modeAt != nil {
			return g.modeAt.errorf("--rcuda-mode is for remote GPUs: ask for them with --gres=rgpu:4")
		}
		return nil
	}
	if g.mode == sharedMode && g.rgpuMemory == 0 {
		return g.modeAt.errorf("--rcuda-mode=shar: say how much memory of each GPU, as --gres=rgpu:%d:1G", g.rgpu.n)
	}
	if r.GPUs > 0 && r.GPUType != g.gresType {
		return g.rgpu.at.errorf("--gres: a request has GPUs of one type")
	}
	r.GPUType = g.gresType
	r.Remote = &model.RemoteGPUs{Count: int(g.rgpu.n), Memory: g.rgpuMemory, Shared: g.rgpuMemory > 0 && g.mode != exclusiveMode}
	return nil
}
