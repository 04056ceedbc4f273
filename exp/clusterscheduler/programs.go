package clusterscheduler

import (
	"fmt"
	"strconv"
)

// app is one of the paper's three programs.
type app struct {
	name    string
	program string // name in examples/cuda
	size    int    // --size
	rounds  int    // of communication; 0: as many as it takes to give each process one unit per round
	units   int    // of work: per round, or in total if rounds is 0
	bytes   int    // sent to a process and back for each unit
	long    bool   // the paper calls it long-running
}

// The programs. Their sizes give the short ones about the paper's ratio of communication to
// computation: 800 MB per iteration take 6.4 s on its network, and the 48 products of 1600 x 1600
// matrices that we assume for them take about 1.8 s on a C2050.
var (
	mm   = app{"MM", "pairs", 16, 2, 24, 3 * 16 * 16 * 4, false}
	nw   = app{"NW", "align", 16, 4, 24, 2*16 + 17*17*4, false}
	adfa = app{"ADFA", "adfa", 288, 0, 8, 288*16*2 + 8, true}
	// Figs. 4-3 and 4-4 run six jobs of each program at once, and all processes of one may be on
	// the same GPU. So the automata are smaller there.
	adfaSmall  = sized(160)
	adfaMiddle = sized(256)
)

// sized is ADFA with automata of the given number of states.
func sized(states int) app {
	a := adfa
	a.size, a.bytes = states, states*16*2+8
	return a
}

// automatonWork is the work for an automaton of this size relative to that of adfa; 1 for the other
// programs.
func (a *app) automatonWork() float64 {
	if a.program != adfa.program {
		return 1
	}
	return float64(a.size*a.size) / float64(adfa.size*adfa.size)
}

// job is a program with a number of processes.
type job struct {
	app       *app
	processes int
	options   []string // of the submission, beside the number of processes and those that all jobs have
}

func (j *job) String() string { return fmt.Sprintf("%s[%d]", j.app.name, j.processes) }

// link is the bandwidth between nodes in bytes per second: a thousandth of that of the paper's
// Gigabit Ethernet.
const link = 125e3

// arguments are the arguments of the program.
func (j *job) arguments(seed uint64) []string {
	a := j.app
	words := []string{"--size", strconv.Itoa(a.size), "--seed", fmt.Sprint(seed), "--link", fmt.Sprint(int(link))}
	if a.rounds == 0 {
		return append(words, "--repeat", strconv.Itoa(a.units))
	}
	return append(words, "--repeat", strconv.Itoa(a.rounds), "--pairs", strconv.Itoa(a.units))
}

// asks are the options with which the job is submitted, in the lab and in the simulator.
func (j *job) asks() []string {
	limit := "--time=10"
	if j.app.long {
		limit = "--time=60"
	}
	return append([]string{"--job-name=" + j.app.name, "-n", strconv.Itoa(j.processes), limit}, j.options...)
}
