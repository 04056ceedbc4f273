package aucsched

import (
	"fmt"

	"muster/internal/units"
)

const lead = "The paper's numbers beside Muster's, on generated jobs. AUCSCHED looks at a window of jobs, lets each bid for several sets of nodes, and lets an " +
	"integer program choose the winners; SLURM/BF is Slurm's own backfill. The authors emulated both in real time, for a month; here they decide in virtual time."

// notes describe the method, the differences from the paper, and their reasons.
func (p *plan) notes() []string {
	list := []string{
		fmt.Sprintf("Generated, as in the paper: section 6.1 says how. Seeds %d to %d, one for each of %s. All methods and all parts have the same instances; those of "+
			"the paper's Table 8 were other ones than those of its Table 7.", p.seeds[0], p.seeds[len(p.seeds)-1], units.Plural(len(p.seeds), "instance")),
		"All jobs are submitted at once. What the paper does not say: how large jobs may be (here: up to a sixteenth of the machine), and in which order they stand in the queue " +
			"(here: that of submission). Both were chosen because utilisations, and the auction's waits and slowdowns, then come out nearest to the paper's over all workloads; Slurm's waits were not fitted. The part \"guesses\" shows " +
			"what becomes of it otherwise.",
		"SLURM/BF is the policy slurm with the settings of a Slurm of today, held to a real Slurm 26.05 reservation by reservation (docs/slurm-policies.md). It knows run times exactly, where Slurm knows whole minutes.",
		"Run time is from the first submission to the end of the last job. Slowdown, wait, fragmentation and spread are as the paper defines them. Jobs take no time to start " +
			"here, and the solver no virtual time; in the paper's emulation both did.",
	}
	if len(p.seeds) < instances {
		list = append(list, fmt.Sprintf("The paper has %d instances of each workload: --runs %d, or a part alone (--table, --figure, --machine), makes as many.", instances, instances))
	}
	if hours, given := p.options.Flags["hours"]; given {
		list = append(list, "The workloads are of "+hours+" hours, the paper's of 4: the numbers are not those of its setting.")
	}
	return list
}
