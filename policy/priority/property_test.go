package priority

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"muster/internal/seeds"
)

// drawConfig draws a tree of accounts and weights.
func drawConfig(t *rapid.T) Config {
	c := Defaults()
	c.WeightAge = rapid.Int64Range(0, 5000).Draw(t, "age")
	c.WeightFairshare = rapid.Int64Range(0, 100_000).Draw(t, "fairshare")
	c.WeightQOS, c.WeightJobSize = 1000, 500
	c.Classic = rapid.Bool().Draw(t, "classic")
	c.DecayHalfLife = rapid.SampledFrom([]time.Duration{0, time.Hour, 7 * day}).Draw(t, "half-life")
	c.QOS = []QOS{{Name: "low", Priority: 1}, {Name: "high", Priority: 10}}
	shares := rapid.Int64Range(0, 5)
	for i := range rapid.IntRange(1, 4).Draw(t, "accounts") {
		a := Account{Name: fmt.Sprint("a", i), Shares: shares.Draw(t, "shares")}
		for u := range rapid.IntRange(0, 4).Draw(t, "users") {
			a.Users = append(a.Users, User{fmt.Sprint("u", u), shares.Draw(t, "shares")})
		}
		if i%2 == 1 {
			a.Accounts = []Account{{Name: fmt.Sprint("s", i), Shares: 1, Users: []User{{"u0", shares.Draw(t, "shares")}, {"u9", 1}}}}
		}
		c.Accounts = append(c.Accounts, a)
	}
	return c
}

// play tells books random events, the same to all, and calls after each.
func play(t *rapid.T, books *[]*Book, after func(now time.Duration)) time.Duration {
	now := time.Duration(0)
	var waits, runs, stopped []Key
	move := func(from, to *[]Key) Key {
		i := rapid.IntRange(0, len(*from)-1).Draw(t, "which")
		k := (*from)[i]
		*from = slices.Delete(*from, i, i+1)
		if to != nil {
			*to = append(*to, k)
		}
		return k
	}
	for k := range Key(rapid.IntRange(1, 40).Draw(t, "events")) {
		now += time.Duration(rapid.Int64Range(0, int64(3*time.Hour)).Draw(t, "pass"))
		var tell func(b *Book) error
		switch what := rapid.IntRange(0, 6).Draw(t, "what"); {
		case what == 1 && len(waits) > 0:
			k, cores := move(&waits, &runs), rapid.Int64Range(1, 100).Draw(t, "cores")
			tell = func(b *Book) error { return b.Started(k, now, TRES{Cores: cores}) }
		case what == 2 && len(runs) > 0:
			k := move(&runs, nil)
			tell = func(b *Book) error { return b.Gone(k, now) }
		case what == 3 && len(runs) > 0:
			k := move(&runs, &stopped)
			tell = func(b *Book) error { return b.Stopped(k, now) }
		case what == 4 && len(stopped) > 0:
			k := move(&stopped, &runs)
			tell = func(b *Book) error { return b.Started(k, now, TRES{Cores: 7}) }
		case what == 5 && len(runs) > 0:
			k := move(&runs, &waits)
			tell = func(b *Book) error { return b.Requeued(k, now) }
		default:
			s := Submission{
				User: fmt.Sprint("u", rapid.IntRange(0, 6).Draw(t, "user")), Account: rapid.SampledFrom([]string{"", "a0", "a1", "s1", "new"}).Draw(t, "account"),
				QOS: rapid.SampledFrom([]string{"", "low", "high"}).Draw(t, "qos"), At: now, Nice: rapid.Int64Range(-100, 100).Draw(t, "nice"),
				Nodes: 1, Asks: TRES{Cores: rapid.Int64Range(1, 100).Draw(t, "cores")},
			}
			tell = func(b *Book) error { return b.Submitted(k, s) }
			waits = append(waits, k)
		}
		for _, b := range *books {
			if err := tell(b); err != nil {
				t.Fatal(err)
			}
		}
		after(now)
	}
	return now
}

// What a book says of usage is what a sum over all stretches of running says,
// each decayed by itself.
func TestUsageIsTheSumOfAllStretches(t *testing.T) {
	seeds.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		b, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		type stretch struct{ from, to, rate float64 }
		var done []stretch
		open := map[Key]stretch{}
		now := play(t, &[]*Book{b}, func(now time.Duration) {
			for k, j := range b.jobs {
				s, runs := open[k]
				if runs && (j.holds == nil || float64(j.holds.Cores) != s.rate) {
					done = append(done, stretch{s.from, now.Seconds(), s.rate})
					delete(open, k)
				}
				if _, runs := open[k]; !runs && j.holds != nil {
					open[k] = stretch{now.Seconds(), 0, float64(j.holds.Cores)}
				}
			}
			for k, s := range open {
				if b.jobs[k] == nil {
					done = append(done, stretch{s.from, now.Seconds(), s.rate})
					delete(open, k)
				}
			}
		})
		at := now + time.Hour
		for _, s := range open {
			done = append(done, stretch{s.from, at.Seconds(), s.rate})
		}
		want := 0.0
		for _, s := range done {
			if c.DecayHalfLife == 0 {
				want += s.rate * (s.to - s.from)
				continue
			}
			l := math.Ln2 / c.DecayHalfLife.Seconds()
			want += s.rate / l * (math.Exp(-l*(at.Seconds()-s.to)) - math.Exp(-l*(at.Seconds()-s.from)))
		}
		if got := b.Usage(at)[0].Usage; math.Abs(got-want) > 1e-6*(1+want) {
			t.Fatalf("usage %v, want %v", got, want)
		}
	})
}

// Asking for usage changes nothing, the same events give the same bits, and a book
// that went through JSON on the way says the same.
func TestBooksAgreeToTheBit(t *testing.T) {
	seeds.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		a, _ := New(c)
		a.Cluster(10, TRES{Cores: 1000})
		twins := []*Book{a}
		cut, n := rapid.IntRange(1, 40).Draw(t, "cut"), 0
		now := play(t, &twins, func(now time.Duration) {
			if n++; n == cut {
				twins = append(twins, throughJSON(t, a))
			}
			a.Usage(now + time.Minute) // must leave no trace
		})
		if len(twins) == 1 {
			twins = append(twins, throughJSON(t, a))
		}
		b := twins[1]
		if x, y := a.Usage(now+day), b.Usage(now+day); !slices.Equal(x, y) {
			t.Fatalf("usage differs:\n%v\n%v", x, y)
		}
		x := slices.Clone(a.Due(now + day))
		if y := b.Due(now + day); !slices.Equal(x, y) {
			t.Fatalf("ranks differ: %v and %v", x, y)
		}
	})
}

func throughJSON(t *rapid.T, a *Book) *Book {
	text, err := json.Marshal(a.Export())
	if err != nil {
		t.Fatal(err)
	}
	var d Document
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	b, err := Import(a.Config(), d)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The ranks that Due gives add up, job by job, to what a recalculation from nothing
// gives, and each is the sum of its factors.
func TestDueMissesNothing(t *testing.T) {
	seeds.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		b, _ := New(c)
		b.Cluster(10, TRES{Cores: 1000})
		known := map[Key]int64{}
		now := play(t, &[]*Book{b}, func(now time.Duration) {
			if rapid.Bool().Draw(t, "ask") {
				for _, r := range b.Due(now) {
					known[r.Job] = r.Rank
				}
			}
		}) + c.CalcPeriod
		for _, r := range b.Due(now) {
			known[r.Job] = r.Rank
		}
		fresh, err := Import(c, b.Export())
		if err != nil {
			t.Fatal(err)
		}
		all := fresh.Due(now)
		if len(all) != b.Waiting() {
			t.Fatalf("%d of %d jobs ranked", len(all), b.Waiting())
		}
		for _, r := range all {
			if known[r.Job] != r.Rank {
				t.Fatalf("job %d has rank %d, want %d", r.Job, known[r.Job], r.Rank)
			}
			f, ok := b.Factors(r.Job)
			sum := f.Age.Weighted + f.FairShare.Weighted + f.JobSize.Weighted + f.Class.Weighted - float64(f.Nice)
			if !ok || math.Abs(max(1, math.Floor(sum))-float64(r.Rank)) > 1 {
				t.Fatalf("factors %+v of rank %d", f, r.Rank)
			}
		}
	})
}

// Fair tree: of two siblings, all users of the better come before all of the worse;
// users who used less of equal shares are never worse off.
func TestFairTreeIsFair(t *testing.T) {
	seeds.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		c.Classic = false
		b, _ := New(c)
		now := play(t, &[]*Book{b}, func(time.Duration) {})
		var p picture
		b.tree.look(&p, now, &c)
		var below func(id int32) []float64
		below = func(id int32) (list []float64) {
			if b.tree.members[id].user {
				return []float64{p.factor[id]}
			}
			for _, child := range b.tree.members[id].children {
				list = append(list, below(child)...)
			}
			return list
		}
		for id := range b.tree.members {
			children := b.tree.members[id].children
			for _, x := range children {
				for _, y := range children {
					above, under := below(x), below(y)
					if p.level[x] > p.level[y] && len(above) > 0 && len(under) > 0 && slices.Min(above) <= slices.Max(under) {
						t.Fatalf("%s is better than %s, but a user below it is not", b.tree.members[x].name, b.tree.members[y].name)
					}
				}
			}
		}
		for id, m := range b.tree.members {
			if m.user && !(p.factor[id] > 0 && p.factor[id] <= 1) {
				t.Fatalf("factor %v of %s", p.factor[id], m.name)
			}
		}
	})
}

// A changed configuration forgets no usage, and puts nobody's jobs elsewhere.
func TestConfigureKeepsUsage(t *testing.T) {
	seeds.Check(t, func(t *rapid.T) {
		b, _ := New(drawConfig(t))
		now := play(t, &[]*Book{b}, func(time.Duration) {})
		before := b.Usage(now)[0].Usage
		next := drawConfig(t)
		if err := b.Configure(next, now); err != nil {
			t.Fatal(err)
		}
		if after := b.Usage(now)[0].Usage; math.Abs(after-before) > 1e-9*(1+before) {
			t.Fatalf("usage %v before, %v after", before, after)
		}
		for k, j := range b.jobs {
			m := b.tree.members[j.user]
			if m.name != j.s.User || b.tree.members[m.parent].name != j.s.Account {
				t.Fatalf("job %d of %s/%s is charged to %s/%s", k, j.s.Account, j.s.User, b.tree.members[m.parent].name, m.name)
			}
		}
	})
}

// Two machines must agree: these bits were recorded.
func TestBitsAreThoseRecorded(t *testing.T) {
	c := Defaults()
	c.Classic, c.WeightFairshare = true, 1_000_000_000
	b := mustNew(t, c)
	for k := range Key(50) {
		at := time.Duration(k) * 977 * time.Second
		must(t, b.Submitted(k, Submission{User: fmt.Sprint("u", k%7), Account: fmt.Sprint("a", k%3), At: at}))
		must(t, b.Started(k, at+time.Duration(k*k)*time.Second, TRES{Cores: int64(k%13 + 1)}))
	}
	for k := range Key(25) {
		must(t, b.Gone(k, 2*day+time.Duration(k)*time.Hour))
	}
	sum := uint64(0)
	for _, l := range b.Usage(5 * day) {
		for _, x := range []float64{l.Usage, l.Effective, l.FairShare} {
			sum = sum*31 + math.Float64bits(x)
		}
	}
	const want = 0xbc256d7db04538e8
	if sum != want {
		t.Errorf("%#x, want %#x", sum, uint64(want))
	}
}
