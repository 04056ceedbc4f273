package rgpu

import "fmt"

const lead = "Slurm binds GPUs to the nodes that they are in. With rCUDA, a job on any node uses any GPU, and several jobs share one if their memory fits. " +
	"The paper's workloads on its cluster of eight nodes, with local GPUs (CUDA) and with shared remote ones (rCUDA), on 8, 6 and 4 GPUs."

// notes describe the method, the differences from the paper, and their reasons.
func (l *lab) notes() []string {
	list := []string{
		fmt.Sprintf("The workloads have as many jobs of each application as Table II, with its run times (Table I) and launch lines (Tables III and IV), in an order that the "+
			"seed chooses: seeds %d to %d. The paper had one order, which it does not give. Its figures have no numbers; where the text has none either, the column is empty.",
			l.seeds[0], l.seeds[len(l.seeds)-1]),
		"Jobs that share a GPU slow each other down: while they need more of it than there is, each computes as many times longer as they need too much. How busy MCUDA-MEME keeps " +
			"a GPU follows from the paper (twelve at once on four nodes take 1,884 s, one after the other 1,980 s): 95 %. With that, Fig. 2 left comes out, but not more than 2 times " +
			"the speed on 4 GPUs: no schedule can do that, since MCUDA-MEME alone then keeps the four GPUs busy for nearly as long as CUDA takes for all. With 25 % Figs. 2 right and 3 " +
			"come out, and not Fig. 2 left. Table V lies between (50 %). So what made twelve at once slow was most likely not the GPUs: they ran one process of each job on the same " +
			"four nodes, and the paper says of GROMACS that jobs which share a node are pinned to the same cores. That was not modelled; all three readings are shown.",
		"How busy GPU-Blast and LAMMPS keep a GPU is not published: one half is a guess, which the last part varies.",
		"With CUDA the policy is slurm, with rCUDA rgpu. All jobs are there at the start. Memory of a GPU that a job takes is what its launch line says, which has the driver's and the " +
			"rCUDA server's in it.",
		"Where GPUs are chosen by speed and distance, jobs move data to and from their GPUs, which the paper says nothing of; elsewhere remote GPUs cost nothing.",
		"The series rCUDA exclusive is the paper's mode that decouples GPUs from nodes without sharing them (--rcuda-mode=excl), with the same jobs; its figures do not show that mode. " +
			"LAMMPS then takes five whole GPUs (four where there are no more), while with CUDA its processes share one: the fewer GPUs there are, the more that costs.",
	}
	if costs := l.waitingCosts(); costs != "" {
		list = append(list, costs)
	}
	return list
}
