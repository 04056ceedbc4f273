package driver_test

import (
	"strconv"
	"strings"
	"testing"

	"muster/slurm/driver"
	"muster/slurm/emulate"
	"muster/slurm/emulate/emulatetest"
	"muster/slurm/release"
)

const multifactor = `PriorityType=priority/multifactor
PriorityWeightAge=0
PriorityWeightJobSize=8000
PriorityWeightPartition=3000
PriorityWeightTRES=CPU=4000
PartitionName=high Nodes=ALL PriorityJobFactor=10 State=UP
`

// Held jobs have the priorities that Slurm gives to the same jobs when they are not held, and start
// in that order.
func TestRanksAsSlurmDoes(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a Slurm")
	}
	for _, r := range release.All() {
		t.Run(r.Name, func(t *testing.T) {
			emulatetest.Need(t, r)
			t.Parallel()
			c := emulatetest.Start(t, emulate.Options{Release: r, Nodes: 2, JobSubmit: holdAll, Extra: multifactor})
			blocker := output(t, c.Command("sbatch", "--parsable", "-J", "slurms", "-N2", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 100"))
			eventually(t, "the nodes are taken", func() bool {
				return strings.Contains(output(t, c.Command("squeue", "-h", "-o", "%T", "-j", blocker)), "RUNNING")
			})
			w := newWhere(t, c)
			shapes := [][]string{{"-n1"}, {"-n16", "-N2"}, {"-n3", "-p", "high", "--nice=7"}, {"-n3", "-p", "high"}}
			slurms, ours := map[string]string{}, map[string]int{} // shape by job, and back
			for i, shape := range shapes {
				slurms[w.submit(0, append(shape, "-J", "slurms")...)] = strings.Join(shape, " ")
				ours[w.submit(0, shape...)] = i
			}
			want := map[string]int64{}
			for line := range strings.Lines(output(t, c.Command("sprio", "-h", "-o", "%i %Y"))) {
				id, text, _ := strings.Cut(strings.TrimSpace(line), " ")
				n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				want[slurms[id]] = n
			}
			d := drive(t, connect(t, c), driver.Config{Spec: "fcfs"})
			eventually(t, "the jobs are ranked", func() bool {
				jobs := d.Status().Jobs
				return len(jobs) == len(shapes) && jobs[0].Priority > 0 && jobs[3].Priority > 0
			})
			for _, j := range d.Status().Jobs {
				shape := strings.Join(shapes[ours[strconv.FormatUint(j.ID, 10)]], " ")
				if j.Priority != want[shape] || j.Priority == 0 {
					t.Errorf("%s: Slurm says %d, Muster %d", shape, want[shape], j.Priority)
				}
			}
		})
	}
}
