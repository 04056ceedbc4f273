package noderuntime

import (
	"fmt"

	"muster/internal/units"
)

const lead = "Programs that share the GPUs of a node through Muster's daemon, measured on software GPUs that are as fast, relative to each other, as " +
	"those of the paper. Only ratios can be compared: the GPUs are made of software, and iterations, sizes and times are scaled; a table says how."

// notes describe the method, the differences from the paper, and their reasons.
func notes(m *measured) []string {
	list := []string{
		fmt.Sprintf("Measured, not simulated: %s on %s; medians with the least and the most. Times vary with what else the machine does; a quiet machine with two "+
			"processors or more is needed. What is drawn at random follows from the seed. How long a kernel takes follows from its operations and is the same on every machine that is fast enough.", units.Plural(len(m.Seeds), "run"), m.Machine),
		"Each measurement starts a node (muster node) with software GPUs and runs programs of examples/, each a process of its own with Muster's libcuda.so.1; those of several " +
			"processes use MPI. Every program checks what it gets back. The part \"" + partScale + "\" has all that is smaller than in the paper: iterations, sizes, memory, times.",
		"CPU phases are sleeps of a fixed length, in proportion to what the kernels take alone on a C2050: they stand for work on cores that this machine does not have.",
		"The clock starts when all programs have opened their contexts and loaded their kernels, since starting processes is not scaled. Opening a context on the GPU that a " +
			"program is given is part of what is measured. The node's programs do not outlive its workers here (recover: off), as what that costs is not scaled either.",
		"There is no bare CUDA on a software GPU. Figs. 3-7 and 3-8 are compared with the GPUs' own time instead: the kernels of all programs one after the other, as measured alone, " +
			"with all copies at the same time. No driver can do with less, so what is said to be overhead is an upper bound of it.",
		"Where the paper has a picture only, its numbers are not in the text, and the column is empty.",
		"Fig. 3-11: the text names no number of jobs and no CPU fractions: those here are ours.",
		fmt.Sprintf("Figs. 3-14 to 3-20: %d iterations stand for the paper's 200, and %d for its 20 (--scale %d). The four GPUs are equal; the maximum idle time is scaled like the phases. ",
			m.iterationsOf(200), m.iterationsOf(20), m.Scale) + "A worker says that it is idle after a millisecond of silence, which is not scaled. " +
			"Programs queue up one after the other, as without preemption two of them could wait for each other for ever.",
		"Figs. 3-12 and 3-13: two nodes (two C2050 and a C1060; a C1060), and a batch queue that knows of no GPUs and gives both as many programs, in turn. The numbers of short programs are ours, and so are the CPU phases of MM-L in Fig. 3-13, as long as the GPU's. With offload the nodes know each other (--peers): one whose programs wait borrows virtual GPUs of the other, over TLS on the loopback interface. " +
			"What waits are for (0.1 s until a node borrows, 1 s after its own programs waited until it lends) is not scaled.",
		"Fig. 3-21: the processes of a program are on both nodes (four GTX 480; a C2070, a C2075 and a C2050) in proportion to their GPUs, under one mpiexec of MPICH; 2 + 2, 3 + 3 and 5 + 3. Batch scheduling starts a program when each process has a GPU for itself. \"Improvement\" is read as speed-up less 1.",
	}
	if m.LeftOut != "" {
		list = append(list, m.LeftOut)
	}
	if m.Missing != "" {
		list = append(list, "Interrupted: this is a part of it. Missing: "+m.Missing+".")
	}
	list = append(list, fmt.Sprintf("The machine was watched: a measurement during which it woke sleepers more than %.1f ms late was made again, while there was patience (--patience). Of several tries "+
		"the one counts that was disturbed least.", 1e3*tooLate))
	if busy := m.Disturbed(tooLate); busy > 0 {
		list = append(list, fmt.Sprintf("The machine was busy: %.0f %% of the measurements were disturbed nevertheless. Measure again when nothing else runs, or with more patience.", 100*busy))
	}
	if !m.All {
		list = append(list, "All figures at once measure some points of each; --figure NAME measures all points of a figure, with the long GPU phases too.")
	}
	return list
}
