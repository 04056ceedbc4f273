package driver_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muster/model"
	"muster/node/gateway"
	"muster/policy/catalog"
	"muster/slurm"
	"muster/slurm/driver"
	"muster/slurm/engine"
	"muster/slurm/lenders"
	"muster/slurm/lenders/lenderstest"
	"muster/wire/agent"
	"muster/wire/client"
	"muster/wire/grant"
)

// borrowing is a Slurm of two nodes, the second of which lends a GPU, and one job that borrows it.
type borrowing struct {
	stub
	t    *testing.T
	dir  string
	now  time.Time
	jobs sync.Mutex
	job  slurm.Job
	// authority is a certificate.
	authority string
	// lose is the answer to placements that are not carried out; nil carries them out.
	lose error
}

func (b *borrowing) Jobs(context.Context, int64, map[string]int) (engine.Listing, error) {
	b.jobs.Lock()
	defer b.jobs.Unlock()
	if b.job.ID == 0 {
		return engine.Listing{Jobs: []slurm.Job{}}, nil
	}
	return engine.Listing{Jobs: []slurm.Job{b.job}}, nil
}

func (b *borrowing) Nodes(context.Context) ([]slurm.Node, error) {
	return []slurm.Node{{Name: "n1", CPUs: 4, Memory: 1 << 30, Threads: 1, States: []string{"IDLE"}}, {Name: "n2", CPUs: 4, Memory: 1 << 30, Threads: 1, States: []string{"IDLE"}}}, nil
}

func (b *borrowing) Partitions(context.Context) ([]slurm.Partition, error) {
	return []slurm.Partition{{Name: "main", Nodes: "n[1-2]", Up: true}}, nil
}

func (b *borrowing) Place(_ context.Context, p slurm.Place) error {
	b.jobs.Lock()
	defer b.jobs.Unlock()
	if b.lose == nil {
		b.job.Held, b.job.Required, b.job.AdminComment, b.job.Reason = false, strings.Join(p.Nodes, ","), p.Comment, "None"
	}
	return b.lose
}

// start starts a driver, as after another was killed. It returns a function that does a round, some
// seconds after the last one.
func (b *borrowing) start() (l *lenders.Lenders, round func()) {
	b.t.Helper()
	l, err := lenders.Listen(lenders.Config{Address: "unix:" + filepath.Join(b.dir, "s"), Cluster: "slurm"})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(l.Close)
	d, err := driver.New(b, driver.Config{Spec: "easy", Policy: catalog.New, Now: func() time.Time { return b.now },
		Lending: &driver.Lending{Nodes: l, Folder: filepath.Join(b.dir, "grants"), Authority: b.authority}})
	if err != nil {
		b.t.Fatal(err)
	}
	return l, func() {
		b.now = b.now.Add(4 * time.Second)
		d.Round(b.t.Context())
	}
}

func newBorrowing(t *testing.T) *borrowing {
	b := &borrowing{t: t, dir: t.TempDir(), now: time.Unix(1_800_000_000, 0)}
	b.job = slurm.Job{ID: 17, User: "ann", UID: os.Getuid(), Partition: "main", State: "PENDING", Held: true, Reason: "JobHeldUser",
		AdminComment: "muster:req rgpu=1 mem=512M", MinNodes: 1, MaxNodes: 1, CPUs: 1, Tasks: 1, Required: "n1"}
	_, _, err := gateway.OpenAuthority(b.dir, time.Now())
	var text []byte
	if err == nil {
		text, err = os.ReadFile(filepath.Join(b.dir, client.FileCA))
	}
	if err == nil {
		err = os.Mkdir(filepath.Join(b.dir, "grants"), 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	b.authority = string(text)
	return b
}

func (b *borrowing) file() string { return filepath.Join(b.dir, "grants", "17.0", "n1") }

func connected(t *testing.T, l *lenders.Lenders) {
	eventually(t, "the node is there", func() bool { n, _ := l.Nodes(); return len(n) == 1 })
}

// lends answers the driver's requests to a node while the driver makes a round.
func lends(n *lenderstest.Node, round func(), want string) {
	done := make(chan struct{})
	go func() { round(); close(done) }()
	n.Hears(want)
	n.Say(agent.Lent{ID: strings.TrimPrefix(want, "lend ")})
	<-done
}

// Only the job's user can read its grant, which names the share; when the job has ended, the grant
// is taken back.
func TestGrantIsGivenAndTakenBack(t *testing.T) {
	b := newBorrowing(t)
	l, round := b.start()
	n := lenderstest.Greet(t, l.Address(), "n2")
	connected(t, l)
	round()
	lends(n, round, "lend slurm-17-0-0")
	text, err := os.ReadFile(b.file())
	if err != nil {
		t.Fatal(err)
	}
	g, err := grant.Decode(text)
	if err != nil || len(g.Devices) != 1 || g.Devices[0] != (grant.Device{Node: "n2", Address: "n2:9421", Memory: 512 << 20, Reach: model.ReachNode}) || g.User != "ann" || g.Authority != b.authority {
		t.Errorf("the grant is %+v, %v", g, err)
	}
	for path, mode := range map[string]os.FileMode{b.file(): 0o600, filepath.Dir(b.file()): 0o700 | os.ModeDir} {
		if info, err := os.Stat(path); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	if !strings.Contains(b.job.AdminComment, "nodes=n1 rgpu=n2:0 grant="+filepath.Dir(b.file())+" ") {
		t.Errorf("the comment is %q", b.job.AdminComment)
	}
	b.job.State = "FAILED"
	round()
	n.Hears("unlend slurm-17-0-0")
	if _, err := os.Stat(filepath.Dir(b.file())); err == nil {
		t.Error("the grant is still there")
	}
}

// greetHome connects the job's node, which has no GPU.
func greetHome(t *testing.T, l *lenders.Lenders) *lenderstest.Node {
	n := lenderstest.Dial(t, l.Address())
	n.Say(agent.Hello{Version: agent.Version, Node: "n1", Incarnation: "x", Cores: 1, Memory: 1 << 30})
	n.Hears("welcome")
	return n
}

// The job's own node has the GPU as its own: it is told when the node that lends has confirmed, and Slurm after that.
// If it cannot have the GPU, the job starts all the same. The loans end with the job, and a driver that is started
// meanwhile does not take an address from what the job's user wrote.
func TestHomeHasWhatOthersLend(t *testing.T) {
	for _, refusal := range []string{"", "there is no swap space"} {
		b := newBorrowing(t)
		l, round := b.start()
		n, home := lenderstest.Greet(t, l.Address(), "n2"), greetHome(t, l)
		eventually(t, "both nodes are there", func() bool { n, _ := l.Nodes(); return len(n) == 2 })
		round()
		done := make(chan struct{})
		go func() { round(); close(done) }()
		n.Hears("lend slurm-17-0-0")
		n.Say(agent.Lent{ID: "slurm-17-0-0"})
		loan := home.Hear().(agent.Lend).Loan
		if loan.Home != "n1" || loan.Authority != b.authority || len(loan.Devices) != 1 || loan.Devices[0].Address != "n2:9421" || loan.Secret.Hash() != loan.Hash {
			t.Errorf("the home is told %+v", loan)
		}
		home.Say(agent.Lent{ID: "slurm-17-0-0", Error: refusal})
		<-done
		if b.job.Held {
			t.Errorf("%q: the job was not placed", refusal)
		}
		if got := l.Lent("n1"); len(got) == 1 != (refusal == "") {
			t.Errorf("%q: the home has %q", refusal, got)
		}
		if refusal != "" {
			continue
		}
		l.Close()
		text, err := os.ReadFile(b.file())
		if err == nil {
			err = os.WriteFile(b.file(), []byte(strings.Replace(string(text), "n2:9421", "evil:22", 1)), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		b.job.State, b.job.Nodes, b.job.Uses = "RUNNING", "n1", []slurm.Use{{Node: "n1", CPUs: 1}}
		l, round = b.start()
		n, home = lenderstest.Greet(t, l.Address(), "n2"), greetHome(t, l)
		eventually(t, "both nodes are there", func() bool { n, _ := l.Nodes(); return len(n) == 2 })
		round()
		round()
		n.Hears("lend slurm-17-0-0")
		if again := home.Hear().(agent.Lend).Loan; again.Devices[0].Address != "n2:9421" {
			t.Errorf("the home is told of %s", again.Devices[0].Address)
		}
		b.job.State = "COMPLETED"
		round()
		n.Hears("unlend slurm-17-0-0")
		home.Hears("unlend slurm-17-0-0")
	}
}

// slurmctld is killed and forgets that a job has run and ended. Slurm will start it again where it
// was placed, so it must have its grant again.
func TestForgottenEndLendsAgain(t *testing.T) {
	b := newBorrowing(t)
	l, round := b.start()
	n := lenderstest.Greet(t, l.Address(), "n2")
	connected(t, l)
	round()
	lends(n, round, "lend slurm-17-0-0")
	placed := b.job
	b.job.State = "COMPLETED"
	round()
	n.Hears("unlend slurm-17-0-0")
	b.job = placed
	round()
	n.Hears("lend slurm-17-0-0")
	if text, err := os.ReadFile(b.file()); err != nil || !strings.Contains(string(text), "n2:9421") {
		t.Errorf("its grant is %s, %v", text, err)
	}
	b.job.State = "COMPLETED"
	round()
	n.Hears("unlend slurm-17-0-0")
	if _, err := os.Stat(filepath.Dir(b.file())); err == nil {
		t.Error("the grant is still there")
	}
}

// A driver is killed after it has lent and before Slurm was told: the next one takes the loan back,
// once it knows that Slurm was not told.
func TestKilledBetweenLendingAndPlacing(t *testing.T) {
	b := newBorrowing(t)
	l, round := b.start()
	n := lenderstest.Greet(t, l.Address(), "n2")
	connected(t, l)
	b.lose = engine.ErrUnknown
	round()
	lends(n, round, "lend slurm-17-0-0")
	l.Close() // killed, and another before it while it wrote a grant
	half := filepath.Join(b.dir, "grants", ".new-16.0")
	if err := os.Mkdir(half, 0o700); err != nil {
		t.Fatal(err)
	}
	b.job.Reason = "JobHeldAdmin"
	l, round = b.start()
	n = lenderstest.Greet(t, l.Address(), "n2", "slurm-17-0-0")
	connected(t, l)
	round()
	if _, err := os.Stat(b.file()); err != nil {
		t.Errorf("the request of the driver before may still be under way: %v", err)
	}
	round()
	n.Hears("unlend slurm-17-0-0")
	for _, path := range []string{filepath.Dir(b.file()), half} {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s is still there", path)
		}
	}
}

// The grant says what the job's user asked for.
func TestTermsOfAGrant(t *testing.T) {
	for terms, want := range map[string]grant.Device{
		"mem=512M reach=device beyond=all map=ag": {Memory: 512 << 20, Beyond: model.AllBeyond},
		"mem=512M reach=cluster beyond=2M":        {Memory: 512 << 20, Reach: model.ReachCluster, Beyond: 2 << 20},
		"":                                        {Reach: model.ReachNode},
		"mem=512M mode=excl beyond=2M":            {Reach: model.ReachNode},
	} {
		b := newBorrowing(t)
		b.job.AdminComment = strings.TrimSpace("muster:req rgpu=1 " + terms)
		l, round := b.start()
		n := lenderstest.Greet(t, l.Address(), "n2")
		connected(t, l)
		round()
		lends(n, round, "lend slurm-17-0-0")
		text, err := os.ReadFile(b.file())
		if err != nil {
			t.Fatal(err)
		}
		want.Node, want.Address = "n2", "n2:9421"
		if g, err := grant.Decode(text); err != nil || g.Devices[0] != want {
			t.Errorf("%s: %+v, %v", terms, g, err)
		}
	}
}

// If the driver is killed later, the next one renews what a node has forgotten, but not what the
// job's user has written into the grant. A grant that says less than the job may have is renewed: drivers before
// those of which grants have a reach wrote none.
func TestNextDriverLendsAgain(t *testing.T) {
	for _, c := range []struct {
		was, is string
		lent    bool
	}{
		{"", "", true}, {`"reach": "node",`, "", true}, {"1048576", "1048575", true},
		{"536870912", "1073741824", false}, {"536870912", "268435456", false}, {`"node",`, `"cluster",`, false}, {"1048576", "1048577", false}, {`"limit"`, `"class": "latency", "limit"`, false},
	} {
		was, is, tampered := c.was, c.is, !c.lent
		b := newBorrowing(t)
		b.job.AdminComment += " beyond=1M"
		l, round := b.start()
		n := lenderstest.Greet(t, l.Address(), "n2")
		connected(t, l)
		round()
		lends(n, round, "lend slurm-17-0-0")
		l.Close()
		if was != "" {
			text, err := os.ReadFile(b.file())
			if err == nil {
				err = os.WriteFile(b.file(), []byte(strings.Replace(string(text), was, is, 1)), 0o600)
			}
			if err != nil || !strings.Contains(string(text), was) {
				t.Fatalf("%v: no %s in %s", err, was, text)
			}
		}
		b.job.State, b.job.Nodes, b.job.Uses = "RUNNING", "n1", []slurm.Use{{Node: "n1", CPUs: 1}}
		l, round = b.start()
		n = lenderstest.Greet(t, l.Address(), "n2")
		connected(t, l)
		round()
		round()
		if tampered {
			if got := l.Lent("n2"); len(got) > 0 {
				t.Errorf("%s became %s, and is lent: %q", was, is, got)
			}
			continue
		}
		n.Hears("lend slurm-17-0-0")
		b.job.State = "COMPLETED"
		round()
		n.Hears("unlend slurm-17-0-0")
	}
}

// A job's user who copies the grant, under other names and with other secrets, gets no second share
// from the next driver; and pipes in the folder do not block the driver.
func TestCopiesOfAGrantAreNotLent(t *testing.T) {
	b := newBorrowing(t)
	l, round := b.start()
	n := lenderstest.Greet(t, l.Address(), "n2")
	connected(t, l)
	round()
	lends(n, round, "lend slurm-17-0-0")
	l.Close()
	text, err := os.ReadFile(b.file())
	var g *grant.Grant
	if err == nil {
		g, err = grant.Decode(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	g.ID, g.Secret = "slurm-17-0-1", grant.NewCredential()
	copied, err := g.Encode()
	if err == nil {
		err = os.WriteFile(filepath.Join(filepath.Dir(b.file()), "n3"), copied, 0o600)
	}
	pipe := filepath.Join(filepath.Dir(b.file()), "n0")
	if err == nil {
		err = syscall.Mkfifo(pipe, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	b.job.State, b.job.Nodes, b.job.Uses = "RUNNING", "n1", []slurm.Use{{Node: "n1", CPUs: 1}}
	l, round = b.start()
	lenderstest.Greet(t, l.Address(), "n2")
	connected(t, l)
	round()
	round()
	if got := l.Lent("n2"); !slices.Equal(got, []string{"slurm-17-0-0"}) {
		t.Errorf("lent: %q", got)
	}
}

// If something cannot be lent, the reason is shown, and the job stays held.
func TestNotLent(t *testing.T) {
	b := newBorrowing(t)
	l, round := b.start()
	n := lenderstest.Greet(t, l.Address(), "n2")
	connected(t, l)
	round()
	done := make(chan struct{})
	go func() { round(); close(done) }()
	n.Hears("lend slurm-17-0-0")
	n.Say(agent.Lent{ID: "slurm-17-0-0", Error: "512 MiB of device 0 cannot be granted"})
	<-done
	if !b.job.Held {
		t.Error("the job was released without its GPU")
	}
	if _, err := driver.New(b, driver.Config{Spec: "easy", Policy: catalog.New, Lending: &driver.Lending{Nodes: l, Folder: "/nonexistent"}}); err == nil || !strings.Contains(err.Error(), "make it, on a file system that all nodes share") {
		t.Errorf("a folder that is not there: %v", err)
	}
}
