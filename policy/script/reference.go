package script

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"muster/internal/units"
)

// Reference is all that a script of decide(view, plan) may use, in Markdown. It is made of
// the tables that the interpreter uses, so that it cannot go stale.
func Reference() string {
	var b strings.Builder
	section := func(title, text string) { fmt.Fprintf(&b, "### %s\n%s\n\n", title, text) }
	line := func(name, help string) { fmt.Fprintf(&b, "| `%s` | %s |\n", name, help) }
	table := func(left, right string) { fmt.Fprintf(&b, "| %s | %s |\n|---|---|\n", left, right) }

	section("What a file defines", "Only `decide` is needed. All but the functions is said outside of functions, once.")
	table("name", "what it is")
	for _, d := range definitions {
		line(d[0], d[1])
	}
	b.WriteString("\n")
	section("view", "What there is, at this step. `view` and `plan` are the same values in every step.")
	table("field", "what it is")
	rows(fields(viewFields), line)
	b.WriteString("\n")
	table("call", "what it gives")
	rows(calls(viewMethods), line)
	b.WriteString("\n")
	section("plan", "What the script proposes. What is proposed is taken from the view at once.")
	table("call", "what it does")
	rows(calls(planMethods), line)
	b.WriteString("\n")
	section("A job", "Jobs are names: they may be kept in `state`, and tell what is so at the moment. They compare by the order in which they were submitted.")
	table("field", "what it is")
	rows(fields(jobFields), line)
	b.WriteString("\n")
	section("A node", "Nodes are given by `view.nodes()` and `view.node(name)`.")
	table("field", "what it is")
	rows(fields(nodeFields), line)
	b.WriteString("\n")
	section("Functions and constants", "Beside those of Starlark: `abs`, `all`, `any`, `bool`, `dict`, `enumerate`, `float`, `hasattr`, `int`, `len`, `list`, `max`, `min`, `range`, `repr`, `reversed`, `set`, `sorted`, `str`, `tuple`, `type`, `zip` and the methods of its types.")
	table("name", "what it is")
	for _, d := range functions {
		line(d[0], d[1])
	}
	b.WriteString("\n")
	section("Settings of every script", "Behind the name of the file, as `mine.star:fallback=first-fit:steps=200000`, and with them those that the file has of its own, and `preempt` and `qos` as every policy has them.")
	table("setting", "what it is")
	for _, o := range Common {
		line(o.Name+"="+o.Default, o.Summary)
	}
	b.WriteString("\n")
	section("Bounds", "")
	table("of what", "at most")
	for _, l := range limitsTold() {
		fmt.Fprintf(&b, "| %s | %s |\n", l[0], l[1])
	}
	return b.String()
}

var definitions = [][2]string{
	{"def decide(view, plan)", "is called at every step: when jobs have come or ended, nodes have changed, or a time has come that `plan.wake` named"},
	{"def why(view, job)", "says why a waiting job was not started, as a text; may be left out. It has a twentieth of the steps, and is not asked again once it has failed"},
	{"order = \"priority\"", "how the queue stands: by `priority`, by `submission`, or by `estimate`, the shortest first. Ranks, as of fair share, go before all of these"},
	{"placement = \"sharing\"", "where jobs may go: `sharing` places them beside others, `alone` on nodes that host no job, `borrowing` also with GPUs of other nodes"},
	{"alternatives = False", "whether the script chooses among a job's requests (`plan.start(job, alternative=1)`)"},
}

var functions = [][2]string{
	{"setting(name, default, summary=\"\")", "what the administrator gave behind the file's name, read as what the default is: a number (or a time as 30m), a text, or True or False. Outside of functions"},
	{"state", "a dictionary for what the script keeps between two steps. It is empty at first, and again after the script has failed; everything else outside of functions is frozen"},
	{"random(n)", "a number from 0 to n-1. The same seed and the same steps give the same numbers"},
	{"print(...)", "writes a line to the head's log, or to standard error in `muster policy try`"},
	{"fail(...)", "ends the step with a failure: the fallback decides"},
	{"SECOND, MINUTE, HOUR, DAY", "times: they are whole numbers, of nanoseconds, counted from when the head or the log began"},
	{"NEVER", "a time behind all others"},
	{"KiB, MiB, GiB", "sizes: they are whole numbers of bytes"},
}

func limitsTold() [][2]string {
	return [][2]string{
		{"a file", units.FormatSize(MaxSource)},
		{"steps of one call, about what a name or an operation is", fmt.Sprint(DefaultSteps)},
		{"memory that one call may ask for, garbage included", units.FormatSize(DefaultMemory) + ", beside some bytes for each step"},
		{"a text", units.FormatSize(maxString)},
		{"a number", fmt.Sprintf("%d bits", maxBits)},
		{"parts of a tuple, with those of the tuples in it", fmt.Sprint(maxTuple)},
		{"keys of a dictionary or set that are alike, such as numbers that differ by multiples of 65536, or in their fraction", fmt.Sprintf("%d, and more in large ones", fewKeys)},
		{"parts of a value that is compared or printed; levels", fmt.Sprintf("%d; %d", maxWeight, maxDepth)},
		{"`state`", fmt.Sprintf("%d parts, eight bytes of text are one", maxState/32)},
		{"levels of brackets, operations and blocks in a file", fmt.Sprint(maxSourceDepth)},
		{"parts of a statement in a function; its names; functions around it", fmt.Sprintf("%d; %d; %d", maxParts, maxLocals, maxNested-1)},
		{"lines printed in one step", fmt.Sprint(maxPrinted)},
	}
}

func rows(list map[string]string, line func(name, help string)) {
	for _, name := range slices.Sorted(maps.Keys(list)) {
		line(name, list[name])
	}
}

func fields[T any](table map[string]field[T]) map[string]string {
	out := map[string]string{}
	for name, f := range table {
		out[name] = f.help
	}
	return out
}

func calls[T any](table map[string]method[T]) map[string]string {
	out := map[string]string{}
	for _, m := range table {
		out[m.call] = m.help
	}
	return out
}
