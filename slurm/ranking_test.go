package slurm_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"muster/policy/catalog"
	"muster/policy/priority"
	"muster/slurm"
	"muster/slurm/release"
)

// siteText is what scontrol show config of 26.05 prints, shortened.
const siteText = `Configuration data as of 2026-11-16T18:44:00
AccountingStorageType   = accounting_storage/slurmdbd
DefMemPerNode           = UNLIMITED
PreemptMode             = REQUEUE
PreemptType             = preempt/qos
PrioritySiteFactorPlugin = (null)
PriorityCalcPeriod      = 00:05:00
PriorityFavorSmall      = no
PriorityFlags           = ACCRUE_ALWAYS,SMALL_RELATIVE_TO_TIME
PriorityMaxAge          = 7-00:00:00
PriorityType            = priority/multifactor
PriorityWeightAge       = 1000
PriorityWeightAssoc     = 0
PriorityWeightFairShare = 10000
PriorityWeightJobSize   = 800
PriorityWeightPartition = 300
PriorityWeightQOS       = 2000
PriorityWeightTRES      = CPU=400,Mem=100,billing=7
SelectType              = select/cons_tres
SelectTypeParameters    = CR_CORE_MEMORY
SLURM_VERSION           = 26.05.5
`

func TestReadSite(t *testing.T) {
	s, err := slurm.ReadSite(siteText)
	if err != nil {
		t.Fatal(err)
	}
	p := s.Priority
	if s.Version != "26.05.5" || !s.Memory || s.DefaultMemory || s.WholeNodes || !s.Accounting || !s.AgeFromSubmission || s.PreemptType != "qos" || s.PreemptMode != "requeue" {
		t.Errorf("%+v", s)
	}
	if p == nil || p.WeightAge != 1000 || p.WeightFairshare != 10000 || p.WeightJobSize != 800 || p.WeightPartition != 300 || p.WeightQOS != 2000 ||
		p.WeightTRES != (priority.Weights{CPU: 400, Mem: 100}) || p.MaxAge != 7*24*time.Hour || p.CalcPeriod != 5*time.Minute || p.FavorSmall {
		t.Errorf("%+v", p)
	}
	if want := []string{"PriorityWeightTRES billing", "PriorityFlags=SMALL_RELATIVE_TO_TIME"}; !slices.Equal(s.Ignored, want) {
		t.Errorf("ignored: %q", s.Ignored)
	}
	for _, wrong := range []string{"PriorityMaxAge=soon", "PriorityWeightAge=much", "PriorityWeightTRES=CPU=-1"} {
		key, _, _ := strings.Cut(wrong, "=")
		if _, err := slurm.ReadSite("PriorityType=priority/multifactor\n" + wrong); err == nil {
			t.Errorf("%s was taken", key)
		}
	}
	basic, err := slurm.ReadSite("PriorityType=priority/basic\nDefMemPerCPU=100\nSelectType=select/linear")
	if err != nil || basic.Priority != nil || !basic.DefaultMemory || !basic.WholeNodes {
		t.Errorf("%+v, %v", basic, err)
	}
}

// ranked is a core of a site with priorities, with one node, all of which a job has.
func ranked(t *testing.T, f *fake) *slurm.Core {
	t.Helper()
	site, err := slurm.ReadSite(siteText)
	if err != nil {
		t.Fatal(err)
	}
	site.Memory = false
	p, err := catalog.New("fcfs")
	if err != nil {
		t.Fatal(err)
	}
	cfg := slurm.Config{Settle: time.Millisecond}
	cfg.Follow(site, release.Newest())
	f.submit("", 1, 4, 10*time.Second)
	f.tick(time.Second)
	return slurm.New(cfg, p)
}

// rankedPicture has a second partition, and the answers of the database.
func rankedPicture(f *fake) *slurm.Picture {
	p := f.picture()
	p.Partitions = []slurm.Partition{{Name: "main", Nodes: "n1", Up: true, Factor: 1}, {Name: "high", Nodes: "n1", Up: true, Factor: 10}}
	p.Accounting = &slurm.Accounting{QOS: []priority.QOS{{Name: "normal"}, {Name: "urgent", Priority: 10}},
		Shares: map[priority.Member]float64{{Account: "physics", User: "bob"}: 0.9, {Account: "physics", User: "ann"}: 0.1}}
	return p
}

// Held jobs have no priority in Slurm: they start in the order that Slurm's priorities would give,
// from partition, QOS, fair share and nice value.
func TestHeldJobsAreRanked(t *testing.T) {
	f := newFake(t, 1, 1, 4, 0)
	c := ranked(t, f)
	type change func(*slurm.Job)
	want := map[string]int64{}
	for _, x := range []struct {
		name     string
		priority int64 // of size 800 x 1, CPU 400 x 1, Mem 100 x 1: 1,300
		do       change
	}{
		{"plain", 1330, func(*slurm.Job) {}},
		{"nice", 1320, func(j *slurm.Job) { j.Nice = 10 }},
		{"partition", 1600, func(j *slurm.Job) { j.Partition = "high" }},
		{"urgent", 3330, func(j *slurm.Job) { j.QOS = "urgent" }},
		{"little", 2330, func(j *slurm.Job) { j.Account = "physics" }},
		{"share", 10330, func(j *slurm.Job) { j.Account, j.User = "physics", "bob" }},
		{"old", 1830, func(j *slurm.Job) { j.Submitted -= 84 * time.Hour }},
	} {
		j := f.submit("muster:req", 1, 4, time.Second)
		j.Name = x.name
		x.do(&j.Job)
		want[x.name] = x.priority
	}
	var started []string
	for round := range 60 {
		p := rankedPicture(f)
		c.Observe(f.now, p)
		c.Step(f.now)
		if round == 1 {
			for _, j := range c.Status(100).Jobs {
				if j.Priority != want[j.Name] {
					t.Errorf("job %s has priority %d, want %d", j.Name, j.Priority, want[j.Name])
				}
			}
		}
		e := c.Take()
		for _, p := range e.Places {
			started = append(started, f.jobs[p.Job.ID].Name)
		}
		f.perform(c, e, false)
		f.tick(500 * time.Millisecond)
	}
	if got := strings.Join(started, " "); got != "share urgent little old partition plain nice" {
		t.Errorf("started: %s", got)
	}
}

// Changes while jobs wait count: a nice value at once, fair shares when Slurm has computed them.
func TestRanksFollow(t *testing.T) {
	f := newFake(t, 1, 1, 4, 0)
	c := ranked(t, f)
	a, b := f.submit("muster:req", 1, 4, time.Second), f.submit("muster:req", 1, 4, time.Second)
	b.Account, b.User = "physics", "ann"
	see := func(shares float64) (x, y int64) {
		p := rankedPicture(f)
		p.Accounting.Shares = map[priority.Member]float64{{Account: "physics", User: "ann"}: shares}
		c.Observe(f.now, p)
		c.Step(f.now)
		x, _ = c.Priority(a.ID)
		y, _ = c.Priority(b.ID)
		f.now += 10 * time.Millisecond
		return x, y
	}
	see(0.5)
	if x, y := see(0.5); x != 1330 || y != 6330 {
		t.Errorf("at first: %d and %d", x, y)
	}
	a.Nice = -100
	if x, y := see(0.5); x != 1430 || y != 6330 {
		t.Errorf("with another nice value: %d and %d", x, y)
	}
	if x, y := see(0.25); x != 1430 || y != 3830 {
		t.Errorf("with another fair share: %d and %d", x, y)
	}
	a.State, a.Held = "CANCELLED", false
	if x, y := see(0.25); x != 0 || y != 3830 {
		t.Errorf("when one is cancelled: %d and %d", x, y)
	}
}

// No job is told why it waits before the policy has looked at it.
func TestNoReasonBeforeTheFirstStep(t *testing.T) {
	f := newFake(t, 1, 1, 4, 0)
	c := newCore(t, "easy", false)
	f.submit("muster:req", 1, 4, time.Minute)
	f.submit("muster:req", 1, 4, time.Minute)
	c.Observe(f.now, f.picture())
	c.Step(f.now)
	c.Explain(f.now, 50, 0)
	if e := c.Take(); len(e.Comments) != 0 {
		t.Errorf("%+v", e.Comments)
	}
	f.steps(c, 5)
	c.Explain(f.now, 50, 0)
	if e := c.Take(); len(e.Comments) != 1 {
		t.Errorf("later: %+v", e.Comments)
	}
}
