package clusterscheduler

import (
	"fmt"
	"strings"

	"muster/exp"
	"muster/internal/units"
	"muster/report"
)

const lead = "Policies of a cluster scheduler that knows nodes whose GPUs are shared, measured with a real head and real nodes on software GPUs that are as fast, relative to each other, as those " +
	"of the paper; and the same policies in the simulator. Only ratios can be compared: the GPUs are made of software, the network is modelled, and sizes and times are scaled."

// notes describe the method, the differences from the paper, and their reasons.
func notes(m *measured) []string {
	return []string{
		fmt.Sprintf("Measured, not simulated: %s on %s, means with 95 %% intervals over runs. Each workload has a head (muster head) and nodes (muster node) of its own, all on this machine; jobs are submitted to the head, and its policy decides. "+
			"Times are the head's: from the submission of the first job to the end of the last, starts of processes included.", units.Plural(len(m.Seeds), "run"), m.Machine),
		"GPUs have a rate: a kernel takes as long as its operations at that rate, whatever the machine does meanwhile, and programs on one GPU take turns of about 2 ms. The rates are cores x clock of Tables 4-3 and 4-4, and so low that all GPUs " +
			"of a cluster together need less than this machine has. So GPUs are independent of each other although they share two processors; what is not is all that happens between kernels: starts of processes, copies, messages.",
		fmt.Sprintf("Processes of a job talk through sockets. Between nodes the bytes take as long as a link of %.0f KB/s needs, a thousandth of Gigabit Ethernet; what passes the port of the first process's node at a time takes turns. Within a node they take what they take. "+
			"The paper used MPI: its processes poll, which on two processors would be measured instead of the cluster.", link/1e3),
		"MM is pairs, NW is align, ADFA is adfa of examples/cuda. Each checks its results. ADFA finds default transitions of automata (compression), as in the paper.",
		"Batch gives each process a GPU to itself: every GPU is a node of its own for the head (as node1-0), in the order in which a round over nodes reaches them, with the policy fcfs. It is what emulates TORQUE in the paper.",
		fmt.Sprintf("Under the other policies a job asks for shares of GPUs (--gres=gpu:1+:%dM): a node gives it one for each of its processes there, as far as it has as many GPUs, those first that have most left, and the processes are dealt out to them. "+
			"In the paper all processes of a node use all its GPUs, as its runtime sees fit.", shareMemory>>20),
		"Quality of service is the time from a job's submission to its end over that of the same job alone on the cluster under batch. A value below 1 means that the job is faster than there.",
		"The simulator gets the jobs, the cluster, the policy, and a profile: what a unit of work takes on each kind of GPU (one process, alone), what a start takes, and the link. It knows nothing of the measured workloads. Jobs that share a GPU slow each other down by the " +
			"sum of the parts of their time in which they need it, and ports are shared fairly (docs/policies.md).",
		"Where the paper has a picture only, its numbers are not in the text, and the column is empty. Fig. 4-2: the mappings are ours. Fig. 4-4: the weights of the commodity cluster are ours; Fig. 4-5 uses 8:4:4 and, on the commodity cluster, 1:2.",
	}
}

// tooLate is the mean wake-up delay, in seconds, of a machine that is busy with other work. The
// processes of the jobs alone cause about half of it.
const tooLate = 0.002

const partScale = "What was scaled, and the profile"

// scaledRows list what is smaller than in the paper, and the profile given to the simulator.
func scaledRows(m *measured) []exp.Row {
	one := func(metric, unit string, value float64) exp.Row { return exp.Single(partScale, metric, unit, value) }
	rows := []exp.Row{
		one("scale_link_mb_s", "MB/s", link/1e6).Against(125).Noting("between nodes: Gigabit Ethernet"),
		one("scale_mm_rows", "rows", float64(mm.size)).Against(1600).Noting("of a matrix"),
		one("scale_mm_pairs", "pairs", float64(mm.units)).AgainstRange(48, 196).Noting("in an iteration"),
		one("scale_mm_iterations", "iterations", float64(mm.rounds)).AgainstRange(2, 8),
		one("scale_mm_bytes", "MB", float64(mm.units*mm.bytes)/1e6).Against(800).Noting("an iteration"),
		one("scale_nw_letters", "letters", float64(nw.size)).AgainstRange(500, 1000),
		one("scale_nw_iterations", "iterations", float64(nw.rounds)).AgainstRange(15, 30),
		one("scale_nw_bytes", "MB", float64(nw.units*nw.bytes)/1e6).AgainstRange(100, 200).Noting("an iteration"),
		one("scale_adfa_states", "states", float64(adfa.size)).Against(30000).Noting("%d in Fig. 4-2, %d in Figs. 4-3 and 4-4", adfaMiddle.size, adfaSmall.size),
		one("scale_adfa_automata", "automata", float64(adfa.units)).AgainstRange(8, 16),
		one("profile_start_s", "s", m.Profile.Start).Noting("of a job, besides its work: not scaled"),
		one("profile_each_starts_s", "s", m.Profile.EachStarts).Noting("of each process of a job"),
	}
	for _, c := range cards {
		rows = append(rows, one("scale_"+slug(c.Name)+"_speed", "of a C2050", c.Power()).Noting("cores x clock; a unit of MM, NW and ADFA takes %s, %s and %s s", report.Number(m.Profile.unit(&mm, c.Name)),
			report.Number(m.Profile.unit(&nw, c.Name)), report.Number(m.Profile.unit(&adfa, c.Name))))
	}
	return rows
}

// slug is a card's name in metrics.
func slug(name string) string { return strings.ToLower(strings.ReplaceAll(name, " ", "")) }
