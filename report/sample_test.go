package report

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
)

var sampleFile = flag.String("sample", "", "write the sample page to this file, to look at")

// sampleJob is a job of the sample: some lanes (quarters of a node) on some nodes.
type sampleJob struct {
	id, user, request  string
	nodes, lanes       int
	submit, run, start float64
	where, firstLane   []int
	borrowed           bool
}

const (
	sampleNodes = 40
	sampleLanes = 4
)

func sampleWorkload(n int, seed uint64) []sampleJob {
	rng := rand.New(rand.NewPCG(seed, 7))
	jobs := make([]sampleJob, n)
	now := 0.0
	for i := range jobs {
		now += math.Round(rng.ExpFloat64() * 420)
		jobs[i] = sampleJob{
			id:     fmt.Sprintf("%d", 104200+i),
			nodes:  1 << rng.IntN(5),
			lanes:  1 << rng.IntN(3),
			submit: now,
			run:    math.Round(120 + 5400*math.Exp(rng.NormFloat64())),
			user:   fmt.Sprintf("u%02d", rng.IntN(24)),
		}
		jobs[i].borrowed = jobs[i].lanes == 2 && rng.IntN(2) == 0
		jobs[i].request = fmt.Sprintf("%d nodes x %d cores, %d GPUs", jobs[i].nodes, 3*jobs[i].lanes, jobs[i].lanes-1)
	}
	return jobs
}

// place gives the jobs nodes and times. In order, no job starts before an earlier one.
func place(jobs []sampleJob, inOrder bool) {
	var free [sampleNodes][sampleLanes]float64
	floor := 0.0
	for i := range jobs {
		j := &jobs[i]
		type slot struct {
			ready      float64
			node, lane int
		}
		var slots []slot
		for n := range free {
			best := slot{ready: math.Inf(1)}
			for l := 0; l+j.lanes <= sampleLanes; l++ {
				if ready := slices.Max(free[n][l : l+j.lanes]); ready < best.ready {
					best = slot{ready, n, l}
				}
			}
			slots = append(slots, best)
		}
		slices.SortStableFunc(slots, func(a, b slot) int {
			return int(math.Max(a.ready, j.submit) - math.Max(b.ready, j.submit))
		})
		j.start = math.Max(j.submit, slots[j.nodes-1].ready)
		if inOrder {
			j.start = math.Max(j.start, floor)
			floor = j.start
		}
		for _, s := range slots[:j.nodes] {
			j.where = append(j.where, s.node)
			j.firstLane = append(j.firstLane, s.lane)
			for l := range j.lanes {
				free[s.node][s.lane+l] = j.start + j.run
			}
		}
	}
}

func sampleGantt(title string, jobs []sampleJob) *Gantt {
	g := &Gantt{
		Title: title, Axis: "time",
		Kinds: []Kind{
			{Name: "local GPUs", Help: "Every GPU of the job is in the node that uses it."},
			{Name: "borrowed GPUs", Help: "At least one GPU of the job is in another node."},
			{Name: "no GPU"},
		},
	}
	for n := range sampleNodes {
		g.Rows = append(g.Rows, fmt.Sprintf("n%03d", n))
	}
	for i, j := range jobs {
		kind := uint8(0)
		if j.borrowed {
			kind = 1
		} else if j.lanes == 1 {
			kind = 2
		}
		for k, n := range j.where {
			g.Blocks = append(g.Blocks, Block{
				Row: int32(n), Start: j.start, End: j.start + j.run, Kind: kind, Job: int32(i),
				Lo: float32(j.firstLane[k]) / sampleLanes, Hi: float32(j.firstLane[k]+j.lanes) / sampleLanes,
			})
		}
		g.Jobs = append(g.Jobs, GanttJob{ID: j.id, Lines: []string{
			"User\t" + j.user, "Request\t" + j.request, "Submitted\t" + Duration(j.submit),
			"Waited\t" + Duration(j.start-j.submit), "Ran\t" + Duration(j.run),
		}})
	}
	return g
}

// utilisation is the share of lanes in use over time.
func utilisation(name string, jobs []sampleJob) Series {
	change := map[float64]float64{}
	for _, j := range jobs {
		change[j.start] += float64(j.nodes * j.lanes)
		change[j.start+j.run] -= float64(j.nodes * j.lanes)
	}
	s := Series{Name: name, Step: true}
	for t := range change {
		s.X = append(s.X, t)
	}
	slices.Sort(s.X)
	used := 0.0
	for _, t := range s.X {
		used += change[t]
		s.Y = append(s.Y, used/(sampleNodes*sampleLanes))
	}
	return s
}

func samplePage() *Page {
	page := &Page{
		Title: "What if: G queue against R queue on 40 nodes",
		Lead:  "300 jobs of a generated workload, twice through the same machine: once strictly in order, once with jobs that may overtake. Numbers are of one run with seed 1.",
	}
	table := &Table{
		Title: "Side by side",
		Columns: []Column{
			{Name: "Policy"}, {Name: "Jobs", Right: true}, {Name: "Makespan", Right: true, Help: "From the first submission to the last end."},
			{Name: "Core use", Right: true, Help: "Cores in use, mean over the makespan."}, {Name: "Mean wait", Right: true}, {Name: "p95 wait", Right: true},
			{Name: "Worst wait", Right: true}, {Name: "Slowdown", Right: true, Help: "Life time over run time, mean."},
		},
		Note: "Both policies saw the same submissions.",
	}
	chart := &Chart{Title: "Cores in use over time", XLabel: "time", YLabel: "cores in use", XIsTime: true, YIsPercent: true, YMin: new(0.0), YMax: new(1.0)}
	waits := &Histogram{Title: "How long jobs waited", XLabel: "wait", YLabel: "jobs", XIsTime: true, LogY: true}
	var gantts []Section
	starts := map[string][]float64{}
	for _, p := range []struct {
		name    string
		inOrder bool
	}{{"g-queue", true}, {"r-queue", false}} {
		jobs := sampleWorkload(300, 1)
		place(jobs, p.inOrder)
		var wait []float64
		work, end, slow := 0.0, 0.0, 0.0
		for _, j := range jobs {
			wait = append(wait, j.start-j.submit)
			starts[p.name] = append(starts[p.name], j.start)
			work += j.run * float64(j.nodes*j.lanes)
			end = math.Max(end, j.start+j.run)
			slow += (j.start - j.submit + j.run) / j.run / float64(len(jobs))
		}
		waits.Series = append(waits.Series, Sample{Name: p.name, Values: wait})
		chart.Series = append(chart.Series, utilisation(p.name, jobs))
		sorted := slices.Sorted(slices.Values(wait))
		mean := 0.0
		for _, w := range wait {
			mean += w / float64(len(wait))
		}
		table.Rows = append(table.Rows, []string{
			p.name, Number(float64(len(jobs))), Duration(end), Percent(work / end / (sampleNodes * sampleLanes)),
			Duration(mean), Duration(sorted[len(sorted)*95/100]), Duration(sorted[len(sorted)-1]), Number(slow),
		})
		gantts = append(gantts, sampleGantt("Nodes over time, "+p.name, jobs))
	}
	difference := &Histogram{Title: "Start times, r-queue minus g-queue", XLabel: "difference (left of 0: started earlier under r-queue)", YLabel: "jobs", XIsTime: true, Series: []Sample{{Name: "jobs"}}}
	for i, s := range starts["r-queue"] {
		difference.Series[0].Values = append(difference.Series[0].Values, s-starts["g-queue"][i])
	}
	paper := &Bars{
		Title: "Change against g-queue, paper beside ours", YLabel: "change", YIsPercent: true,
		Groups: []string{"wait", "run", "life"},
		Series: []BarSeries{
			{Name: "paper", Values: []float64{-0.2524, 0.0731, math.NaN()}, Reference: true},
			{Name: "ours", Values: []float64{-0.2281, 0.0640, -0.113}, Lo: []float64{-0.27, 0.05, -0.14}, Hi: []float64{-0.19, 0.08, -0.09}},
		},
		Note: "Bars: mean over seeds; lines: lowest and highest. The paper has no number for the life time.",
	}
	grow := &Chart{
		Title: "Cost of a step", XLabel: "nodes", YLabel: "jobs/s", LogX: true,
		Series: []Series{
			{Name: "fcfs", X: []float64{100, 1000, 10000}, Y: []float64{910e3, 850e3, 720e3}, Lo: []float64{880e3, 830e3, 690e3}, Hi: []float64{930e3, 870e3, 760e3}, Points: true},
			{Name: "easy", X: []float64{100, 1000, 10000}, Y: []float64{700e3, 640e3, 210e3}, Lo: []float64{650e3, 610e3, 190e3}, Hi: []float64{740e3, 660e3, 240e3}},
		},
	}
	page.Sections = append([]Section{table, Heading("Utilisation"), chart, Heading("Waiting"), waits, difference, paper, grow, Heading("Nodes over time")}, gantts...)
	page.Sections = append(page.Sections, Heading("How to get this page"), Text("The command below writes it again, byte for byte."), Pre("muster sim --cluster small.yaml --workload small.swf --policy g-queue,r-queue --html report.html"))
	return page
}

func TestSamplePageIsTheSameBytesTwice(t *testing.T) {
	var a, b bytes.Buffer
	if err := samplePage().WriteHTML(&a); err != nil {
		t.Fatal(err)
	}
	if err := samplePage().WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Error("two pages from the same input differ")
	}
	if *sampleFile != "" {
		if err := os.WriteFile(*sampleFile, a.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
