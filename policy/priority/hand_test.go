package priority

import (
	"math"
	"testing"
	"time"
)

const day = 24 * time.Hour

func mustNew(t testing.TB, c Config) *Book {
	t.Helper()
	b, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// used makes a book in which users have used so much, without decay: one core
// for that many seconds each.
func used(t *testing.T, c Config, at time.Duration, usage map[[2]string]int) *Book {
	t.Helper()
	b := mustNew(t, c)
	k := Key(1)
	for who, seconds := range usage {
		must(t, b.Submitted(k, Submission{Account: who[0], User: who[1]}))
		must(t, b.Started(k, 0, TRES{Cores: int64(seconds)}))
		k++
	}
	for k--; k > 0; k-- {
		must(t, b.Gone(k, time.Second))
	}
	b.advance(at)
	return b
}

func line(t *testing.T, b *Book, account, user string) UsageLine {
	t.Helper()
	for _, l := range b.Usage(b.now) {
		if l.Account == account && l.User == user {
			return l
		}
	}
	t.Fatalf("there is no line for user %q in account %q", user, account)
	return UsageLine{}
}

func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if !(math.Abs(got-want) <= within) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// The worked example of Slurm's page on the classic algorithm, recomputed: accounts
// A (40 shares, with B 30 and C 10) and D (60, with E 25 and F 35). The figures of
// the page: 0.408479, 0.022097, 0.125, 0.5, 0.749154. What A and D did not use
// others did, who have no shares.
func TestClassicWorkedExample(t *testing.T) {
	c := Defaults()
	c.Classic, c.DecayHalfLife = true, 0
	c.Accounts = []Account{
		{Name: "A", Shares: 40, Accounts: []Account{
			{Name: "B", Shares: 30, Users: []User{{"user1", 1}}},
			{Name: "C", Shares: 10, Users: []User{{"user2", 1}, {"user3", 1}}},
		}},
		{Name: "D", Shares: 60, Accounts: []Account{
			{Name: "E", Shares: 25, Users: []User{{"user4", 1}}},
			{Name: "F", Shares: 35, Users: []User{{"user5", 1}}},
		}},
		{Name: "others", Shares: 0, Users: []User{{"rest", 1}}},
	}
	b := used(t, c, day, map[[2]string]int{{"B", "user1"}: 200, {"C", "user2"}: 250, {"E", "user4"}: 250, {"others", "rest"}: 300})
	for _, w := range []struct {
		account, user             string
		shares, effective, factor float64
	}{
		{"B", "user1", 0.30, 0.3875, 0.408479}, {"C", "user2", 0.05, 0.275, 0.022097}, {"C", "user3", 0.05, 0.15, 0.125},
		{"E", "user4", 0.25, 0.25, 0.5}, {"F", "user5", 0.35, 0.1458333333, 0.749154},
	} {
		l := line(t, b, w.account, w.user)
		near(t, w.user+"'s share", l.NormShares, w.shares, 1e-12)
		near(t, w.user+"'s effective usage", l.Effective, w.effective, 1e-9)
		near(t, w.user+"'s factor", l.FairShare, w.factor, 1e-6)
	}
	near(t, "account B's effective usage", line(t, b, "B", "").Effective, 0.3875, 1e-12)
	if f := line(t, b, "others", "rest").FairShare; f != 0 {
		t.Errorf("a user without shares has factor %v, want 0", f)
	}
}

// Usage of twice the share gives a quarter; a dampening factor of 2 makes it a half.
func TestClassicDampening(t *testing.T) {
	c := Defaults()
	c.Classic, c.DecayHalfLife = true, 0
	c.Accounts = []Account{{Name: "a", Shares: 1, Users: []User{{"x", 1}, {"y", 1}}}}
	usage := map[[2]string]int{{"a", "x"}: 600, {"a", "y"}: 0}
	// The account used all of 1; x used all: its effective usage is 1 + (1-1)/2 = 1, twice its share.
	near(t, "x", line(t, used(t, c, day, usage), "a", "x").FairShare, 0.25, 1e-12)
	c.Dampening = 2
	near(t, "x, dampened", line(t, used(t, c, day, usage), "a", "x").FairShare, 0.5, 1e-12)
}

// Fair tree by hand. Below the root: account p with 60 of 100 shares and 3/4 of the
// usage has level 0.6/0.75 = 0.8; account q 0.4/0.25 = 1.6. So all of q stand before all
// of p, though p's u3 has used nothing. Five users: ranks 5 to 1.
func TestFairTreeByHand(t *testing.T) {
	c := Defaults()
	c.DecayHalfLife = 0
	c.Accounts = []Account{
		{Name: "p", Shares: 60, Users: []User{{"u1", 2}, {"u2", 1}, {"u3", 1}}},
		{Name: "q", Shares: 40, Users: []User{{"u4", 1}, {"u5", 3}}},
	}
	b := used(t, c, day, map[[2]string]int{{"p", "u1"}: 500, {"p", "u2"}: 250, {"q", "u4"}: 50, {"q", "u5"}: 200})
	near(t, "p's level", line(t, b, "p", "").Level, 0.8, 1e-12)
	near(t, "q's level", line(t, b, "q", "").Level, 1.6, 1e-12)
	// In q: u4 0.25/0.2 = 1.25, u5 0.75/0.8 = 0.9375. In p: u3 endless, u1 0.5/(2/3) = 0.75, u2 0.25/(1/3) = 0.75: tied.
	for user, want := range map[string]float64{"u4": 1, "u5": 0.8, "u3": 0.6, "u1": 0.4, "u2": 0.4} {
		account := "p"
		if user == "u4" || user == "u5" {
			account = "q"
		}
		near(t, user, line(t, b, account, user).FairShare, want, 1e-12)
	}
}

// Ties: accounts that are tied are taken for one, and a user tied with an account
// has the rank of the account's best user.
func TestFairTreeTies(t *testing.T) {
	c := Defaults()
	c.DecayHalfLife = 0
	c.Accounts = []Account{
		{Name: "a", Shares: 1, Users: []User{{"a1", 1}, {"a2", 1}}},
		{Name: "b", Shares: 1, Users: []User{{"b1", 1}, {"b2", 1}}},
	}
	// a and b are tied (0.5/0.5), so that their users are compared with each other: a1 0.5/0.75, b2 0.5/0.25, a2 0.5/0.25, b1 0.5/0.75.
	b := used(t, c, day, map[[2]string]int{{"a", "a1"}: 300, {"a", "a2"}: 100, {"b", "b1"}: 300, {"b", "b2"}: 100})
	for _, w := range []struct {
		account, user string
		want          float64
	}{{"a", "a2", 1}, {"b", "b2", 1}, {"a", "a1", 0.5}, {"b", "b1", 0.5}} {
		near(t, w.user, line(t, b, w.account, w.user).FairShare, w.want, 1e-12)
	}
	c.Accounts = []Account{{Name: "top", Shares: 1, Users: []User{{"u", 1}, {"w", 1}},
		Accounts: []Account{{Name: "sub", Shares: 1, Users: []User{{"s1", 1}, {"s2", 1}}}}}}
	// In top: u 100, w 200, sub 100 (s1 30, s2 70). u and sub are tied: u and s1 share rank 4, s2 has 2, w 1.
	b = used(t, c, day, map[[2]string]int{{"top", "u"}: 100, {"top", "w"}: 200, {"sub", "s1"}: 30, {"sub", "s2"}: 70})
	for _, w := range []struct {
		account, user string
		want          float64
	}{{"top", "u", 1}, {"sub", "s1", 1}, {"sub", "s2", 0.5}, {"top", "w", 0.25}} {
		near(t, w.user, line(t, b, w.account, w.user).FairShare, w.want, 1e-12)
	}
}

// A core for a day with a half-life of a day: the mean of 2^-s over 0..1 is 1/(2 ln 2),
// so usage is 86400/(2 ln 2) = 62323.8 s at its end, half of that a day later.
func TestDecayByHand(t *testing.T) {
	c := Defaults()
	c.DecayHalfLife = day
	b := mustNew(t, c)
	must(t, b.Submitted(1, Submission{User: "u", Account: "a"}))
	must(t, b.Started(1, 0, TRES{Cores: 1}))
	near(t, "while it runs", usageOf(b, day/2), 86400/math.Ln2*(1-math.Sqrt2/2), 1e-7)
	must(t, b.Gone(1, day))
	want := 86400 / (2 * math.Ln2)
	near(t, "at the end", usageOf(b, day), want, 1e-7)
	near(t, "a day later", usageOf(b, 2*day), want/2, 1e-7)
	near(t, "ten days later", usageOf(b, 11*day), want/1024, 1e-7)
	near(t, "in a thousand years", usageOf(b, 100_000*day), 0, 0)
}

func usageOf(b *Book, at time.Duration) float64 { return b.Usage(at)[0].Usage }

// All factors together, by hand: weights and a job of half the nodes and a quarter of the cores.
func TestFactorsByHand(t *testing.T) {
	c := Defaults()
	c.WeightAge, c.WeightFairshare, c.WeightJobSize, c.WeightPartition, c.WeightQOS = 1000, 10_000, 800, 300, 2000
	c.WeightTRES = Weights{CPU: 400, Mem: 100, GPU: 5000}
	c.QOS = []QOS{{Name: "normal", Priority: 20}, {Name: "high", Priority: 100}}
	c.Partitions = []Partition{{"gpu", 5}, {"cpu", 10}}
	c.Accounts = []Account{{Name: "a", Shares: 1, Users: []User{{"u", 1}, {"v", 1}}}}
	b := mustNew(t, c)
	b.Cluster(8, TRES{Cores: 64, Memory: 1 << 40, MicroGPUs: 16 * Million})
	must(t, b.Submitted(1, Submission{User: "u", QOS: "normal", Partition: "gpu", Nodes: 4, Nice: 7,
		Asks: TRES{Cores: 16, Memory: 1 << 38, MicroGPUs: 4 * Million}}))
	must(t, b.Submitted(2, Submission{User: "v"}))
	must(t, b.Started(2, 0, TRES{Cores: 64}))
	// After 42 h of 7 days: age 0.25 x 1000 = 250. v used all, u nothing: u is first, 1 x 10000. Size (0.5+0.25)/2 x 800 = 300.
	// Partition 0.5 x 300 = 150. QOS 0.2 x 2000 = 400. TRES 0.25 x 400 + 0.25 x 100 + 0.25 x 5000 = 1375. Nice -7.
	due := b.Due(42 * time.Hour)
	if len(due) != 1 || due[0] != (Ranked{1, 250 + 10_000 + 300 + 150 + 400 + 1375 - 7}) {
		t.Fatalf("due %v", due)
	}
	f, ok := b.Factors(1)
	if !ok || f.Priority != due[0].Rank || f.Age != (Factor{0.25, 250}) || f.FairShare != (Factor{1, 10_000}) || f.JobSize != (Factor{0.375, 300}) ||
		f.Part != (Factor{0.5, 150}) || f.Class != (Factor{0.2, 400}) || f.CPU != (Factor{0.25, 100}) || f.Mem != (Factor{0.25, 25}) ||
		f.GPU != (Factor{0.25, 1250}) || f.Nice != 7 {
		t.Errorf("factors %+v", f)
	}
	if _, ok := b.Factors(2); ok {
		t.Error("a running job has factors")
	}
	admin := int64(3)
	must(t, b.SetPriority(1, &admin))
	if due := b.Due(42 * time.Hour); len(due) != 1 || due[0].Rank != 3 {
		t.Errorf("the administrator's priority: due %v", due)
	}
	must(t, b.SetPriority(1, nil))
	must(t, b.SetNice(1, 1_000_000))
	if due := b.Due(42 * time.Hour); len(due) != 1 || due[0].Rank != 1 {
		t.Errorf("a very nice job: due %v, want rank 1", due)
	}
}

func TestFavorSmall(t *testing.T) {
	c := Defaults()
	c.WeightJobSize, c.FavorSmall = 1000, true
	b := mustNew(t, c)
	b.Cluster(10, TRES{Cores: 100})
	must(t, b.Submitted(1, Submission{User: "u", Nodes: 1, Asks: TRES{Cores: 10}}))
	must(t, b.Submitted(2, Submission{User: "u", Nodes: 10, Asks: TRES{Cores: 100}}))
	must(t, b.Submitted(3, Submission{User: "u", Asks: TRES{Cores: 50}}))
	if due := b.Due(0); len(due) != 3 || due[0].Rank != 900 || due[1].Rank != 1 || due[2].Rank != 500 {
		t.Errorf("due %v", due)
	}
}

func TestBillingByHand(t *testing.T) {
	b, err := ParseBilling("CPU=1.0,Mem=0.25G,GRES/gpu=2.5")
	must(t, err)
	holds := TRES{Cores: 4, Memory: 8 << 30, MicroGPUs: Million + GPUShare(4<<30, 16<<30)}
	// 4 + 8 x 0.25 + 1.25 x 2.5 = 9.125
	if got := b.rate(holds); got != 9_125_000 {
		t.Errorf("rate %d", got)
	}
	b.Max = true
	if got := b.rate(holds); got != 4_000_000 {
		t.Errorf("the most expensive resource: %d", got)
	}
	for text, want := range map[string]int64{"Mem=1M": 1024 * Million, "mem=1": 1024 * Million, "MEM=0.5T": 488, "Mem=2g": 2 * Million} {
		if b, err := ParseBilling(text); err != nil || b.Mem != want {
			t.Errorf("%s: %d, %v; want %d", text, b.Mem, err, want)
		}
	}
	for _, text := range []string{"", "CPU", "CPU=-1", "CPU=x", "cores=1", "CPU=1,cpu=2", "Mem=1e9K", "CPU=NaN"} {
		if _, err := ParseBilling(text); err == nil {
			t.Errorf("%q was taken for weights", text)
		}
	}
	for _, text := range []string{"CPU=1.5", "CPU=-1", "CPU=5000000000"} {
		if _, err := ParseWeights(text); err == nil {
			t.Errorf("%q was taken for weights", text)
		}
	}
	if w, err := ParseWeights("CPU=1000, Mem=2000,GRES/gpu=3000"); err != nil || w != (Weights{1000, 2000, 3000}) {
		t.Errorf("%v, %v", w, err)
	}
}

// Between recalculations only jobs that came are ranked; then those whose rank changed.
func TestDueIsPeriodic(t *testing.T) {
	c := Defaults()
	c.WeightAge = 7 * 24 * 3600 // one a second
	b := mustNew(t, c)
	must(t, b.Submitted(1, Submission{User: "u"}))
	if due := b.Due(0); len(due) != 1 {
		t.Fatalf("due %v", due)
	}
	must(t, b.Submitted(2, Submission{User: "w", At: time.Minute}))
	if due := b.Due(2 * time.Minute); len(due) != 1 || due[0] != (Ranked{2, 60}) {
		t.Fatalf("a job that came: due %v", due)
	}
	if b.Next() != 5*time.Minute {
		t.Errorf("next at %s", b.Next())
	}
	if due := b.Due(5*time.Minute - 1); len(due) != 0 {
		t.Errorf("before the period is over: %v", due)
	}
	if due := b.Due(5 * time.Minute); len(due) != 2 || due[0] != (Ranked{1, 300}) || due[1] != (Ranked{2, 240}) {
		t.Errorf("after the period: %v", due)
	}
	if due := b.Due(8 * day); len(due) != 2 {
		t.Errorf("when both are old: %v", due)
	}
	if due := b.Due(9 * day); len(due) != 0 {
		t.Errorf("nothing changes any more, but due are %v", due)
	}
}

func TestStrictAndHome(t *testing.T) {
	c := Defaults()
	c.Strict = true
	c.Accounts = []Account{{Name: "a", Shares: 1, Users: []User{{"u", 1}}}, {Name: "b", Shares: 1, Users: []User{{"u", 1}}}}
	b := mustNew(t, c)
	must(t, b.Submitted(1, Submission{User: "u"}))
	b.Due(0)
	if f, _ := b.Factors(1); f.Account != "a" {
		t.Errorf("account %q, want the user's first", f.Account)
	}
	for _, s := range []Submission{{User: "u", Account: "c"}, {User: "x", Account: "a"}, {User: "x"}} {
		if err := b.Submitted(2, s); err == nil {
			t.Errorf("%+v was taken", s)
		}
	}
	if err := b.Submitted(1, Submission{User: "u"}); err == nil {
		t.Error("one job was submitted twice")
	}
	for _, err := range []error{b.Started(9, 0, TRES{}), b.Stopped(9, 0), b.Requeued(9, 0), b.Gone(9, 0), b.SetNice(9, 0), b.SetPriority(9, nil), b.SetNice(1, 1<<40)} {
		if err == nil {
			t.Error("an event of an unknown job, or a wild value, was taken")
		}
	}
}

func TestConfigsThatMakeNoSense(t *testing.T) {
	for name, spoil := range map[string]func(*Config){
		"weight": func(c *Config) { c.WeightAge = -1 }, "large weight": func(c *Config) { c.WeightQOS = 1 << 40 },
		"age": func(c *Config) { c.MaxAge = 0 }, "half-life": func(c *Config) { c.DecayHalfLife = -1 },
		"period": func(c *Config) { c.CalcPeriod = 0 }, "dampening": func(c *Config) { c.Dampening = math.NaN() },
		"two accounts": func(c *Config) { c.Accounts = []Account{{Name: "a", Accounts: []Account{{Name: "a"}}}} },
		"root":         func(c *Config) { c.Accounts = []Account{{Name: "root"}} },
		"two users":    func(c *Config) { c.Accounts = []Account{{Name: "a", Users: []User{{"u", 1}, {"u", 1}}}} },
		"shares":       func(c *Config) { c.Accounts = []Account{{Name: "a", Shares: -1}} },
		"two QOS":      func(c *Config) { c.QOS = []QOS{{Name: "a"}, {Name: "a"}} },
		"preempts up":  func(c *Config) { c.QOS = []QOS{{Name: "a", Preempt: []string{"b"}}, {Name: "b", Priority: 1}} },
		"preempts air": func(c *Config) { c.QOS = []QOS{{Name: "a", Preempt: []string{"b"}}} },
		"mode":         func(c *Config) { c.QOS = []QOS{{Name: "a", PreemptMode: "gang"}} },
		"partition":    func(c *Config) { c.Partitions = []Partition{{"p", -1}} },
		"billing":      func(c *Config) { c.Billing.GPU = -1 },
	} {
		c := Defaults()
		spoil(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
