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

// The benchmarks place jobs on a real Slurm of 128 nodes with 1,024 processors, in bursts that fill
// it (MUSTER_SLURM_JOBS says how many jobs in all, a multiple of 1,000). Road is what slurmrestd takes
// when nobody decides anything: the same requests, for the same number of jobs, four at a time.
// Driver is from the first request to the last answer. Where each job ran is read from the records
// that Slurm writes of jobs that have ended, and compared with the requests.
//
//	go test ./slurm/driver -run - -bench Placements -benchtime 1x
func BenchmarkPlacements(b *testing.B) {
	jobs := 1000
	if n, err := strconv.Atoi(os.Getenv("MUSTER_SLURM_JOBS")); err == nil {
		jobs = n
	}
	for _, r := range release.All() {
		b.Run(r.Name, func(b *testing.B) {
			emulatetest.Need(b, r)
			c := emulatetest.Start(b, emulate.Options{Release: r, Nodes: 128, JobSubmit: holdAll, Extra: "MaxJobCount=50000\nMinJobAge=20\n"}) // each burst finds few old jobs
			for range b.N {
				road(b, c, 1000)
				driverBurst(b, c, jobs)
			}
		})
	}
}

// submitMany submits n jobs of one processor.
func submitMany(b *testing.B, c *emulate.Cluster, n int) {
	b.Helper()
	output(b, c.Command("sh", "-c", `seq `+strconv.Itoa(n)+` | xargs -P4 -I{} sbatch -Q -J {} -n1 -t5 -o /dev/null --wrap "exit 0"`))
}

// road measures what the road allows.
func road(b *testing.B, c *emulate.Cluster, n int) {
	e := connect(b, c)
	submitMany(b, c, n)
	l, err := e.Jobs(context.Background(), 0, nil)
	if err != nil {
		b.Fatal(err)
	}
	work := make(chan slurm.Place)
	var wait sync.WaitGroup
	began := time.Now()
	for range 4 {
		wait.Go(func() {
			for p := range work {
				if err := e.Place(context.Background(), p); err != nil {
					b.Error(err)
				}
			}
		})
	}
	sent := 0
	for i, j := range l.Jobs {
		if j.Held && j.State == "PENDING" {
			sent++
			work <- slurm.Place{Job: slurm.Ref{ID: j.ID}, Nodes: []string{c.Nodes[i%128]}, Comment: "muster:req was=- muster:got 0 " + strconv.FormatUint(j.ID, 10) + " nodes=" + c.Nodes[i%128] + " rgpu=- grant=- why=it was its turn"}
		}
	}
	close(work)
	wait.Wait()
	b.ReportMetric(float64(sent)/time.Since(began).Seconds(), "road/s")
	drained(b, c)
}

func drained(b *testing.B, c *emulate.Cluster) {
	patiently(b, "Slurm is empty", func() bool { return output(b, c.Command("squeue", "-h")) == "" })
}

// counting counts placements and the time that they take.
type counting struct {
	driver.Engine
	mu          sync.Mutex
	n           int
	first, last time.Time
	nodes       map[string]string // by job
}

func (e *counting) Place(ctx context.Context, p slurm.Place) error {
	e.mu.Lock()
	if e.n++; e.first.IsZero() {
		e.first = time.Now()
	}
	e.mu.Unlock()
	err := e.Engine.Place(ctx, p)
	e.mu.Lock()
	e.last = time.Now()
	if err == nil {
		e.nodes[p.Job.String()] = strings.Join(p.Nodes, ",")
	}
	e.mu.Unlock()
	return err
}

// driverBurst measures the driver, and checks every job.
func driverBurst(b *testing.B, c *emulate.Cluster, n int) {
	rate, nodes := 0.0, map[string]string{}
	for done := 0; done < n; done += 1000 {
		submitMany(b, c, 1000)
		e := &counting{Engine: connect(b, c), nodes: nodes}
		d, err := driver.New(e, driver.Config{Spec: "easy", Policy: catalog.New, Core: slurm.Config{Settle: 1}})
		if err != nil {
			b.Fatal(err)
		}
		began := time.Now()
		d.Round(context.Background())
		b.Logf("%d placed in %s, of which reading and deciding took %s", e.n, time.Since(began), e.first.Sub(began))
		rate += float64(e.n) / e.last.Sub(e.first).Seconds()
		ctx, cancel := context.WithCancel(context.Background())
		wait := make(chan error)
		go func() { wait <- d.Run(ctx) }()
		drained(b, c)
		cancel()
		<-wait
	}
	checked, wrong := checkRecords(b, c, nodes)
	b.ReportMetric(rate/float64((n+999)/1000), "driver/s")
	b.ReportMetric(float64(checked), "checked")
	b.ReportMetric(float64(wrong), "wrong")
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
		if !placed {
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

// patiently is eventually for what takes minutes where a machine has few processors.
func patiently(b *testing.B, what string, is func() bool) {
	b.Helper()
	for deadline := time.Now().Add(5 * time.Minute); !is(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.Fatalf("waited in vain: %s", what)
		}
	}
}
