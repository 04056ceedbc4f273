package rgpu

// The numbers that the paper prints. Of its figures it gives only those in the text.

// application is a line of Table I.
type application struct {
	name    string
	seconds float64 // run time alone
}

var applications = []application{{"GPU-Blast", 21}, {"LAMMPS", 15}, {"MCUDA-MEME", 165}, {"GROMACS", 167}}

// workloads of Table II, by their theoretical length in hours.
var workloads = []int{2, 4, 8}

// table2 counts the jobs of each application, by workload, in the order of applications.
var table2 = map[int][]int{
	2: {12, 18, 18, 23},
	4: {43, 47, 36, 42},
	8: {81, 90, 77, 79},
}

// table2Totals are the paper's sums.
var table2Totals = map[int]int{2: 71, 4: 168, 8: 327}

// launch is a line of Table III or IV: the options of Slurm's submit commands.
type launch struct{ application, cuda, rcuda string }

// table3 has the launch lines that give each job the highest performance.
var table3 = []launch{
	{"GPU-Blast", "-N1 -n1 -c6 --gres=gpu:1", "-N1 -n1 -c6 --gres=rgpu:1:1686M"},
	{"LAMMPS", "-N5 -n5 -c1 --gres=gpu:1", "-N5 -n5 -c1 --gres=rgpu:5:3275M"},
	{"MCUDA-MEME", "-N4 -n4 -c1 --gres=gpu:1", "-n4 -c1 --gres=rgpu:4:163M"},
	{"GROMACS", "-N2 -n2 -c12", "-N2 -n2 -c12"},
}

// table4 has the launch lines that give the highest throughput.
var table4 = []launch{
	{"GPU-Blast", "-n1 -c6 --gres=gpu:1", "-n1 -c6 --gres=rgpu:1:1686M"},
	{"LAMMPS", "-n5 -c1 --gres=gpu:1", "-n5 -c1 --gres=rgpu:5:3275M"},
	{"MCUDA-MEME", "-N4 -n4 -c1 --gres=gpu:1", "-n4 -c1 --gres=rgpu:4:163M"},
	{"GROMACS", "-N2 -n2 -c12", "-N2 -n2 -c12"},
}

// lammpsOnFour replaces the line of LAMMPS with rCUDA where there are only 4 GPUs.
const lammpsOnFour = "-n5 -c1 --gres=rgpu:4:3275M"

// table5 is the percentage of the time for which each GPU was allocated with rCUDA.
var table5 = []struct {
	setting setting
	hours   int
	percent []float64 // by GPU
}{
	{maxPerformance, 2, []float64{90.12, 90.12, 90.12, 90.12, 85.60, 55.66, 55.22, 55.19}},
	{maxPerformance, 4, []float64{90.78, 90.78, 88.12, 88.12, 62.53, 38.74, 34.41, 9.70}},
	{maxPerformance, 8, []float64{93.30, 93.30, 93.09, 93.08, 92.14, 84.45, 84.19, 83.64}},
	{onEight, 2, []float64{79.16, 79.16, 79.16, 79.16, 76.82, 56.31, 43.24, 25.75}},
	{onEight, 4, []float64{94.86, 94.86, 94.86, 91.67, 87.72, 77.11, 44.41, 32.67}},
	{onEight, 8, []float64{90.27, 90.27, 90.27, 87.03, 86.31, 78.06, 68.54, 57.92}},
	{onSix, 2, []float64{86.34, 86.34, 86.34, 86.34, 70.69, 68.88}},
	{onSix, 4, []float64{93.48, 93.48, 93.48, 92.37, 77.14, 58.44}},
	{onSix, 8, []float64{97.09, 97.09, 97.09, 94.40, 86.12, 85.10}},
	{onFour, 2, []float64{99.57, 98.17, 98.17, 98.17}},
	{onFour, 4, []float64{99.29, 99.04, 99.04, 99.04}},
	{onFour, 8, []float64{97.67, 97.67, 97.67, 97.67}},
}

// Twelve MCUDA-MEME at once on the same four nodes, and one after the other, in seconds.
const (
	paperTwelveAtOnce = 1884
	paperTwelveInTurn = 1980
)

// setting is one of the four scenarios.
type setting struct {
	name, title, launch string
	gpus                int
}

var (
	maxPerformance = setting{"max_8gpu", "8 GPUs, maximum performance", "performance", 8}
	onEight        = setting{"8gpu", "8 GPUs, throughput", "throughput", 8}
	onSix          = setting{"6gpu", "6 GPUs, throughput", "throughput", 6}
	onFour         = setting{"4gpu", "4 GPUs, throughput", "throughput", 4}
)

var settings = []setting{maxPerformance, onEight, onSix, onFour}
