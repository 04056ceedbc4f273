package script

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"muster/model"
	"muster/policy"
	"muster/policy/easy"
)

// easyFallback makes the policy that decides when a script fails.
func easyFallback(spec string) (policy.Policy, error) {
	name, settings, _ := strings.Cut(spec, ":")
	if name != "easy" {
		return nil, fmt.Errorf("there is no policy %q", name)
	}
	return easy.Entry.Make(settings)
}

func load(t testing.TB, source string) *Policy {
	t.Helper()
	p, err := Load("test.star", []byte(source), "", easyFallback)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func smallCluster(nodes int) *model.Cluster {
	c := &model.Cluster{Name: "c", GPUTypes: []model.GPUType{{Name: "g", Memory: 16 << 30, Speed: 1}}}
	for i := range nodes {
		c.Nodes = append(c.Nodes, model.Node{Name: fmt.Sprintf("n%d", i), Cores: 8, Memory: 64 << 30, GPUs: []int{0, 0}})
	}
	return c
}

func oneNode(id string, cores int) *model.Job {
	return &model.Job{ID: id, WallTime: 100e9, Request: model.Request{Nodes: 1, CoresPerNode: cores}}
}

// attacks are what a hostile or careless script may try in one call. Each must end, with
// an error at line 2 or later, and the fallback must have started the job.
var attacks = map[string]string{
	"string repeat 2":      `"a" * 1000000000`,
	"repeat on the left":   `1000000000 * "a"`,
	"list repeat":          `[0] * 1000000000`,
	"tuple repeat":         `(0,) * 1000000000`,
	"list in place":        "x = [0]\n  for i in range(100): x *= 2",
	"list doubling":        "x = [0]\n  for i in range(100): x = x + x",
	"list doubling +=":     "x = [0]\n  for i in range(100): x += x",
	"extend itself":        "x = [0]\n  for i in range(100): x.extend(x)",
	"string doubling":      "x = 'a'\n  for i in range(100): x = x + x",
	"string +=":            "x = 'a'\n  for i in range(100): x += x",
	"many strings":         "x = []\n  for i in range(1000000): x.append('a' * 1000 + 'b')",
	"upper":                "x = []\n  for i in range(1000000): x.append(('a' * 1000).upper())",
	"huge shift":           "1 << 1000000000",
	"shifts":               "x = 1\n  for i in range(1000): x = x << 200",
	"squares":              "x = 3\n  for i in range(100): x = x * x",
	"squares in place":     "x = 3\n  for i in range(100): x *= x",
	"int of text":          "x = int('9' * 1000)",
	"big float":            "x = int(1e308)",
	"endless range":        "for i in range(1000000000000000000): pass",
	"list of range":        "list(range(1000000000000))",
	"tuple of range":       "tuple(range(1000000000000))",
	"set of range":         "set(range(1000000000000))",
	"any of range":         "any(range(0, 1000000000000000000, 1000000000000000000 // 1000000)) or any([range(1)] * 100000000)",
	"all of range":         "all(range(1, 1000000000000000000))",
	"sum by max":           "max(range(1000000000000000000))",
	"sorted of range":      "sorted(range(1000000000000))",
	"sorted by name":       "sorted(iterable=range(1000000000000))",
	"sorted of huge":       "x = list(range(400000))\n  for i in range(100): sorted(x, reverse=True)",
	"reversed":             "reversed(range(1000000000000))",
	"enumerate":            "enumerate(range(1000000000000))",
	"zip":                  "zip(range(1000000000000), range(1000000000000))",
	"dict of pairs":        "dict(zip(range(10000000), range(10000000)))",
	"spread arguments":     "max(*range(1000000000000))",
	"extend range":         "x = []\n  x.extend(range(1000000000000))",
	"range in place":       "x = []\n  x += range(1000000000000)",
	"join":                 "', '.join([str(i) for i in range(100000)])",
	"join long":            "('a'*1000).join(['b'] * 1000)",
	"replace":              "('a'*1000).replace('a', 'b'*1000)",
	"replace empty":        "('a'*1000).replace('', 'b'*1000)",
	"format":               "('{0}' * 300).format('a' * 1000)",
	"format named":         "('{x}' * 300).format(x='a' * 1000)",
	"percent":              "('%s' * 100) % tuple(['a' * 1000] * 100)",
	"width":                "x = '%1000000000d' % 1",
	"split":                "x = []\n  for i in range(1000000): x.append(('a,' * 500).split(','))",
	"nested print":         "x = [1]\n  for i in range(40): x = [x, x, x]\n  print(x)",
	"nested str":           "x = [1]\n  for i in range(40): x = [x, x, x]\n  str(x)",
	"nested equal":         "x = [1]\n  y = [1]\n  for i in range(9):\n    x = [x] * 100\n    y = [y] * 100\n  x == y",
	"nested less":          "x = [1]\n  y = [1]\n  for i in range(9):\n    x = [x] * 100\n    y = [y] * 100\n  x < y",
	"nested member":        "x = [1]\n  y = [1]\n  for i in range(9):\n    x = [x] * 100\n    y = [y] * 100\n  x in [y]",
	"nested tuple key":     "x = (1, 2)\n  for i in range(60): x = (x, x)\n  d = {x: 1}",
	"nested tuple zip":     "x = (1, 2)\n  for i in range(60): x = zip([x], [x])[0]\n  d = {x: 1}",
	"nested tuple list":    "x = (1, 2)\n  for i in range(60): x = tuple([x, x])\n  d = {x: 1}",
	"nested tuple plus":    "x = ((1, 2),)\n  for i in range(60): x = (x + x,)\n  d = {x: 1}",
	"nested tuple items":   "x = (1, 2)\n  for i in range(60): x = list({x: x}.items())[0]\n  d = {x: 1}",
	"deep list":            "x = []\n  for i in range(100000): x = [x]\n  str(x)",
	"deep equal":           "x = []\n  y = []\n  for i in range(100000):\n    x = [x]\n    y = [y]\n  x == y",
	"cycle":                "x = []\n  x.append(x)\n  for i in range(100): x == [x]\n  str(x) + 1",
	"dict growth":          "d = {}\n  for i in range(10000000): d[i] = i",
	"many dicts":           "x = [{} for i in range(1000000)]",
	"dict union":           "d = {i: i for i in range(1000)}\n  x = []\n  for i in range(1000000): x.append(d | d)",
	"set union":            "s = set(range(1000))\n  x = []\n  for i in range(1000000): x.append(s.union(s))",
	"keys":                 "d = {i: i for i in range(1000)}\n  x = []\n  for i in range(1000000): x.append(d.keys())",
	"slices":               "l = list(range(1000))\n  x = []\n  for i in range(1000000): x.append(l[:])",
	"pop from the front":   "l = list(range(300000))\n  for i in range(300000): l.pop(0)",
	"insert in front":      "l = list(range(300000))\n  for i in range(300000): l.insert(0, 1)",
	"closures":             "x = [lambda: i for i in range(10000000)]",
	"recursion":            "def f(x): return f(x)\n  f(1)",
	"self application":     "f = lambda g: g(g)\n  f(f)",
	"print flood":          "for i in range(10000000): print('a' * 500)",
	"fail":                 "fail('no')",
	"division":             "1 // 0",
	"type error":           "'a' + 1",
	"unknown field":        "view.nonsense",
	"unhashable":           "{view: 1}",
	"start nothing":        "plan.start(None)",
	"start a text":         "plan.start('a')",
	"start twice":          "for j in view.arrived():\n    plan.start(j)\n    plan.start(j)",
	"unknown node":         "for j in view.arrived(): plan.start(j, nodes=['nowhere'])",
	"too many nodes":       "for j in view.arrived(): plan.start(j, nodes=['n0'] * 1000)",
	"no alternative":       "for j in view.arrived(): plan.start(j, alternative=7)",
	"negative alternative": "for j in view.arrived(): plan.start(j, alternative=-1)",
	"no such reason":       "for j in view.arrived(): plan.start(j, reason='because')",
	"stop a waiting job":   "for j in view.arrived(): plan.stop(j)",
	"stop what it started": "for j in view.arrived():\n    plan.start(j)\n    plan.stop(j)",
	"resume a waiting job": "for j in view.arrived(): plan.resume(j)",
	"wake in the past":     "plan.wake(view.now)",
	"configure nowhere":    "plan.configure('nowhere')",
	"configure wrongly":    "plan.configure('n0', vgpus=-1)",
	"configure for ever":   "for i in range(10000000): plan.configure('n0', vgpus=1 + i % 2)",
	"configure textually":  "plan.configure('n0', keep='all')",
	"wake NaN":             "plan.wake(float('nan'))",
	"reserve NaN":          "for j in view.arrived(): view.reserve(j, within=float('nan'))",
	"change a global":      "G.append(1)",
	"freeze":               "view.x = 1",
	"bytes":                "bytes('a')",
	"alike numbers":        "d = {}\n  for i in range(10000): d[i << 32] = i",
	"alike low bits":       "d = {}\n  for i in range(10000): d[i << 16] = i",
	"alike fractions":      "s = set()\n  for i in range(1, 10000): s.add(1 / i)",
	"alike pairs":          "d = {(i << 32, 0): i for i in range(10000)}",
	"alike in a set":       "set([i << 32 for i in range(10000)])",
	"alike in a dict":      "dict([(i << 32, 0) for i in range(10000)])",
	"alike updates":        "d = {}\n  d.update([(i << 32, 0) for i in range(10000)])",
	"alike unions":         "s = set()\n  for i in range(1000): s = s | set([(i * 50 + k) << 32 for k in range(50)])",
	"alike in place":       "d = {}\n  for i in range(1000): d |= {(i * 50 + k) << 32: 0 for k in range(50)}",
	"alike together":       "d = {}\n  for i in range(10000): d[i << 32], x = i, i",
	"alike in a loop":      "d = {}\n  for d[(len(d) + 1) << 32] in range(10000): pass",
	"getattr":              "getattr(view, 'now')",
}

func TestAttacksCostTheirStepAlone(t *testing.T) {
	for name, body := range attacks {
		t.Run(name, func(t *testing.T) {
			source := "G = []\ndef decide(view, plan):\n  for job in view.arrived():\n    if view.fits(job): pass\n  " + body + "\n"
			p, err := Load("test.star", []byte(source), "", easyFallback)
			if err != nil {
				if e := err.(*Error); e.Line < 2 {
					t.Fatalf("refused without a place: %v", err)
				}
				return // refused when it is loaded: as good
			}
			s := policy.NewState(smallCluster(4), p)
			id, err := s.Submit(oneNode("a", 2))
			if err != nil {
				t.Fatal(err)
			}
			plan := s.Step(0)
			trouble := p.Trouble()
			if trouble.Last == nil || trouble.Last.Line < 5 || trouble.Last.Column == 0 || !trouble.Failing {
				t.Fatalf("trouble is %+v", trouble)
			}
			if len(plan.Starts) != 1 || plan.Starts[0].Job != id || plan.Starts[0].Err != nil || len(plan.Stops)+len(plan.Resumes) > 0 {
				t.Fatalf("the fallback decided %+v", plan)
			}
		})
	}
}

// What the interpreter takes at once is bounded, whatever a script does.
func TestAttacksTakeLittleMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("garbage collections")
	}
	const most = 96 << 20
	for name, body := range attacks {
		p, err := Load("test.star", []byte("G = []\ndef decide(view, plan):\n  "+body+"\n"), "", easyFallback)
		if err != nil {
			continue
		}
		s := policy.NewState(smallCluster(4), p)
		if _, err := s.Submit(oneNode("a", 2)); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s.Step(0)
		runtime.ReadMemStats(&after)
		if grown := after.TotalAlloc - before.TotalAlloc; grown > most {
			t.Errorf("%s: %d MiB were allocated", name, grown>>20)
		}
	}
}

// A file whose values are nested deep is refused: freezing them would take the stack of the
// program, which ends without one.
func TestDeepGlobals(t *testing.T) {
	for name, body := range map[string]string{
		"lists":    "for i in range(20000): x = [x]",
		"closures": "for i in range(20000): x = (lambda y: lambda: y)(x)",
		"cycle":    "x.append(x)",
	} {
		_, err := Load("test.star", []byte("def deep():\n  x = []\n  "+body+"\n  return x\nG = deep()\ndef decide(view, plan): pass\n"), "", easyFallback)
		if err == nil || !strings.Contains(err.Error(), "G: the value is nested more than 32 levels deep") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What view.reserve is charged grows with what it looks at.
func TestReservingIsCharged(t *testing.T) {
	steps := func(running int) uint64 {
		p := load(t, "def decide(view, plan):\n  for job in view.fitting(): plan.start(job)\n  for job in view.queue(): view.reserve(job)\n")
		s := policy.NewState(smallCluster(running), p)
		for i := range running {
			if _, err := s.Submit(&model.Job{ID: fmt.Sprint(i), WallTime: 100e9, Request: model.Request{Nodes: 1, CoresPerNode: 8, GPUs: 1, GPUMemory: 1 << 30}}); err != nil {
				t.Fatal(err)
			}
		}
		s.Step(0)
		if _, err := s.Submit(&model.Job{ID: "x", WallTime: 100e9, Request: model.Request{Nodes: running, CoresPerNode: 8, GPUs: 1, GPUMemory: 1 << 30}}); err != nil {
			t.Fatal(err)
		}
		s.Step(1e9)
		if p.Trouble().Failing {
			t.Fatal(p.Trouble().Last)
		}
		n, _ := p.Used()
		return n
	}
	if few, many := steps(100), steps(800); many < few+700 {
		t.Errorf("with 100 jobs that run it took %d steps, with 800 %d", few, many)
	}
}

// A script that asks at every step for the next instant gets its steps a second apart: otherwise a
// simulation of it would never end.
func TestScriptsRestASecond(t *testing.T) {
	for asked, want := range map[string]time.Duration{"1": time.Second, "SECOND": time.Second, "3 * SECOND": 3 * time.Second} {
		p := load(t, "def decide(view, plan):\n  plan.wake(view.now + "+asked+")\n")
		s := policy.NewState(smallCluster(1), p)
		for _, now := range []time.Duration{0, 5 * time.Second} {
			if plan := s.Step(now); plan.Wake != now+want || p.Trouble().Last != nil {
				t.Errorf("%s at %v: %v, %v", asked, now, plan.Wake, p.Trouble().Last)
			}
		}
	}
}
