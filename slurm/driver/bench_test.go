package driver_test

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/policy/catalog"
	"muster/slurm"
	"muster/slurm/driver"
	"muster/slurm/emulate"
	"muster/slurm/emulate/emulatetest"
	"muster/slurm/release"
)

// The benchmarks place jobs on a real Slurm of 128 nodes with 1,024 processors, in bursts of 500
// (MUSTER_SLURM_BURST) that fit it. Road is what slurmrestd takes without any decisions: the same
// requests, four at a time. Driver is from the first request to the last answer. Both alternate
// (MUSTER_SLURM_TURNS, 4 each) in one run, and the driver's share of the road is a ratio of whole
// times. Slurm's scheduler runs only every 15 s: a burst during which it runs takes ten times as
// long as another, and chance would decide which that is. Busy is the fraction of the time in which
// the driver had its four requests in progress. Whole is the ratio that includes the listing
// before, and deciding and recording. Where each job ran is read from the records that Slurm writes
// of ended jobs, and compared with the requests. With MUSTER_SLURM_CANCEL=1 the jobs
// are cancelled before they start, which saves most of the time.
//
//	go test ./slurm/driver -run - -bench Placements -benchtime 1x
func BenchmarkPlacements(b *testing.B) {
	setting := func(name string, usual int) int {
		if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
			return n
		}
		return usual
	}
	burst, turns := setting("MUSTER_SLURM_BURST", 500), setting("MUSTER_SLURM_TURNS", 4)
	for _, r := range release.All() {
		b.Run(r.Name, func(b *testing.B) {
			emulatetest.Need(b, r)
			c := emulatetest.Start(b, emulate.Options{Release: r, Nodes: 128, JobSubmit: holdAll,
				// Each burst finds few old jobs.
				Extra: "MaxJobCount=50000\nMinJobAge=20\nSchedulerParameters=sched_min_interval=15000000,sched_interval=15,batch_sched_delay=15,default_queue_depth=2000,bf_interval=600\n"})
			for range b.N {
				var road, own turn
				nodes := map[string]string{}
				for range turns {
					road.add(b, "road", roadTurn(b, c, burst))
					own.add(b, "driver", driverTurn(b, c, burst, nodes))
				}
				checked, wrong := checkRecords(b, c, nodes)
				b.ReportMetric(float64(road.jobs)/road.sending.Seconds(), "road/s")
				b.ReportMetric(float64(own.jobs)/own.sending.Seconds(), "driver/s")
				b.ReportMetric(100*road.sending.Seconds()/own.sending.Seconds()*float64(own.jobs)/float64(road.jobs), "%road")
				b.ReportMetric(100*road.whole.Seconds()/own.whole.Seconds()*float64(own.jobs)/float64(road.jobs), "%whole")
				b.ReportMetric(100*own.busy.Seconds()/4/own.sending.Seconds(), "%busy")
				b.ReportMetric(float64(checked), "checked")
				b.ReportMetric(float64(wrong), "wrong")
			}
		})
	}
}

// turn is the measurement of one burst, or of several.
type turn struct {
	jobs           int
	sending, whole time.Duration
	busy           time.Duration // of all requests together
}

func (t *turn) add(b *testing.B, who string, o turn) {
	b.Logf("%s: %d in %s, with all else %s", who, o.jobs, o.sending, o.whole)
	t.jobs, t.sending, t.whole, t.busy = t.jobs+o.jobs, t.sending+o.sending, t.whole+o.whole, t.busy+o.busy
}

// submitMany submits n jobs of one processor.
func submitMany(b *testing.B, c *emulate.Cluster, n int) {
	b.Helper()
	output(b, c.Command("sh", "-c", `seq `+strconv.Itoa(n)+` | xargs -P4 -I{} sbatch -Q -J {} -n1 -t5 -o /dev/null --wrap "exit 0"`))
}

// roadTurn measures what the road allows.
func roadTurn(b *testing.B, c *emulate.Cluster, n int) turn {
	e := connect(b, c)
	submitMany(b, c, n)
	began := time.Now()
	l, err := e.Jobs(context.Background(), 0, nil)
	if err != nil {
		b.Fatal(err)
	}
	work := make(chan slurm.Place)
	var wait sync.WaitGroup
	t, first := turn{}, time.Now()
	for range 4 {
		wait.Go(func() {
			for p := range work {
				if err := e.Place(context.Background(), p); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for _, j := range l.Jobs {
		if j.Held && j.State == "PENDING" {
			node := c.Nodes[t.jobs/8%128] // as the driver fills them
			t.jobs++
			work <- slurm.Place{Job: slurm.Ref{ID: j.ID}, Nodes: []string{node}, Comment: "muster:req was=- muster:got 0 " + strconv.FormatUint(j.ID, 10) + " nodes=" + node + " rgpu=- grant=- why=it was its turn"}
		}
	}
	close(work)
	wait.Wait()
	t.sending, t.whole = time.Since(first), time.Since(began)
	drained(b, c)
	return t
}

func drained(b *testing.B, c *emulate.Cluster) {
	if os.Getenv("MUSTER_SLURM_CANCEL") != "" {
		output(b, c.Command("scancel", "--state=PENDING", "--me"))
	}
	patiently(b, "Slurm is empty", func() bool { return output(b, c.Command("squeue", "-h")) == "" })
}

// counting counts placements and the time that they take.
type counting struct {
	driver.Engine
	mu          sync.Mutex
	n           int
	first, last time.Time
	busy        time.Duration
	nodes       map[string]string // by job
}

func (e *counting) Place(ctx context.Context, p slurm.Place) error {
	e.mu.Lock()
	if e.n++; e.first.IsZero() {
		e.first = time.Now()
	}
	e.mu.Unlock()
	began := time.Now()
	err := e.Engine.Place(ctx, p)
	e.mu.Lock()
	e.last = time.Now()
	e.busy += e.last.Sub(began)
	if err == nil {
		e.nodes[p.Job.String()] = strings.Join(p.Nodes, ",")
	}
	e.mu.Unlock()
	return err
}

// driverTurn measures the driver.
func driverTurn(b *testing.B, c *emulate.Cluster, n int, nodes map[string]string) turn {
	submitMany(b, c, n)
	e := &counting{Engine: connect(b, c), nodes: nodes}
	d, err := driver.New(e, driver.Config{Spec: "easy", Policy: catalog.New, Core: slurm.Config{Settle: 1}})
	if err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	d.Round(context.Background())
	t := turn{jobs: e.n, sending: e.last.Sub(e.first), whole: time.Since(began), busy: e.busy}
	ctx, cancel := context.WithCancel(context.Background())
	wait := make(chan error)
	go func() { wait <- d.Run(ctx) }()
	drained(b, c)
	cancel()
	<-wait
	return t
}

// checkRecords compares where jobs ran with where they were placed.
func checkRecords(b *testing.B, c *emulate.Cluster, nodes map[string]string) (checked, wrong int) {
	b.Helper()
	text, err := os.ReadFile(c.JobCompletions())
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		fields := map[string]string{}
		for _, word := range strings.Fields(line) {
			key, value, _ := strings.Cut(word, "=")
			fields[key] = value
		}
		want, placed := nodes[fields["JobId"]]
		if !placed || fields["JobState"] == "CANCELLED" {
			continue
		}
		checked++
		if fields["NodeList"] != want {
			wrong++
			b.Errorf("job %s was placed on %s and ran on %s", fields["JobId"], want, fields["NodeList"])
		}
	}
	return checked, wrong
}

// patiently is eventually for conditions that take minutes on a machine with few processors.
func patiently(b *testing.B, what string, is func() bool) {
	b.Helper()
	for deadline := time.Now().Add(5 * time.Minute); !is(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.Fatalf("waited in vain: %s", what)
		}
	}
}
