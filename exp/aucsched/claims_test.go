package aucsched

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"muster/exp"
	"muster/internal/need"
)

// whole runs the complete experiment, which takes minutes.
var whole = os.Getenv("MUSTER_SOAK") != ""

// small is the smallest machine with one instance; a quarter of an hour of work shows most of what
// the paper's four hours show.
var small = sync.OnceValues(func() (*plan, error) {
	flags := map[string]string{"machine": "S"}
	if !whole {
		flags["hours"] = "0.25"
	}
	p, _, err := newPlan(exp.Options{Seed: 1, Runs: 1, Workers: 2, Flags: flags})
	if err != nil {
		return nil, err
	}
	for _, v := range hardOnes() {
		for _, who := range []contender{bySlurm, byAuction, byMosaic, theBound, withRemote, rgpuRemote, mosaicRemote} {
			p.Want(who.on("S", v))
		}
	}
	p.Want(bySlurm.on("S", "II.1"), byAuction.on("S", "II.1"), contiguousOnly.on("S", "V.1"))
	missing, err := p.Simulate(context.Background())
	if err == nil && missing != nil {
		err = fmt.Errorf("missing: %v", missing)
	}
	return p, err
})

// hardOnes are the versions of workload V, or, if there is little time, both ends.
func hardOnes() []string {
	if !whole {
		return []string{"V.1", "V.3"}
	}
	return hard
}

var (
	theBound       = contender{"bound", boundPolicy, ""}
	contiguousOnly = contender{"contiguous only", extras[4].policy, ""}
)

func ran(t *testing.T, c contender, version string) numbers {
	t.Helper()
	p, err := small()
	if err != nil {
		t.Fatal(err)
	}
	return meanOf(p.Found[c.on("S", version)])
}

// Section 6.2: jobs with two GPUs per node reduce the utilisation under every scheduler.
func TestTwoGPUsANodeAreHard(t *testing.T) {
	for _, who := range []contender{bySlurm, byAuction} {
		if easy, hard := ran(t, who, "II.1"), ran(t, who, "V.1"); hard.utilization > easy.utilization-5 {
			t.Errorf("%s: %.0f %% of the machine with nodes alone, %.0f %% with GPUs", who.name, easy.utilization, hard.utilization)
		}
	}
}

// Jobs that want neighbours get them, and the auction gives nothing else where it
// bids for nothing else.
func TestContiguousJobsAreInOneBlock(t *testing.T) {
	list := []numbers{ran(t, byAuction, "V.3"), ran(t, bySlurm, "V.3"), ran(t, contiguousOnly, "V.1")}
	for i, n := range list {
		if n.fragmentation != 1 || n.spread != 1 || n.fragmentationSTD != 0 || n.spreadSTD != 0 {
			t.Errorf("%d: fragmentation %v±%v, spread %v±%v", i, n.fragmentation, n.fragmentationSTD, n.spread, n.spreadSTD)
		}
	}
	if n := ran(t, byAuction, "V.1"); n.fragmentation <= 1 {
		t.Errorf("the auction never splits a job that does not mind: fragmentation %v", n.fragmentation)
	}
}

// Beyond both: our own policy is no worse in any column, on every version of workload V.
func TestMosaicIsNoWorse(t *testing.T) {
	if !whole {
		need.Missing(t, need.Soak, "so little work leaves nothing to plan: MUSTER_SOAK=1 runs it, and so does make soak")
	}
	for _, v := range hardOnes() {
		ours := ran(t, byMosaic, v)
		for _, who := range []contender{bySlurm, byAuction} {
			theirs := ran(t, who, v)
			for i, ok := range columnsWon([]numbers{ours}, []numbers{theirs}) {
				if !ok {
					t.Errorf("%s: %s %s under mosaic, %s under %s", v, columns[i].title, columns[i].text(&ours), columns[i].text(&theirs), who.name)
				}
			}
		}
	}
}

// No scheduler beats the bound; GPUs on any node raise both the bound and what is reached.
func TestNobodyBeatsTheBound(t *testing.T) {
	for _, v := range hardOnes() {
		best := ran(t, theBound, v)
		for _, who := range []contender{bySlurm, byAuction, byMosaic} {
			if n := ran(t, who, v); n.runtime < best.runtime {
				t.Errorf("%s: %s needs %v h, the bound is %v h", v, who.name, n.runtime, best.runtime)
			}
		}
		remote := ran(t, withRemote, v)
		for _, who := range []contender{rgpuRemote, mosaicRemote} {
			if n := ran(t, who, v); n.runtime < remote.runtime {
				t.Errorf("%s: %s needs %v h, the bound is %v h", v, who.name, n.runtime, remote.runtime)
			}
		}
		if remote.runtime > best.runtime {
			t.Errorf("%s: with remote GPUs at least %v h, without %v h", v, remote.runtime, best.runtime)
		}
		if !whole {
			continue // so little work says nothing of gains
		}
		if before, after := ran(t, byMosaic, v), ran(t, mosaicRemote, v); after.utilization <= before.utilization {
			t.Errorf("%s: remote GPUs bring mosaic from %.1f %% to %.1f %%", v, before.utilization, after.utilization)
		}
		if before, after := ran(t, bySlurm, v), ran(t, rgpuRemote, v); after.utilization <= before.utilization {
			t.Errorf("%s: remote GPUs bring slurm from %.1f %% to %.1f %%", v, before.utilization, after.utilization)
		}
	}
}
