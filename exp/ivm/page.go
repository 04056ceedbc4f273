package ivm

import (
	"fmt"

	"muster/exp"
	"muster/internal/units"
)

const lead = "Programs whose elements, on nine unequal GPUs of three nodes, share memory and balance their load, beside the same programs with MPI. Measured with real nodes on software GPUs that are as fast, relative to each other, as those " +
	"of the paper. Only ratios can be compared: the GPUs are made of software, all nodes are on one machine, and sizes and times are scaled."

// tooLate is the mean wake-up delay, in seconds, of a machine that is busy with other work. The
// programs of the experiment alone cause about half of it.
const tooLate = 0.002

// notes describe the method, the differences from the paper, and their reasons.
func notes(m *measured) []string {
	return []string{
		fmt.Sprintf("Measured: %s on %s, medians over runs. Three nodes (muster node --ivm), all on this machine, with 3, 4 and 2 GPUs, TLS between them. Times are from the start of the command until the first element, or process, has all results: "+
			"starting muster run or mpiexec, all processes and their contexts on GPUs included, checking the results not.", units.Plural(len(m.Seeds), "run"), m.Machine),
		fmt.Sprintf("GPUs have a rate: a kernel takes as long as its operations at that rate, and the rest of the time is slept. So nine GPUs are at work at once although there are two processors; what is not scaled is all between kernels: starts of processes, copies, messages. "+
			"Speeds are cores x clock of Table 5-2, for all programs alike. Together they are %.2f times nine of the slowest: no division can be more times as fast as an even one.", bound()),
		fmt.Sprintf("Sizes are such that %d of the paper's seconds take one (--scale): its NBODY and DMM take more than 700 s with MPI, NW 30.3 s; here all three take about as long. An element takes as long to create as it does: that is not scaled, so that DS-LB pays more for it than "+
			"it would with the paper's times.", m.Scale),
		"A node of Muster chooses the GPU of a program itself. Elements run on three nodes, one a host, whose GPUs have one client at a time: an element that ends on a GPU is followed there. Processes of MPI, and elements of OM-LB, several of which share a GPU, run on nine nodes of one GPU each, " +
			"which binds them as the paper's are bound.",
		"MPI is MPICH with one process a GPU, dealt out in turn; its processes sleep while they wait (--patient), since on two processors polling would be measured instead. They talk through shared memory, elements of different nodes through TLS: the network is to MPI's advantage.",
		"NBODY makes one time step. HIMENO's coefficients are constants, not arrays; the stencil is the benchmark's. OM-LB follows the listing: elements faster than twice the least time get one more on their GPU, up to four a GPU on average.",
		"Ours is one element a GPU that takes pieces by its measured speed (docs/ivm.md); for HIMENO, whose elements keep their planes, it divides the planes by the speeds that were measured, again where that saves more than a tenth.",
		fmt.Sprintf("Traffic is what the daemons of Host-II and Host-III read and write, less the same for matrices of hardly anything; the matrices are on Host-I. For it they are %d x %d, and the GPUs %d times as fast.", trafficSize, trafficSize, trafficFast),
	}
}

const partScale = "What was scaled"

// scaledRows list what is smaller than in the paper.
func scaledRows(m *measured) []exp.Row {
	one := func(metric, unit string, value float64) exp.Row { return exp.Single(partScale, metric, unit, value) }
	rows := []exp.Row{
		one("scale_time", "s a second", float64(m.Scale)).Against(1).Noting("the paper's seconds that take one here"),
		one("scale_rate", "operations/s", rate*float64(m.Scale)/defaultScale).Noting("of a C2050"),
	}
	for _, a := range apps {
		rows = append(rows, one("scale_"+a.key, a.items, float64(a.size)).Against(float64(a.paperSize)), one("scale_small_"+a.key, a.items, float64(a.small)).Against(float64(a.paperSmall)))
	}
	return append(rows,
		one("scale_himeno_width", "points", planeWidth).Against(513).Noting("of a plane"),
		one("scale_himeno_planes", "planes", float64(grids[len(grids)-1]/planeScale)).Against(float64(grids[len(grids)-1])),
		one("scale_himeno_iterations", "iterations", iterations))
}
