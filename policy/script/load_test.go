package script

import (
	"fmt"
	"strings"
	"testing"

	"go.starlark.net/starlark"

	"muster/policy"
)

// What is wrong in a file is refused when it is loaded, with its place.
func TestLoadRefuses(t *testing.T) {
	long := strings.Repeat
	const ok = "def decide(view, plan):\n  pass\n"
	for name, c := range map[string]struct{ source, settings, want string }{
		"empty":               {"", "", "test.star:1:1: the file defines neither decide(view, plan) nor init(): nothing would be decided"},
		"no decide":           {"x = 1\n", "", "test.star:1:1: the file defines neither decide"},
		"decide is a value":   {"decide = 1\n", "", "test.star:1:1: the file defines neither decide"},
		"parameters":          {"def decide(view):\n  pass\n", "", "test.star:1:1: decide has 1 parameters: it is called with 2"},
		"parameters of why":   {ok + "def why(job):\n  pass\n", "", "test.star:3:1: why has 1 parameters: it is called with 2"},
		"why is a value":      {ok + "why = 'so'\n", "", "test.star: why is a string, and must be a function"},
		"syntax":              {ok + "x = = 2\n", "", "test.star:3:5: got '=', want primary expression"},
		"unknown name":        {"def decide(view, plan):\n  veiw.queue()\n", "", "test.star:2:3: undefined: veiw"},
		"misspelt name":       {"def decide(view, plan):\n  x = 3 * MINUTES\n", "", "test.star:2:11: undefined: MINUTES (did you mean MINUTE?)"},
		"a call's case":       {"def init():\n  for n in mccsGetNodeList():\n    mccsSetNodeVgpuConf(n, 3)\n", "", "test.star:3:5: undefined: mccsSetNodeVgpuConf (did you mean mccsSetNodeVGPUConf?)"},
		"near its own":        {ok + "depth = 1\nx = dept\n", "", "test.star:4:5: undefined: dept (did you mean depth?)"},
		"field of a dict":     {ok + "x = {'programs': 1}.programs\n", "", `test.star:3:20: dict has no .programs field or method (what a dictionary holds is written as q["programs"])`},
		"import":              {"import os\n" + ok, "", "test.star:1:1: got import, want primary expression (a policy imports nothing: all that it may use has a name already)"},
		"global":              {"n = 0\ndef decide(view, plan):\n  global n\n", "", "test.star:3:3: got global, want primary expression (what a policy keeps between steps goes into state)"},
		"f-string":            {ok + "x = f'{x}'\n", "", `(texts have no letters before them: write "%s" % x)`},
		"time without a unit": {ok + "d = setting('d', 10 * MINUTE)\n", "d=600", "test.star:3:12: setting d is a time: say 600s, 600m or 600h, not 600"},
		"load":                {"load('a.star', 'b')\n" + ok, "", "test.star:1:1: load: a policy is one file, and loads no others"},
		"while":               {"def decide(view, plan):\n  while True:\n    pass\n", "", "test.star:2:3: while: a policy has no such loops; use for"},
		"loop outside":        {ok + "for i in range(3):\n  pass\n", "", "test.star:3:1: for loop not within a function"},
		"variable arguments":  {ok + "def f(*a):\n  pass\n", "", "test.star:3:7: functions of a policy have no * parameters: pass a list or a dictionary"},
		"keyword arguments":   {ok + "f = lambda **a: 1\n", "", "test.star:3:12: functions of a policy have no ** parameters"},
		"constants":           {ok + "None = []\n", "", "test.star:3:1: None is a constant"},
		"constant parameter":  {ok + "def f(True):\n  pass\n", "", "test.star:3:7: True is a constant"},
		"constant by default": {ok + "def f(False=1):\n  pass\n", "", "test.star:3:7: False is a constant"},
		"constant as loop":    {ok + "x = [1 for None in []]\n", "", "test.star:3:12: None is a constant"},
		"field set":           {ok + "def f(x):\n  x.y = 1\n", "", "test.star:4:4: nothing has fields that can be set"},
		"field changed":       {ok + "def f(x):\n  x.y += 1\n", "", "test.star:4:4: nothing has fields that can be set"},
		"fails outside":       {ok + "x = 1 // 0\n", "", "test.star:3:7: floored division by zero"},
		"loops outside":       {ok + "def f():\n  for i in range(10000000): pass\nf()\n", "", "test.star:4:3: the script was stopped after 1000000 steps (setting steps)"},
		"memory outside":      {ok + "x = list(range(10000000))\n", "", "test.star:3:9: 10000000 values are too many"},
		"state renamed":       {ok + "s = state\n", "", "test.star: state is frozen: do not give it another name outside of functions"},
		"order":               {ok + "order = 'size'\n", "", `test.star: order is "priority", "submission" or "estimate", not "size"`},
		"placement":           {ok + "placement = 7\n", "", `test.star: placement is "sharing", "alone" or "borrowing", not 7`},
		"alternatives":        {ok + "alternatives = 7\n", "", "test.star: alternatives is True or False, not a int"},
		"unknown setting":     {ok, "deep=7", `test.star: "deep" is no setting of it: did you mean "seed"?`},
		"misspelt setting":    {ok + "d = setting('depth', 1)\n", "dept=7", `test.star: "dept" is no setting of it: did you mean "depth"?`},
		"setting twice":       {ok + "d = setting('d', 1)\ne = setting('d', 2)\n", "", `test.star:4:12: setting "d" is there twice`},
		"common setting":      {ok + "d = setting('steps', 1)\n", "", `test.star:3:12: setting "steps": choose another name`},
		"no number":           {ok + "d = setting('d', 1)\n", "d=x", `test.star:3:12: setting d must be a whole number or a time as 30m, not "x"`},
		"NaN":                 {ok + "d = setting('d', 1.5)\n", "d=NaN", `test.star:3:12: setting d must be a number, not "NaN"`},
		"steps":               {ok, "steps=1", `test.star: steps must be a whole number from 1000`},
		"memory":              {ok, "memory=1T", `test.star: memory must be a size from 64K to 1G, not "1T"`},
		"fallback":            {ok, "fallback=esay", `test.star: setting fallback: there is no policy "esay"`},
		"no value":            {ok, "depth", `test.star: "depth" is no setting: write it as key=value`},
		"too long":            {ok + "#" + long("x", MaxSource), "", "test.star: the file has 65568 bytes: at most 65536"},
		"brackets":            {ok + "x = " + long("(", 30000), "", "test.star:3:69: this is nested more than 64 levels deep"},
		"square brackets":     {ok + "x = " + long("[", 30000), "", "levels deep"},
		"minus signs":         {ok + "x = " + long("-", 60000) + "1\n", "", "levels deep"},
		"nots":                {ok + "x = " + long("not ", 15000) + "1\n", "", "levels deep"},
		"lambdas":             {ok + "x = " + long("lambda:", 9000) + "1\n", "", "levels deep"},
		"conditions":          {ok + "x = " + long("1 if 1 else ", 5000) + "1\n", "", "levels deep"},
		"sums":                {ok + "x = 1" + long("+1", 30000) + "\n", "", "levels deep"},
		"calls":               {ok + "x = f" + long("()", 30000) + "\n", "", "levels deep"},
		"fields":              {ok + "x = f" + long(".a", 30000) + "\n", "", "levels deep"},
		"indexes":             {ok + "x = f" + long("[0]", 20000) + "\n", "", "levels deep"},
		"comprehensions":      {ok + "x = " + long("[1 for i in ", 5000) + "\n", "", "levels deep"},
		"many parts":          {"def decide(view, plan):\n  x = [" + long("1,", 500) + "]\n", "", "test.star:2:"},
		"many names":          {"def decide(view, plan):\n" + manyNames(200) + "  pass\n", "", "test.star:1:1: the function has 202 names of its own: at most 100"},
		"long text":           {ok + "x = '" + long("a", 2000) + "'\n", "", "test.star:3:5: this string has 2000 bytes: at most 1024"},
		"long number":         {ok + "x = " + long("9", 2000) + "\n", "", "test.star:3:5: this number has more than 256 bits"},
		"not UTF-8":           {ok + "x = '\xff\xfe'\n\xff", "", "test.star:4:1: "},
		"zeros":               {ok + "\x00\x00", "", "test.star:3:1: this is no text: it has a zero byte"},
		"nested functions":    {nested(12), "", "functions around this one"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load("test.star", []byte(c.source), c.settings, easyFallback)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v\nwant %s", err, c.want)
			}
		})
	}
}

func manyNames(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "  x%d = 1\n", i)
	}
	return b.String()
}

func nested(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%sdef %s(view, plan):\n", strings.Repeat(" ", i), []string{"decide", "f"}[min(i, 1)])
	}
	return b.String() + strings.Repeat(" ", n) + "pass\n"
}

// The guards do what the operations do that they stand for.
func TestGuardsKeepTheLanguage(t *testing.T) {
	const source = `
def check(got, want):
    if type(got) != type(want) or got != want:
        fail("got", got, "want", want)

def decide(view, plan):
    x = [1, 2]
    y = x
    x += [3]
    check(y, [1, 2, 3])
    x += (4,)
    check(y, [1, 2, 3, 4])
    x = x + [5]
    check(y, [1, 2, 3, 4])
    check(x * 2, [1, 2, 3, 4, 5] * 2)
    d = {"a": 1}
    e = d
    d |= {"b": 2}
    check(e, {"a": 1, "b": 2})
    d["a"] += 5
    d["l"] = [1]
    d["l"] += [2]
    check(d, {"a": 6, "b": 2, "l": [1, 2]})
    y[-1] *= 3
    check(y, [1, 2, 3, 12])
    s = "a"
    s += "b"
    s *= 3
    check(s, "ababab")
    check("%s-%d-%r" % ("x", 3, "y"), 'x-3-"y"')
    check("%d%%" % 5, "5%")
    check("{} {b} {0}".format(1, b = 2) if False else "{} {b}".format(1, b = 2), "1 2")
    check(" ".join(["a", "b"]), "a b")
    check("a,b,c".split(","), ["a", "b", "c"])
    check("a b".split(), ["a", "b"])
    check("abc".replace("b", "xx"), "axxc")
    check("abc".upper() + "ABC".lower() + "abc".title(), "ABCabcAbc")
    check([1, 2, 3][1:], [2, 3])
    check((1, 2, 3)[:2], (1, 2))
    check("hello"[::-1], "olleh")
    check(2 in [1, 2], True)
    check(5 not in (1, 2), True)
    check("b" in {"b": 1}, True)
    check("bc" in "abcd", True)
    check(sorted([3, 1, 2]), [1, 2, 3])
    check(sorted([3, 1, 2], key = lambda x: -x), [3, 2, 1])
    check(sorted(["b", "a"], reverse = True), ["b", "a"])
    check(min(3, 1), 1)
    check(max([1, 5, 2]), 5)
    check(max(["a", "bbb"], key = len), "bbb")
    check(list(range(3)), [0, 1, 2])
    check(tuple([1, 2]), (1, 2))
    check(list(reversed([1, 2])), [2, 1])
    check(enumerate(["a", "b"], 1), [(1, "a"), (2, "b")])
    check(zip([1, 2], ["a", "b"]), [(1, "a"), (2, "b")])
    check(dict([("a", 1)], b = 2), {"a": 1, "b": 2})
    check(dict({"a": 1}), {"a": 1})
    check({k: v for k, v in [("a", 1)]}, {"a": 1})
    check(list(set([1, 1, 2])), [1, 2])
    check(sorted(set([1, 2]) | set([3])), [1, 2, 3])
    check(set([1, 2]).union([3]), set([1, 2, 3]))
    check(any([0, 1]) and all([1, 1]), True)
    check(int("12") + int(3.7) + int("ff", 16), 270)
    check(str([1, "a"]), '[1, "a"]')
    check(repr("a"), '"a"')
    check(7 // 2 * 2 + 7 % 2, 7)
    check(1 << 10 | 1, 1025)
    check(6 & 3 ^ 1, 3)
    check(1 < 2 and 2 <= 2 and 3 > 2 and 3 >= 3 and 1 != 2, True)
    a, (b, c) = 1, (2, 3)
    check(a + b + c, 6)
    [p, q] = [1, 2]
    check(p - q, -1)
    l = [5, 6]
    check(l.pop(), 6)
    l.insert(0, 4)
    check(l.index(5), 1)
    l.remove(4)
    l.extend([1])
    check(l, [5, 1])
    dd = {"a": 1}
    check(dd.items(), [("a", 1)])
    check(dd.keys() + dd.values(), ["a", 1])
    check(dd.pop("a"), 1)
    dd.update([("z", 1)])
    check(dd.get("z"), 1)
    check(max(*[1, 2]), 2)
    check(dict(**{"k": 1}), {"k": 1})
    f = l.append
    f(9)
    check(l, [5, 1, 9])
    check([i * j for i in range(3) for j in range(3) if i != j], [0, 0, 0, 2, 0, 2])
    check((lambda x, y = 2: x + y)(1), 3)
    check(type(None), "NoneType")
    check((1, 2) < (1, 3), True)
    check(1.5 + 1, 2.5)
    check("a" + "b" if x else "", "ab")
    check(not [], True)
    check(-(3 + 4), -7)
    check(hasattr(view, "now"), True)
    check(bool(random(1)), False)
    check(SECOND * 60, MINUTE)
    check(GiB // MiB, 1024)
    state["steps"] = state.get("steps", 0) + 1
    print("step", state["steps"], view.restarted)
`
	p := load(t, source)
	s := policy.NewState(smallCluster(1), p)
	s.Step(0)
	s.Step(1)
	if tr := p.Trouble(); tr.Last != nil {
		t.Fatal(tr.Last)
	}
	if got := strings.Join(p.Printed(), "; "); got != "step 1 True; step 2 False" {
		t.Errorf("it printed %q", got)
	}
}

// Every method of the language's types is guarded, or known to need no guard.
func TestMethodsAreAllKnown(t *testing.T) {
	known := map[string]bool{}
	for name := range guardedMethods {
		known[name] = true
	}
	for _, name := range freeMethods {
		known[name] = true
	}
	for _, v := range []starlark.HasAttrs{starlark.String(""), starlark.NewList(nil), starlark.NewDict(0), starlark.NewSet(0), starlark.Bytes("")} {
		for _, name := range v.AttrNames() {
			if !known[name] {
				t.Errorf("%s.%s is new: is it guarded?", v.Type(), name)
			}
		}
	}
	free := map[string]bool{"None": true, "True": true, "False": true, "abs": true, "bool": true, "chr": true, "dir": true, "float": true,
		"hasattr": true, "hash": true, "len": true, "ord": true, "range": true, "type": true}
	for name := range starlark.Universe {
		if !free[name] && universe[name] == nil && name != "bytes" && name != "getattr" {
			t.Errorf("%s is new: is it guarded?", name)
		}
	}
}

// What a script keeps is bounded, over any number of steps, however it is hidden.
func TestStateIsBounded(t *testing.T) {
	for name, body := range map[string]string{
		"entries":   "n = len(state)\n  for i in range(2000): state[n + i] = i",
		"a list":    "state.setdefault('l', []).extend(range(2000))",
		"strings":   "l = state.setdefault('l', [])\n  for i in range(50): l.append('%d' % len(l) + 'a' * 1000)",
		"a closure": "def make():\n    l = []\n    return lambda n: l.extend(range(n))\n  state.setdefault('f', make())(2000)",
		"a method":  "l = []\n  state.setdefault('f', l.extend)(range(2000))",
		"another":   "l = []\n  state.setdefault('f', l.append)(list(range(2000)))",
		"a default": "l = []\n  def f(n, keep = l):\n    keep.extend(range(n))\n  state.setdefault('f', f)(2000)",
		"nesting":   "for i in range(1000): state['x'] = [state.get('x')]",
		"a cycle":   "l = state.setdefault('l', [])\n  l.append(l)\n  l.extend(range(3000))",
		"walks":     "state.setdefault('l', []).extend([('a' * 1000).elems() for i in range(500)])",
	} {
		t.Run(name, func(t *testing.T) {
			p := load(t, "def decide(view, plan):\n  "+body+"\n")
			s := policy.NewState(smallCluster(1), p)
			for i := range 300 {
				s.Step(0)
				if tr := p.Trouble(); tr.Last != nil {
					if !strings.Contains(tr.Last.Message, "state holds too much") || tr.Last.Line == 0 {
						t.Errorf("it ended with %v", tr.Last)
					}
					if p.in.state.Len() != 0 {
						t.Error("the state is still there")
					}
					return
				}
				if i == 299 {
					t.Error("nobody minds")
				}
			}
		})
	}
}

// A state that stays small costs little, and is never refused.
func TestSmallStateStays(t *testing.T) {
	p := load(t, "def decide(view, plan):\n  for i in range(1000): state[i] = state.get(i, 0) + 1\n")
	s := policy.NewState(smallCluster(1), p)
	for range 200 {
		s.Step(0)
	}
	if tr := p.Trouble(); tr.Last != nil {
		t.Fatal(tr.Last)
	}
}

func FuzzLoad(f *testing.F) {
	for _, b := range AllBundled() {
		f.Add(string(b.Source), "")
	}
	for _, body := range attacks {
		f.Add("def decide(view, plan):\n  "+body+"\n", "depth=1:steps=10000")
	}
	f.Fuzz(func(t *testing.T, source, settings string) {
		if len(settings) > 1000 {
			return
		}
		p, err := Load("f.star", []byte(source), settings+":steps=20000:memory=1M", easyFallback)
		if err != nil {
			if e, ok := err.(*Error); !ok || e.File != "f.star" || e.Message == "" || len(e.Message) > maxMessage+10 || e.Line < 0 || e.Column < 0 {
				t.Fatalf("refused with %#v", err)
			}
			return
		}
		s := policy.NewState(smallCluster(3), p)
		for i := range 3 {
			if _, err := s.Submit(oneNode(fmt.Sprint(i), 3)); err != nil {
				t.Fatal(err)
			}
			plan := s.Step(0)
			for i := range plan.Starts {
				if plan.Starts[i].Err != nil {
					t.Fatalf("it oversubscribed: %v", plan.Starts[i].Err)
				}
			}
		}
		if e := p.Trouble().Last; e != nil && strings.Contains(e.Message, "interpreter failed") {
			t.Fatal(e)
		}
		s.View()
	})
}

// Defaults are written as an administrator writes them, and are read back as they were.
func TestDefaultsAsWritten(t *testing.T) {
	for source, want := range map[string]string{
		"10 * MINUTE": "10m", "90 * SECOND": "1m30s", "HOUR": "1h", "DAY": "24h", "HOUR + SECOND": "1h0m1s", "SECOND": "1s", "7": "7", "0": "0", "GiB": "1073741824", "1.5": "1.5", "True": "True", "'a/b'": "a/b", "NEVER": "9223372036854775807",
	} {
		const file = "d = setting('d', %s)\ndef decide(view, plan):\n  print(d)\n"
		p, err := Load("test.star", fmt.Appendf(nil, file, source), "", easyFallback)
		if err != nil {
			t.Fatalf("%s: %v", source, err)
		}
		got := p.Options()[0].Default
		if got != want {
			t.Errorf("the default %s is written as %s, want %s", source, got, want)
		}
		again, err := Load("test.star", fmt.Appendf(nil, file, source), "d="+got, easyFallback)
		if err != nil {
			t.Fatalf("%s: %v", got, err)
		}
		if a, b := p.in.globals["d"], again.in.globals["d"]; a.String() != b.String() {
			t.Errorf("%s is read back as %v, and was %v", got, b, a)
		}
	}
}
