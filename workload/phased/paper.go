package phased

import (
	"fmt"
	"strings"
	"time"
)

// The applications of the paper on mapping kernels to devices: H uses the GPU heavily, L less. How
// much less distinguishes the paper's three groups of workloads. The times are those printed; two
// of the pairs do not add up to 3 s as the others do.
var (
	heavy  = phases{750 * time.Millisecond, 2250 * time.Millisecond}
	lights = [3]phases{
		{2250 * time.Millisecond, 750 * time.Millisecond},  // W1 to W5
		{2625 * time.Millisecond, 325 * time.Millisecond},  // W6 to W10
		{1815 * time.Millisecond, 1125 * time.Millisecond}, // W11 to W15
	}
)

type phases struct{ cpu, gpu time.Duration }

// heavyOf24 is the number of H's nodes out of 24, in the five workloads of a group.
var heavyOf24 = [5]int{24, 18, 12, 6, 0}

const paperWorkloads = len(lights) * len(heavyOf24)

// paperUpload: a kernel receives 10 KB for each millisecond that it runs, and sends back half of
// that.
const paperUpload = 10_000_000

// Paper is W1 to W15, for any number of nodes that can be divided as the paper divides 24.
func Paper(name string, nodes int) (*Workload, error) {
	number, ok := paperNumber(name)
	if !ok {
		return nil, fmt.Errorf("the paper has no workload %q: it has W1 to W%d", name, paperWorkloads)
	}
	return paper(number, nodes)
}

// paperNumber parses W1 to W15 as a number from 0.
func paperNumber(name string) (int, bool) {
	for i := range paperWorkloads {
		if strings.EqualFold(name, paperName(i)) {
			return i, true
		}
	}
	return 0, false
}

func paperName(number int) string { return fmt.Sprintf("W%d", number+1) }

func paperSummary(number int) string {
	h, light := heavyOf24[number%5], lights[number/5]
	mix := fmt.Sprintf("%d of 24 nodes lean on their GPUs (H), %d less so (L: %v CPU, %v GPU)", h, 24-h, light.cpu, light.gpu)
	switch h {
	case 24:
		mix = "all nodes lean on their GPUs (H)"
	case 0:
		mix = fmt.Sprintf("no node leans on its GPUs much (L: %v CPU, %v GPU)", light.cpu, light.gpu)
	}
	return mix
}

func paper(number, nodes int) (*Workload, error) {
	name, of24 := paperName(number), heavyOf24[number%5]
	if nodes < 1 || nodes > maxNodes || nodes*of24%24 != 0 {
		return nil, fmt.Errorf("%s gives %d of 24 nodes to H: take a multiple of %d nodes, not %d", name, of24, 24/gcd(of24, 24), nodes)
	}
	h := nodes * of24 / 24
	w := &Workload{Name: name}
	if h > 0 {
		w.Apps = append(w.Apps, paperApp("H", h, heavy))
	}
	if nodes > h {
		w.Apps = append(w.Apps, paperApp("L", nodes-h, lights[number/5]))
	}
	return w, nil
}

func paperApp(name string, nodes int, p phases) App {
	return App{Name: name, Nodes: nodes, Steps: []Step{{
		CPU: Time{ExponentialOf(p.cpu)}, GPU: Time{ExponentialOf(p.gpu)},
		In: Size{PerSecond: paperUpload}, Out: Size{PerSecond: paperUpload / 2},
	}}}
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
