package demo

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/wire/api"
	"muster/wire/status"
)

// A job is right only if it printed exactly what is known.
func TestChecksResults(t *testing.T) {
	const times = ", 0.43 s (GPU 0.40 s, CPU 0.03 s)\n"
	right := jobSurvives.want[0] + times
	for _, c := range []struct {
		name, output string
		right        bool
	}{
		{"right", right, true},
		{"right, and suspended meanwhile", "muster: the job is suspended; the program waits until it goes on\n" + right, true},
		{"nothing", "", false},
		{"twice", right + right, false},
		{"another checksum", strings.Replace(right, "2eed8c22", "2eed8c23", 1), false},
		{"a complaint as well", right + "weave: word 3 is wrong\n", false},
	} {
		if err := jobSurvives.check(c.output); (err == nil) != c.right {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// told has two jobs of a made-up demonstration share a GPU; the second was requeued.
func told(t *testing.T, output string) *tour {
	t.Helper()
	d := &tour{cluster: cluster{dir: t.TempDir()}, jobs: []*submission{jobLocal, jobSurvives}, seen: newSeen(), skipped: map[*submission]string{jobMPI: "there is no mpiexec"}}
	if err := errors.Join(os.WriteFile(filepath.Join(d.dir, "1.out"), []byte(jobLocal.want[0]+", 1.00 s\n"), 0o600), os.WriteFile(filepath.Join(d.dir, "2.out"), []byte(output), 0o600)); err != nil {
		t.Fatal(err)
	}
	local := api.Job{ID: 1, Name: "local", State: api.Completed, Attempt: 1, NodeList: "gpu1", Submit: 100, Start: 100.5, End: 110, Elapsed: 9.5, Output: "1.out",
		Devices: []api.Device{{For: "gpu1", Node: "gpu1", Device: 0}}}
	first := api.Job{ID: 2, Name: "survives", State: api.Running, Attempt: 1, NodeList: "gpu2", Submit: 101, Start: 101, Elapsed: 3}
	again := api.Job{ID: 2, Name: "survives", State: api.Completed, Attempt: 2, Requeues: 1, NodeList: "gpu1", Submit: 101, Start: 105, End: 107, Elapsed: 2, Output: "2.out",
		Devices: []api.Device{{For: "gpu1", Node: "gpu1", Device: 0, Memory: 1 << 20}}}
	for _, j := range []api.Job{local, first, again} {
		d.seen.note(j)
	}
	d.seen.noteNode("gpu1", &status.Node{Ended: []status.Client{{ID: 1, Grant: "1.1.0", SwapOut: 3 << 20}, {ID: 2, Grant: "11.1.0", SwapOut: 1 << 30}}})
	return d
}

func TestTable(t *testing.T) {
	const want = `JOB  NAME      RAN ON           GPUS    HOW                                  WAITED    RAN  RESULT
---  --------  ---------------  ------  -----------------------------------  ------  -----  ----------------------------
1    local     gpu1             gpu1:0  shared with 2, swapped 3 MiB          0.5 s  9.5 s  right
2    survives  gpu2, then gpu1  gpu1:0  shared with 1, requeued, 3.0 s lost   1.0 s  2.0 s  right
-    mpi       -                -       -                                         -      -  skipped: there is no mpiexec
`
	table, err := told(t, jobSurvives.want[0]+", 1.00 s\n").table()
	var b bytes.Buffer
	if err := errors.Join(err, table.WriteText(&b)); err != nil {
		t.Fatal(err)
	}
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

// A wrong result is in the table, and its job is named in the error.
func TestTableSaysWhatIsWrong(t *testing.T) {
	table, err := told(t, "weave: 1500 rounds of 3 x 4096 words, checksum 00000000 right, 1.00 s\n").table()
	if err == nil || !strings.HasPrefix(err.Error(), "job 2 (survives): it printed\n    weave: 1500 rounds") {
		t.Errorf("the error is %v", err)
	}
	if got := table.Rows[1][7]; got != "WRONG" {
		t.Errorf("the table has %q", got)
	}
	d := told(t, "")
	d.seen.jobs[1].State, d.seen.jobs[1].Why = api.NodeFail, "its node is gone"
	if _, err := d.table(); err == nil || !strings.Contains(err.Error(), "job 2 (survives): it ended as NODE_FAIL: its node is gone") {
		t.Errorf("the error is %v", err)
	}
}

// Without MPICH the job with MPI is left out, and what to install is said.
func TestWithoutMPI(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin)
	d := &tour{cluster: cluster{self: filepath.Join(bin, "muster")}, Options: Options{Programs: bin}, ctx: context.Background()}
	said := func(want string) {
		t.Helper()
		if got := d.noMPI(); !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	put := func(name, text string) {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	said("there is no mpiexec: install MPICH (Debian: apt-get install mpich libmpich-dev)")
	put("mpiexec", "#!/bin/sh\necho mpiexec of another MPI\n")
	said("mpiexec is not MPICH's: install MPICH")
	put("mpiexec", "#!/bin/sh\necho HYDRA build details:\n")
	said("examples/phases was not built: install MPICH")
	put("phases", "")
	said("there is no muster-rsh beside muster")
	put("muster-rsh", "")
	if got := d.noMPI(); got != "" {
		t.Errorf("got %q", got)
	}
}
