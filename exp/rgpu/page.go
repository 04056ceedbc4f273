package rgpu

import "fmt"

const lead = "Slurm binds GPUs to the nodes that they are in. With rCUDA, a job on any node uses any GPU, and several jobs share one if their memory fits. " +
	"The paper's workloads on its cluster of eight nodes, with local GPUs (CUDA) and with shared remote ones (rCUDA), on 8, 6 and 4 GPUs."

// notes tell how it was done, what differs and why.
func (l *lab) notes() []string {
	return []string{
		fmt.Sprintf("The workloads have as many jobs of each application as Table II, with its run times (Table I) and launch lines (Tables III and IV), in an order that the "+
			"seed chooses: seeds %d to %d. The paper had one order, which it does not give. Its figures have no numbers; where the text has none either, the column is empty.",
			l.seeds[0], l.seeds[len(l.seeds)-1]),
		"Jobs that share a GPU slow each other down: while they need more of it than there is, each computes as many times longer as they need too much. How busy MCUDA-MEME keeps " +
			"a GPU follows from the paper (twelve at once take 1,884 s, not 12 x 165 s = 1,980 s); for GPU-Blast and LAMMPS one half is a guess, which the last part varies.",
		"With CUDA the policy is slurm, with rCUDA rgpu. All jobs are there at the start. Memory of a GPU that a job takes is what its launch line says, which has the driver's and the " +
			"rCUDA server's in it.",
		"Where GPUs are chosen by speed and distance, jobs move data to and from their GPUs, which the paper says nothing of; elsewhere remote GPUs cost nothing.",
	}
}
