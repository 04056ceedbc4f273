package stack

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"muster/internal/seeds"
	"muster/model"
	"muster/slurm/emulate"
	"muster/slurm/release"
)

// Everything is killed at random while jobs borrow: slurmctld, slurmds, whole nodes, slurmrestd,
// the driver and lenders, on each release. No job is lost, no node and no GPU is given out twice,
// and in the end nothing is held.
func TestSlurmKillsUnderLoad(t *testing.T) {
	needAllSlurms(t)
	for _, r := range release.All() {
		t.Run(r.Name, func(t *testing.T) {
			seed, _ := seeds.First(t)
			newCampaign(t, r, seed).run()
		})
	}
}

// campaign is a cluster of which everything is killed.
type campaign struct {
	*slurmCluster
	random *rand.Rand
	jobs   []*campaignJob
	// lent are all lenders that there were: a node has one after the other.
	lent []namedLender
	// killed are the lenders that were killed, and forgot when slurmctld was.
	killed map[string]bool
	forgot []time.Time
}

type namedLender struct {
	name string
	*theNode
}

// campaignJob is a job that borrows, and what it asks for.
type campaignJob struct {
	id, out string
	gpus    int
	shares  bool
}

const (
	campaignCPUs  = 4 // of each node
	campaignShare = 40
	// campaignPatience is how long Slurm may take to recover what it has forgotten.
	campaignPatience = 4 * time.Minute
)

func newCampaign(t *testing.T, r *release.Release, seed uint64) *campaign {
	// A killed slurmctld considers ended jobs as running until their nodes report: every third of
	// SlurmdTimeout, and not before BatchStartTimeout. Ended jobs must stay known until the end of
	// the test.
	o := emulate.Options{Release: r, Nodes: 8, CPUs: campaignCPUs, Extra: "SlurmdTimeout=30\nBatchStartTimeout=5\nMinJobAge=3600\n"}
	c := &campaign{slurmCluster: newSlurmCluster(t, o, "n6", "n7", "n8"), random: rand.New(rand.NewPCG(seed, 1)), killed: map[string]bool{}}
	for name, n := range c.lenders {
		c.lent = append(c.lent, namedLender{name, n})
	}
	return c
}

// run kills every kind of thing twice while jobs come and go, and looks at what became of all.
func (c *campaign) run() {
	kinds := []func(){c.killController, c.killSlurmd, c.killNode, c.killREST, c.killDriverAgain, c.killLender}
	for range 2 {
		c.random.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
		for _, kill := range kinds {
			for range 3 {
				c.submit()
			}
			c.eventually("some job runs", func() bool { return c.count("RUNNING") > 0 || c.count("PENDING,RUNNING") == 0 })
			c.pause() // the kill may hit anything in progress
			kill()
		}
	}
	c.eventuallyWithin(campaignPatience, "all jobs have ended", func() bool {
		c.hurry()
		return c.count("PENDING,RUNNING,COMPLETING,CONFIGURING,SUSPENDED") == 0
	})
	c.free()
	c.checkJobs()
	c.checkNodes()
	c.checkGPUs()
	if text := c.besides("slurm", "status", "--socket", filepath.Join(c.dir, "driver.sock")); !strings.Contains(text, "jobs have borrowed 0") {
		c.Errorf("muster slurm status says %s", text)
	}
}

// pause waits for some part of a second.
func (c *campaign) pause() {
	time.Sleep(time.Duration(c.random.IntN(600)) * time.Millisecond)
}

// eventuallyWithin is eventually with another patience.
func (c *campaign) eventuallyWithin(limit time.Duration, what string, is func() bool) {
	c.Helper()
	for end := time.Now().Add(limit); !is(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			c.Fatalf("not within %v: %s\n%s", limit, what, c.must("squeue", "-t", "all"))
		}
	}
}

// submit submits a job that uses its GPUs twice, with a pause. What it writes on its first line tells which
// they are; a job that Slurm starts again writes more.
func (c *campaign) submit() {
	c.Helper()
	j := &campaignJob{gpus: 1 + c.random.IntN(2), shares: c.random.IntN(4) == 0}
	ask := fmt.Sprintf("--rgpu=%d", j.gpus)
	if j.shares {
		j.gpus = 1
		ask = fmt.Sprintf("--rgpu=1:%dM", campaignShare)
	}
	script := fmt.Sprintf("echo has $RCUDA_DEVICE_0 $RCUDA_DEVICE_1\n%s sums || exit\nsleep 0.%d\nexec %s sums", made("small"), c.random.IntN(10), made("small"))
	c.eventually("a job is submitted", func() bool { // slurmctld may be on its way back
		var err error
		nodes := 1 + c.random.IntN(2)
		j.id, j.out, err = c.trySbatch(script, ask, "--requeue", "--open-mode=append", "-t1", fmt.Sprintf("-N%d", nodes), fmt.Sprintf("-n%d", nodes*(1+c.random.IntN(2))))
		return err == nil
	})
	c.jobs = append(c.jobs, j)
}

// count is how many jobs are in some states; all are if slurmctld does not answer.
func (c *campaign) count(states string) int {
	out, err := c.try("squeue", "-h", "-t", states, "-o", "%i")
	if err != nil {
		return len(c.jobs)
	}
	return len(strings.Fields(out))
}

// hurry lets requeued jobs go at once: Slurm would wait two minutes.
func (c *campaign) hurry() {
	out, err := c.try("squeue", "-h", "-t", "PENDING", "-o", "%i %S %r")
	if err != nil {
		return
	}
	for line := range strings.Lines(out) {
		if id, rest, _ := strings.Cut(strings.TrimSpace(line), " "); !strings.HasPrefix(rest, "N/A") {
			_, _ = c.try("scontrol", "update", "JobId="+id, "StartTime=now")
		}
	}
}

// killDaemon kills one of Slurm's daemons and starts it again.
func (c *campaign) killDaemon(name string) {
	c.Helper()
	c.note("the daemon " + name)
	err := c.slurm.Kill(name)
	c.pause()
	if err := errors.Join(err, c.slurm.Restart(name)); err != nil {
		c.Fatal(name, err)
	}
}

// killController kills slurmctld. It forgets what it has not saved, and Slurm itself loses jobs
// that it never saved, so this waits until it has saved.
func (c *campaign) killController() {
	c.Helper()
	submitted := time.Now()
	c.eventually("slurmctld has written down all jobs", func() bool {
		info, err := os.Stat(filepath.Join(c.slurm.Folder, "state", "job_state"))
		return err == nil && info.ModTime().After(submitted)
	})
	c.forgot = append(c.forgot, time.Now())
	c.killDaemon("slurmctld")
}

func (c *campaign) killREST()   { c.killDaemon("slurmrestd") }
func (c *campaign) killSlurmd() { c.killDaemon(fmt.Sprintf("n%d", 1+c.random.IntN(8))) }

// note says what is killed when, for those who look for the reason of a failure.
func (c *campaign) note(what string) {
	c.Logf("%s: %s is killed", time.Now().UTC().Format("15:04:05.000"), what)
}

// killNode kills everything on a node, for long enough that Slurm notices. If the node is back
// sooner, Slurm 22.05 considers its jobs as running until their time limit.
func (c *campaign) killNode() {
	c.Helper()
	name := fmt.Sprintf("n%d", 1+c.random.IntN(5))
	c.note("node " + name)
	if err := c.slurm.KillNode(name); err != nil {
		c.Fatal(name, err)
	}
	c.eventually("Slurm notices that the node has failed", func() bool {
		_, err := c.try("scontrol", "update", "NodeName="+name, "State=DOWN", "Reason=killed")
		return err == nil
	})
	c.pause()
	if err := c.slurm.Restart(name); err != nil {
		c.Fatal(name, err)
	}
}

func (c *campaign) killDriverAgain() {
	c.note("the driver")
	c.killDriver()
	c.pause()
	c.drive()
}

func (c *campaign) killLender() {
	c.Helper()
	name := fmt.Sprintf("n%d", 6+c.random.IntN(3))
	c.note("the lender " + name)
	c.killed[name] = true
	c.lenders[name].kill()
	c.pause()
	c.lend(name)
	c.lent = append(c.lent, namedLender{name, c.lenders[name]})
}

// checkJobs checks that no job is lost: each has computed its result, unless a lender of its GPUs
// was killed, or slurmctld before it had told the node.
func (c *campaign) checkJobs() {
	c.Helper()
	for _, j := range c.jobs {
		text, _ := os.ReadFile(j.out)
		if strings.Count(string(text), "right") >= 2 {
			continue
		}
		state := c.state(j.id)
		if state == "FAILED" && c.hadKilledLender(string(text)) || state == "TIMEOUT" && len(text) == 0 && c.neverLaunched(j.id) {
			continue
		}
		c.Errorf("job %s is %s: %s\n%s", j.id, state, text, c.must("scontrol", "show", "job", j.id))
	}
}

// neverLaunched says whether slurmctld was killed just after it had started a job: it may have
// saved that without telling the node. Slurm then considers the job as running until its time
// limit.
func (c *campaign) neverLaunched(id string) bool {
	command := c.slurm.Command("squeue", "-h", "-j", id, "-t", "all", "-o", "%S")
	command.Env = append(os.Environ(), "SLURM_TIME_FORMAT=%s")
	out, err := command.Output()
	seconds, err2 := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	if err := errors.Join(err, err2); err != nil {
		c.Fatalf("when job %s was started: %v", id, err)
	}
	start := time.Unix(seconds, 0)
	return slices.ContainsFunc(c.forgot, func(at time.Time) bool { return at.Sub(start).Abs() < 2*time.Second })
}

// hadKilledLender says whether a job had a GPU of a node whose lender was killed, or could not have it.
func (c *campaign) hadKilledLender(text string) bool {
	for name := range c.killed {
		if strings.Contains(text, " "+name+":") { // "has n6:0", "muster: the job's GPUs: node n6: ..."
			return true
		}
	}
	return false
}

// stay is the time of a job on its nodes, as Slurm has recorded it, in seconds.
type stay struct {
	job        string
	nodes      []string
	cpus       int // of each node
	start, end int64
}

// checkNodes looks in Slurm's record of ended jobs whether a node had more jobs than processors at any time.
func (c *campaign) checkNodes() {
	c.Helper()
	text, err := os.ReadFile(c.slurm.JobCompletions())
	if err != nil {
		c.Fatal(err)
	}
	stays := map[string]stay{}
	for line := range strings.Lines(string(text)) {
		s, ok := readStay(line)
		if !ok {
			continue
		}
		// Slurm records a job again whose end it had forgotten: it ended when it was recorded first.
		key := fmt.Sprint(s.job, " ", s.start)
		if was, known := stays[key]; !known || s.end < was.end {
			stays[key] = s
		}
	}
	if len(stays) < len(c.jobs)/2 {
		c.Errorf("Slurm has recorded %d of %d jobs:\n%s", len(stays), len(c.jobs), text)
	}
	for _, s := range stays {
		for _, node := range s.nodes {
			used := 0
			for _, other := range stays {
				if other.start <= s.start && s.start < other.end && slices.Contains(other.nodes, node) {
					used += other.cpus
				}
			}
			if used > campaignCPUs {
				c.Errorf("node %s has %d processors in use when job %s starts:\n%s", node, used, s.job, text)
			}
		}
	}
}

// readStay reads a line of JobCompType=jobcomp/filetxt; false if the job never ran.
func readStay(line string) (s stay, ok bool) {
	words := map[string]string{}
	for word := range strings.FieldsSeq(line) {
		key, value, _ := strings.Cut(word, "=")
		words[key] = value
	}
	start, err1 := time.Parse("2006-01-02T15:04:05", words["StartTime"])
	end, err2 := time.Parse("2006-01-02T15:04:05", words["EndTime"])
	nodes, err3 := model.ExpandNodes(words["NodeList"])
	cpus, err4 := strconv.Atoi(words["ProcCnt"])
	if errors.Join(err1, err2, err3, err4) != nil || len(nodes) == 0 {
		return s, false
	}
	return stay{job: words["JobId"], nodes: nodes, cpus: cpus / len(nodes), start: start.Unix(), end: end.Unix()}, true
}

// checkGPUs looks in the lenders' logs whether a GPU was lent to more jobs at a time than it can serve: to one,
// or to several that share it.
func (c *campaign) checkGPUs() {
	c.Helper()
	shares := map[string]bool{}
	for _, j := range c.jobs {
		shares[j.id] = j.shares
	}
	lent := 0
	for _, n := range c.lent {
		has := map[string]bool{}
		for line := range strings.Lines(n.log.String()) {
			var entry struct{ Msg, Grant string }
			if json.Unmarshal([]byte(line), &entry) != nil {
				continue
			}
			switch entry.Msg {
			case "a grant was admitted":
				lent++
				has[entry.Grant] = true
			case "a grant has ended":
				delete(has, entry.Grant)
			}
			whole := 0
			for id := range has {
				if job, _, _ := strings.Cut(strings.TrimPrefix(id, "slurm-"), "-"); !shares[job] {
					whole++
				}
			}
			if whole > 1 || whole == 1 && len(has) > 1 {
				c.Fatalf("the GPU of node %s is lent to %v: %s", n.name, has, line)
			}
		}
	}
	if lent < len(c.jobs) {
		c.Errorf("%d grants for %d jobs", lent, len(c.jobs))
	}
}
