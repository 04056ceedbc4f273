package noderuntime

import (
	"fmt"
	"math"

	"muster/report"
)

// nothing is where there is no number.
var nothing = math.NaN()

const lead = "Programs that share the GPUs of a node through Muster's daemon, measured on software GPUs that are as fast, relative to each other, as " +
	"those of the paper. Only ratios can be compared: the GPUs are made of software and the time is scaled."

// notes tell how it was done, what differs and why.
func notes(m measured, seeds []uint64, all bool) []string {
	list := []string{
		fmt.Sprintf("Measured, not simulated: %s, medians with the least and the most. Times vary with what else the machine does; a quiet machine with two "+
			"processors or more is needed. What is drawn at random follows from the seed.", plural(len(seeds), "run")),
		fmt.Sprintf("GPUs: speeds as cores x clock, C2050 : C1060 : GTX 480 = 1 : %.2f : %.2f; a C2050 is %g of what one processor of this machine does. Kernels are "+
			"real PTX kernels, as large as the wanted time needs; every program checks what it gets back. CPU phases are sleeps: they stand for work on "+
			"other cores.", c1060.power()/c2050.power(), gtx480.power()/c2050.power(), referenceSpeed),
		"The clock starts when all programs are attached (bare: have their contexts), since starting processes is not scaled. Bare means contexts of one " +
			"process on the same software GPU, which takes turns by itself, with GPUs given out in turn. The paper's CUDA served at most eight; that is not imitated.",
		"Where the paper has a picture only, its numbers are not in the text, and the column is empty.",
		"Figs. 3-14 to 3-20: four equal GPUs; the maximum idle time is scaled like the phases (10 ms : 0.5 s, 0.3 s, 3 s). A worker says that it is idle after a " +
			"millisecond of silence, which is not scaled. In a broadcast the first process is the sender and waits for nobody; the faster processes are the last " +
			"ones. Programs queue up one after the other, as without preemption two of them could wait for each other for ever.",
		fmt.Sprintf("Idle time alone cannot give the paper's largest speed-ups: with three of four processes faster by half, batch scheduling leaves GPUs idle 37.5 %% of "+
			"the time, so that no schedule is faster than %.2f times; the paper has 2.9. Between programs, CPU phases as long as GPU phases and three processes on four "+
			"GPUs leave 62.5 %% idle, a bound of %.2f; the paper has 3.5.", idleBound(3, 50), 2/0.75),
	}
	if late := m.lateness(); late > tooLate {
		list = append(list, fmt.Sprintf("The machine was busy: it woke sleepers %.1f ms late on average. These numbers say more of that than of anything else; "+
			"measure again when nothing else runs.", 1e3*late))
	}
	if !all {
		list = append(list, "All figures at once measure some points of each; --figure NAME measures all points of a figure, with the long GPU phases too.")
	}
	return list
}

// scaleTable says what was scaled, and how.
func scaleTable() *report.Table {
	t := &report.Table{Columns: []report.Column{
		{Name: "figures"}, {Name: "GPU"}, {Name: "time", Right: true}, {Name: "speed", Right: true}, {Name: "memory", Right: true}, {Name: "copies", Right: true},
	}}
	for _, line := range []struct {
		figures string
		scale   scale
		cards   []card
	}{
		{"3-7, 3-8", short, []card{c2050, c1060}},
		{"3-9, 3-10", long, []card{c2050, c1060}},
		{"3-14 to 3-20", multi, []card{gtx480}},
	} {
		for _, c := range line.cards {
			p := line.scale.profile(c)
			t.Rows = append(t.Rows, []string{
				line.figures, c.name, fmt.Sprintf("1:%.0f", 1/line.scale.time), fmt.Sprintf("%.3f", p.Speed),
				fmt.Sprintf("%d MiB (of %g GiB)", p.Memory>>20, c.memory), fmt.Sprintf("%.2f GB/s", float64(p.CopyBandwidth)/1e9),
			})
		}
	}
	return t
}

// tooLate is how late a machine may wake sleepers, in seconds: about what is
// usual for one that has little to do.
const tooLate = 0.0005

// lateness is the mean of all measurements.
func (m measured) lateness() float64 {
	sum, n := 0.0, 0
	for _, list := range m {
		for _, o := range list {
			sum, n = sum+o.late, n+1
		}
	}
	return sum / float64(max(1, n))
}
