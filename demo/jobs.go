package demo

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// submission is a job, or an array of them, that a user submits.
type submission struct {
	name    string
	why     string
	options string   // of muster submit
	command []string // behind them
	count   int      // of an array's tasks; 0 if it is none
	want    []string // the lines of its output, without times
}

// words are those of the command that submits the job.
func (j *submission) words() []string {
	return append(append([]string{"submit", "-J", j.name}, strings.Fields(j.options)...), j.command...)
}

// programJob runs a program of the examples, which must print one line.
func programJob(why, name, options, command, want string) *submission {
	return &submission{name: name, why: why, options: options, command: append([]string{"--"}, strings.Fields("examples/"+command)...), want: []string{want}}
}

// tasks makes an array of the job, of which each task does the same.
func (j *submission) tasks(n int) *submission {
	j.count = n
	return j
}

// The jobs in the order of the story. What they print is known from an idle machine;
// the checksum of weave was also computed by another program (campaign/chaos).
var (
	jobLocal = programJob("a CUDA program on a GPU of its own node", "local",
		"--gres=gpu:1", "mm --repeat 40 --memory 8M", "mm: 40 products of 160 x 160 right")
	jobBorrows = programJob("two processes on login, which has no GPU, use two GPUs of other nodes", "borrows",
		"-w login --gres=rgpu:2", "procs --processes 2 --spread --iterations 8 --kernels 40 --pattern alltoall",
		"procs: 2 processes, 8 iterations of 1 phases of 40 kernel calls right")
	jobShares = programJob("four jobs that want a part of a GPU each: they share", "shares",
		"--array=1-4 --gres=rgpu:1:20M --rcuda-mode=shar", "bs --repeat 400 --memory 8M",
		"bs: 400 pricings of 16384 options right").tasks(4)
	jobMPI = &submission{name: "mpi", why: "an MPI program on two nodes, with a GPU each",
		options: "-N 2 --ntasks-per-node=1 --gres=gpu:1", command: []string{"--wrap", "mpiexec examples/phases --patient --iterations 8 --kernels 20 --pattern alltoall"},
		want: []string{"phases: 2 processes, 8 iterations of 1 phases of 20 kernel calls right"}}

	jobBusy = programJob("a job takes both GPUs of gpu1 for some seconds", "busy",
		"-w gpu1 --gres=gpu:2", "procs --processes 2 --spread --iterations 8 --kernels 100 --cpu-ms 300 --cpu-sleep --pattern barrier",
		"procs: 2 processes, 8 iterations of 1 phases of 100 kernel calls right")
	jobSurvives = programJob("so this job runs on gpu2; should its node fail, it is to be run again", "survives",
		"--requeue --gres=gpu:1", "weave --size 4096 --repeat 1500", "weave: 1500 rounds of 3 x 4096 words, checksum 2eed8c22 right")

	jobPatient = programJob("three jobs that can wait have most of the memory of a GPU each", "patient",
		"--array=1-3 --qos=low --gres=gpu:1", "mm --repeat 100 --cpu-ms 25 --cpu-sleep --memory 36M", "mm: 100 products of 160 x 160 right").tasks(3)
	jobUrgent = programJob("an urgent one wants as much of all GPUs: the others' memory is swapped out until it is over", "urgent",
		"--qos=urgent --gres=rgpu:3", "procs --processes 3 --spread --iterations 4 --kernels 40 --memory 36M --pattern bcast",
		"procs: 3 processes, 4 iterations of 1 phases of 40 kernel calls right")
	jobAfter = &submission{name: "after", why: "and one without a GPU, when all has ended", options: "-d afterok:PATIENT,afterok:LAST",
		command: []string{"--", "/bin/echo", "all is done"}, want: []string{"all is done"}}
)

// noMPI says why the job with MPI cannot be run; "" if it can.
func (d *tour) noMPI() string {
	const install = "install MPICH (Debian: apt-get install mpich libmpich-dev), and make examples"
	mpiexec, err := exec.LookPath("mpiexec")
	if err != nil {
		return "there is no mpiexec: " + install
	}
	if text, _ := exec.CommandContext(d.ctx, mpiexec, "--version").Output(); !strings.Contains(string(text), "HYDRA") {
		return "mpiexec is not MPICH's: " + install
	}
	if _, err := os.Stat(filepath.Join(d.Programs, "phases")); err != nil {
		return "examples/phases was not built: " + install
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(d.self), "muster-rsh")); err != nil {
		return "there is no muster-rsh beside muster, by which MPI reaches other nodes: make build"
	}
	return ""
}

// suspendedNote is what Muster's library says in a program that wants a GPU while its job
// is suspended. It depends on the moment, and is no result.
const suspendedNote = "muster: the job is suspended; the program waits until it goes on"

// check compares a job's output with what is known to be right.
func (j *submission) check(output string) error {
	var got []string
	for line := range strings.Lines(output) {
		if line = strings.TrimSpace(line); line != suspendedNote {
			got = append(got, withoutTimes(line))
		}
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
