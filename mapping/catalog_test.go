package mapping_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"muster/mapping"
)

// specs are mappers with settings, one for each way to decide.
var specs = []string{
	"st", "gr", "gr:local=first", "split:share=1/4",
	"ag", "ag:reading=plus", "ag:estimate=kernel", "ag:estimate=bytes", "ag:group=6", "ag:group=6:groups=block",
	"ag:choices=2", "ag:idle=first", "ag:choices=3:idle=first:group=5", "ag:locality=yes:protect=yes",
	"ar", "ar:bounds=none", "ar:alpha=0.01:beta=10", "ar:group=6", "ar:choices=8", "ar:idle=first", "ar:locality=yes:protect=yes",
	"probe", "probe:choices=5:estimate=bytes:protect=yes",
}

func cluster(nodes, perNode int) *mapping.Layout {
	l := &mapping.Layout{First: []int32{0}, Critical: []bool{true, false}, Bandwidth: 100e6}
	for n := range nodes {
		l.Cores = append(l.Cores, 12)
		l.Owner = append(l.Owner, int32(min(1, 4*n/nodes)))
		for range perNode {
			l.NodeOf, l.Speed = append(l.NodeOf, int32(n)), append(l.Speed, 1)
		}
		l.First = append(l.First, int32(len(l.NodeOf)))
	}
	return l
}

// drive runs a mapper for a while with calls that come and go, and returns its answers.
func drive(t testing.TB, spec string, seed uint64, calls int) (answers []int32) {
	l := cluster(24, 3)
	m, err := mapping.New(spec, l)
	if err != nil {
		t.Fatal(err)
	}
	table := mapping.NewTable(l, 10)
	table.Estimate = mapping.EstimateOf(m)
	v := &mapping.View{Table: table, Local: table, Rand: rand.New(rand.NewPCG(seed, 1))}
	rng := rand.New(rand.NewPCG(seed, 2))
	type open struct {
		call     mapping.Call
		device   int32
		expected time.Duration
	}
	var under []open
	last := map[int32]int32{}
	for range calls {
		if len(under) > 90 {
			i := rng.IntN(len(under))
			o := under[i]
			table.Finish(&o.call, o.device, o.expected, time.Duration(rng.Int64N(int64(2*time.Second))))
			under[i] = under[len(under)-1]
			under = under[:len(under)-1]
		}
		node := rng.Int32N(24)
		c := mapping.Call{Node: node, Process: node, App: l.Owner[node], Kernel: l.Owner[node], Home: l.First[node], Rank: node, In: rng.Int64N(1e8), Out: rng.Int64N(1e7)}
		if d, ok := last[node]; ok {
			c.Resident = []mapping.Resident{{Device: d, Bytes: c.In / 2}}
		}
		v.Now += time.Duration(rng.Int64N(int64(time.Second)))
		d := m.Map(&c, v)
		answers = append(answers, d)
		if d == mapping.Anywhere {
			d = rng.Int32N(72)
		}
		if d < 0 || int(d) >= l.Devices() {
			t.Fatalf("%s: there is no device %d", spec, d)
		}
		last[node] = d
		o := open{c, d, table.Assign(&c, d)}
		table.Begin(d, o.expected, v.Now)
		under = append(under, o)
	}
	return answers
}

func TestTheSameSeedGivesTheSameAnswers(t *testing.T) {
	for _, spec := range specs {
		a, b := drive(t, spec, 7, 1000), drive(t, spec, 7, 1000)
		if fmt.Sprint(a) != fmt.Sprint(b) {
			t.Errorf("%s: two runs differ", spec)
		}
		if strings.HasPrefix(spec, "ar") {
			if c := drive(t, spec, 8, 1000); fmt.Sprint(a) == fmt.Sprint(c) {
				t.Errorf("%s: another seed makes no difference", spec)
			}
		}
	}
}

func TestDecisionsDoNotAllocate(t *testing.T) {
	for _, spec := range specs {
		m, table, v := loaded(t, spec, 24, false)
		calls := someCalls(table.Layout())
		i := 0
		next := func() {
			m.Map(&calls[i%len(calls)], v)
			i++
		}
		for range calls { // scratch memory grows at first
			next()
		}
		if n := testing.AllocsPerRun(len(calls), next); n != 0 {
			t.Errorf("%s: %v allocations a decision", spec, n)
		}
	}
}

// TestProtectedDevicesStayAlone: with protect=yes no call of another application reaches a critical one's nodes.
func TestProtectedDevicesStayAlone(t *testing.T) {
	for _, spec := range []string{"ag:protect=yes", "ar:protect=yes", "probe:protect=yes", "ar:protect=yes:choices=4:idle=first", "ag:protect=yes:group=6"} {
		m, table, v := loaded(t, spec, 24, false)
		calls := someCalls(table.Layout())
		for i := range calls {
			c := &calls[i]
			node := table.Layout().NodeOf[m.Map(c, v)]
			if owner := table.Layout().Owner[node]; owner == 0 && c.App != 0 {
				t.Errorf("%s: a call of application %d was given to node %d of application 0", spec, c.App, node)
			}
		}
	}
}

// TestProtectionIsNeverDropped: nodes 0 and 1 of the critical application 0 have GPUs, and of application 1's nodes 2 to 5 some.
func TestProtectionIsNeverDropped(t *testing.T) {
	layout := func(gpus ...int32) *mapping.Layout {
		l := &mapping.Layout{First: []int32{0}, Critical: []bool{true, false}, Bandwidth: 100e6}
		for n, k := range gpus {
			l.Cores, l.Owner = append(l.Cores, 12), append(l.Owner, int32(min(1, n/2)))
			for range k {
				l.NodeOf, l.Speed = append(l.NodeOf, int32(n)), append(l.Speed, 1)
			}
			l.First = append(l.First, int32(len(l.NodeOf)))
		}
		return l
	}
	for _, mapper := range []string{"ag", "ar", "probe"} {
		_, err := mapping.New(mapper+":protect=yes", layout(2, 2, 0, 0, 0, 0))
		if err == nil || !strings.Contains(err.Error(), "application 1 has no GPU on its node 2, and protect=yes") {
			t.Errorf("%s: application 1 has no GPU that it may use: %v", mapper, err)
		}
		if _, err := mapping.New(mapper, layout(2, 2, 0, 0, 0, 0)); err != nil {
			t.Errorf("%s: without protection: %v", mapper, err)
		}
		if _, err := mapping.New(mapper+":protect=yes", layout(0, 0, 1, 1, 1, 1)); err != nil {
			t.Errorf("%s: the critical one may use those of others: %v", mapper, err)
		}
		// Node 5 has the only GPU that application 1 may use. The groups are of nodes 0 and 3, 1 and 4, 2 and 5: with
		// 3 and 4 there are none but protected ones.
		l := layout(1, 1, 0, 0, 0, 1)
		m, err := mapping.New(mapper+":protect=yes:group=2", l)
		if err != nil {
			t.Fatal(err)
		}
		table := mapping.NewTable(l, 10)
		table.Estimate = mapping.EstimateOf(m)
		v := &mapping.View{Table: table, Local: table, Rand: rand.New(rand.NewPCG(1, 1))}
		for node := int32(2); node < 5; node++ {
			if d := m.Map(&mapping.Call{Node: node, App: 1, Home: -1, In: 1000}, v); d != 2 {
				t.Errorf("%s: a call from node %d was given to device %d", mapper, node, d)
			}
		}
	}
}

func TestEveryMapperIsDocumentedAndCanBeMade(t *testing.T) {
	text, err := os.ReadFile("../docs/mapping.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(text)
	for _, e := range mapping.Entries {
		if e.Summary == "" || !strings.Contains(doc, "\n## "+e.Name+"\n") {
			t.Errorf("%s has no summary, or no section in docs/mapping.md", e.Name)
		}
		for _, spec := range []string{e.Name, e.Name + ":"} {
			if _, err := mapping.New(spec, cluster(4, 1)); err != nil {
				t.Error(err)
			}
		}
		for _, o := range e.Options {
			if o.Summary == "" || !strings.Contains(doc, "`"+o.Name+"`") {
				t.Errorf("%s: setting %s is not explained", e.Name, o.Name)
			}
			if err := mapping.Check(e.Name + ":" + o.Name + "=" + o.Default); err != nil {
				t.Error(err)
			}
		}
	}
	for _, spec := range specs {
		if err := mapping.Check(spec); err != nil {
			t.Error(err)
		}
	}
}

func TestNewSaysWhatIsWrong(t *testing.T) {
	var names []string
	for _, e := range mapping.Entries {
		names = append(names, e.Name)
	}
	all := strings.Join(names, ", ")
	for spec, want := range map[string]string{
		"":                       `there is no mapper "": there are ` + all,
		"prob":                   `there is no mapper "prob": did you mean "probe"?`,
		"round-robin":            `there is no mapper "round-robin": there are ` + all,
		"st:local=first":         `mapper st: "local=first" is no setting of it: it has none`,
		"gr:protect=yes":         `mapper gr: "protect=yes" is no setting of it: it has local=any`,
		"gr:local=yes":           `mapper gr: local must be any or first, not "yes"`,
		"ag:choice=2":            `mapper ag: "choice=2" is no setting of it: did you mean "choices"?`,
		"ag:choices":             `mapper ag: choices has no value: write it as choices=0`,
		"ag:choices=2:choices=3": `mapper ag: choices is set twice`,
		"ag:choices=-1":          `mapper ag: choices must be a whole number from 0 to 64, not "-1"`,
		"ag:choices=65":          `mapper ag: choices must be a whole number from 0 to 64, not "65"`,
		"ag:group=x":             `mapper ag: group must be a whole number from 0 to 1073741824, not "x"`,
		"ag:groups=random":       `mapper ag: groups must be stride or block, not "random"`,
		"ag:idle=last":           `mapper ag: idle must be any or first, not "last"`,
		"ag:locality=1":          `mapper ag: locality must be no or yes, not "1"`,
		"ag:reading=minus":       `mapper ag: reading must be literal or plus, not "minus"`,
		"ag:estimate=oracle":     `mapper ag: estimate must be window or kernel or bytes, not "oracle"`,
		"ar:estimate=kernel":     `mapper ar: "estimate=kernel" is no setting of it: it has alpha=adaptive`,
		"ar:alpha=0":             `mapper ar: alpha must be adaptive or a number from 1e-9 to 1e9, not "0"`,
		"ar:beta=NaN":            `mapper ar: beta must be adaptive or a number from 1e-9 to 1e9, not "NaN"`,
		"ar:bounds=all":          `mapper ar: bounds must be paper or none, not "all"`,
		"split:share=2/1":        `mapper split: share must be a fraction from 0 to 1 such as 1/4, not "2/1"`,
		"split:share=0.5":        `mapper split: share must be a fraction from 0 to 1 such as 1/4, not "0.5"`,
		"split:share=1/0":        `mapper split: share must be a fraction from 0 to 1 such as 1/4, not "1/0"`,
		"split:from=1":           `mapper split: "from" and "to" are both 1: name two applications`,
		"split:to=-1":            `mapper split: to must be a whole number from 0 to 1073741824, not "-1"`,
		"split:to=5":             `mapper split: there is no application 5: there are 2, numbered from 0; set "from" and "to" to two of them`,
		"split:from=2":           `mapper split: there is no application 2: there are 2, numbered from 0; set "from" and "to" to two of them`,
	} {
		_, err := mapping.New(spec, cluster(4, 1))
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v\nwant %s", spec, err, want)
		}
		if err := mapping.Check(spec); (err == nil) != (spec == "split:to=5" || spec == "split:from=2") {
			t.Errorf("Check %s: %v", spec, err)
		}
	}
	l := cluster(4, 1) // all nodes but the first are application 1's
	l.NodeOf, l.Speed, l.First = l.NodeOf[:1], l.Speed[:1], []int32{0, 1, 1, 1, 1}
	if _, err := mapping.New("split", l); err == nil || !strings.Contains(err.Error(), `no node of application 1 has a GPU: set "to" to another application`) {
		t.Errorf("split to nodes without GPUs: %v", err)
	}
	if _, err := mapping.New("st", cluster(4, 0)); err == nil || !strings.Contains(err.Error(), "has no GPU") {
		t.Errorf("a cluster without GPUs: %v", err)
	}
}

// TestEstimatesMustAgree: a table that does not keep what the mapper needs is a mistake in the program.
func TestEstimatesMustAgree(t *testing.T) {
	l := cluster(4, 1)
	m, err := mapping.New("ag:estimate=bytes", l)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a table without history was good enough")
		}
	}()
	table := mapping.NewTable(l, 10)
	m.Map(&mapping.Call{}, &mapping.View{Table: table, Local: table})
}

func FuzzCheck(f *testing.F) {
	for _, spec := range specs {
		f.Add(spec)
	}
	f.Add("split:share=1/:from=")
	l := cluster(4, 2)
	f.Fuzz(func(t *testing.T, spec string) {
		m, err := mapping.New(spec, l)
		if err != nil {
			return
		}
		table := mapping.NewTable(l, 3)
		table.Estimate = mapping.EstimateOf(m)
		v := &mapping.View{Table: table, Local: table, Rand: rand.New(rand.NewPCG(1, 1))}
		if d := m.Map(&mapping.Call{In: 1e6, Home: 1}, v); d < mapping.Anywhere || d >= 8 {
			t.Errorf("%q: device %d", spec, d)
		}
	})
}
