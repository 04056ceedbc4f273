package gremm

import (
	"fmt"

	"muster/exp"
	"muster/internal/units"
)

const lead = "Processes on GPU nodes launch kernels; some keep their GPUs overloaded, others leave theirs idle. The paper lets any GPU of the cluster run a kernel and asks which. " +
	"ST: the GPU that the process is bound to. GR: one queue for all. AG: the least estimated wait, data included. AR: at random, by weights that adapt."

// Explanations of single figures. The parts themselves have the numbers behind them.
const (
	aboutMix = "Fig. 2: the paper says that the mean waiting time falls too. Over all kernels it rises on W2 to W4 with any mapper that helps client H: H then finishes more kernels, which wait longer than those of L. If every " +
		"process counts as much as any other, whatever number of kernels it finishes, the mean falls as the paper says. With data sent before a call joins the queue (part \"readings\") the mean over all kernels falls a little on W4, " +
		"and still rises on W3."
	aboutKernels = "Fig. 3: on W3 under ST, the paper counts about 12,000 kernels of client H and 28,000 of L in a span of 10,000 s. Four processes on a GPU keep it busy for 99.96 % (H) and 79.4 % (L) of the time, " +
		"which is 160,000 and 381,000 kernels in 10,000 s, and 12,000 and 28,600 in 750 s. So its count is of 750 s, and it confirms that ST binds each process to one GPU of its node."
	aboutBalance = "Fig. 4: the paper's 92.5 % for the split in halves does not come out on GbE if devices are held while data travel to them; it does, to a tenth of a point, if data are sent before a kernel joins the queue of " +
		"its device (part \"readings\"). Of the ways that were tried this is the nearest; nearly the same come out if data are sent while a kernel keeps its place in the queue, or if the network costs next to nothing. The paper says of GR alone that " +
		"devices are reserved during transfers, so it may have meant this one. But then AR is a little below that split, of which the paper says that it is worse than the dynamic policies; with devices held for data both are above it."
	aboutNetwork = "Fig. 6: while nothing has run, equation 11 has no time to divide by; its limit keeps kernels on their own node. With even weights instead, what AR sends away in the first seconds occupies devices and links for " +
		"minutes where kernels have gigabytes to move, and AR does not come back to ST within the span."
	aboutScalability = "Fig. 8: the paper explains AG's loss on many nodes by estimates that get less accurate. While all nodes know everything at once there is no such loss; so the same is shown with a status that is old."
)

// notes describe the method, the differences from the paper, and their reasons.
func (l *lab) notes([]simulated) []string {
	list := []string{
		fmt.Sprintf("Generated, as in the paper: section 5.3 says how. %s, from %d to %d; all mappers see the same traces. Numbers with ± are 95 %% confidence intervals of the mean over the seeds "+
			"(Student's t); differences are taken seed by seed. 24 nodes of 12 cores and 3 GPUs, ports of 100 KB/ms (GbE) or 1000 KB/ms (IB), k = 10, unless said otherwise.",
			units.Plural(len(l.seeds), "seed"), l.seeds[0], l.seeds[len(l.seeds)-1]),
		"The paper's figures are pictures; its text has few of their numbers. Only those stand beside ours. What it says in words is set beside a number of ours that decides whether it comes out.",
		"A remote call: when it has its turn the device is taken, then come latency, upload, kernel and download. The device is held until the kernel ends. Utilisation counts kernels only. The wait of a call is all " +
			"of its time but its kernel. Moving data within a node costs nothing. The latency of a remote call is not in the paper: 1 ms. The part \"readings\" shows the other ways.",
		"Equation 6 divides by a mean of calls under way, which may be less than one; a link is then taken to be as fast as it is (literal); the other reading adds the call itself, as equation 5 does (plus one). " +
			"The text has alpha < 1 and beta > 1, which equations 10 and 11 do not always give: they are kept there; the other reading lets them be. Their unit of time is the millisecond, of data the KB. " +
			"GR's queue does not look at where a call comes from; the other reading takes an idle GPU of the own node first.",
		fmt.Sprintf("Clusters of more than %d nodes are simulated for a shorter time, so that there are as many kernels as with %d nodes, and for at least a minute; our own parts on %d nodes for a quarter of the time.",
			paperNodes, paperNodes, paperNodes),
	}
	for _, p := range exp.Wanted(l.options, parts, partName) {
		if p.about != "" {
			list = append(list, p.about)
		}
	}
	if l.span != paperSpan {
		list = append(list, fmt.Sprintf("Simulated are %v, in the paper 10,000 s: the numbers are not those of its setting.", l.span))
	}
	return list
}
