package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// demoJob is a job, or an array of them, that a user submits.
type demoJob struct {
	name    string
	why     string
	options string   // of muster submit
	command []string // behind them
	count   int      // of an array's tasks; 0 if it is none
	want    []string // the lines of its output, without times
}

// words are those of the command that submits the job.
func (j *demoJob) words() []string {
	return append(append([]string{"submit", "-J", j.name}, strings.Fields(j.options)...), j.command...)
}

// programJob runs a program of the examples, which must print one line.
func programJob(why, name, options, command, want string) *demoJob {
	return &demoJob{name: name, why: why, options: options, command: append([]string{"--"}, strings.Fields("examples/"+command)...), want: []string{want}}
}

// many has an array's tasks, or the processes of a job, do the same.
func (j *demoJob) tasks(n int) *demoJob {
	j.count = n
	return j
}

func (j *demoJob) processes(n int) *demoJob {
	for range n - 1 {
		j.want = append(j.want, j.want[0])
	}
	return j
}

// The jobs in the order of the story. What they print is known from an idle machine;
// the checksum of weave was also computed by another program (internal/chaos).
var (
	demoLocal = programJob("a CUDA program on a GPU of its own node", "local",
		"--gres=gpu:1", "mm --repeat 40 --memory 8M", "mm: 40 products of 160 x 160 right")
	demoBorrows = programJob("two processes on login, which has no GPU, use two GPUs of other nodes", "borrows",
		"-w login --gres=rgpu:2", "procs --processes 2 --spread --iterations 8 --kernels 40 --pattern alltoall",
		"procs: 2 processes, 8 iterations of 1 phases of 40 kernel calls right")
	demoShares = programJob("four jobs that want a part of a GPU each: they share", "shares",
		"--array=1-4 --gres=rgpu:1:20M --rcuda-mode=shar", "bs --repeat 400 --memory 8M",
		"bs: 400 pricings of 16384 options right").tasks(4)
	demoSwaps = programJob("three programs with 36 MiB each on one GPU that has 64 or 96: they are swapped in and out", "swaps",
		"-w gpu1 -n 3 --gres=gpu:1", "mm --repeat 40 --cpu-ms 15 --cpu-sleep --memory 36M", "mm: 40 products of 160 x 160 right").processes(3)
	demoMPI = &demoJob{name: "mpi", why: "an MPI program on two nodes, with a GPU each",
		options: "-N 2 --ntasks-per-node=1 --gres=gpu:1", command: []string{"--wrap", "mpiexec examples/phases --patient --iterations 8 --kernels 20 --pattern alltoall"},
		want: []string{"phases: 2 processes, 8 iterations of 1 phases of 20 kernel calls right"}}

	demoBusy = programJob("all GPUs of gpu1 are busy", "busy",
		"-w gpu1 --gres=gpu:2", "procs --processes 2 --spread --iterations 8 --kernels 150 --pattern barrier",
		"procs: 2 processes, 8 iterations of 1 phases of 150 kernel calls right")
	demoSurvives = programJob("so this job runs on gpu2; should its node fail, it is to be run again", "survives",
		"--requeue --gres=gpu:1", "weave --size 4096 --repeat 400", "weave: 400 rounds of 3 x 4096 words, checksum 8535f905 right")

	demoPatient = programJob("a job that has most of the memory of gpu2's GPU", "patient",
		"-w gpu2 --gres=gpu:1", "mm --repeat 60 --memory 32M", "mm: 60 products of 160 x 160 right")
	demoUrgent = programJob("an urgent one that wants the same: the first makes room until it is over", "urgent",
		"-w gpu2 --qos=urgent --gres=gpu:1", "hotspot --memory 24M", "hotspot: 4 steps of 512 x 512 cells right")
	demoAll = programJob("a job that wants all three GPUs: it waits until they are free", "all",
		"--gres=rgpu:3", "procs --processes 3 --spread --iterations 4 --kernels 10 --pattern bcast",
		"procs: 3 processes, 4 iterations of 1 phases of 10 kernel calls right")
	demoAfter = &demoJob{name: "after", why: "and one without a GPU, when that has ended", options: "-d afterok:LAST -w login",
		command: []string{"--", "/bin/echo", "all is done"}, want: []string{"all is done"}}
)

// noMPI says why the job with MPI cannot be run; "" if it can.
func (d *demo) noMPI() string {
	const install = "install MPICH (Debian: apt-get install mpich libmpich-dev), and make examples"
	mpiexec, err := exec.LookPath("mpiexec")
	if err != nil {
		return "there is no mpiexec: " + install
	}
	if text, _ := exec.CommandContext(d.ctx, mpiexec, "--version").Output(); !strings.Contains(string(text), "HYDRA") {
		return "mpiexec is not MPICH's: " + install
	}
	if _, err := os.Stat(filepath.Join(d.programs, "phases")); err != nil {
		return "examples/phases was not built: " + install
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(d.self), "muster-rsh")); err != nil {
		return "there is no muster-rsh beside muster, by which MPI reaches other nodes: make build"
	}
	return ""
}

// check compares a job's output with what is known to be right.
func (j *demoJob) check(output string) error {
	var got []string
	for line := range strings.Lines(output) {
		got = append(got, withoutTimes(strings.TrimSpace(line)))
	}
	if strings.Join(got, "\n") != strings.Join(j.want, "\n") {
		return fmt.Errorf("it printed\n%sand not\n%s", indent(output), indent(strings.Join(j.want, "\n")))
	}
	return nil
}

// withoutTimes leaves out what is different each time: ", 0.43 s (GPU 0.40 s, CPU 0.03 s)".
func withoutTimes(line string) string {
	if at := strings.LastIndex(line, " right, "); at >= 0 {
		return line[:at+len(" right")]
	}
	return line
}

func indent(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		fmt.Fprintf(&b, "    %s\n", strings.TrimRight(line, "\n"))
	}
	return b.String()
}
