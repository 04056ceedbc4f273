package stack

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"muster/node/trace/tracetest"
)

// shown is a timeline, and what muster trace said.
type shown struct {
	events []tracetest.Event
	said   string
}

// traces runs a program under muster trace.
func (w *world) traces(status int, options []string, path string, args ...string) shown {
	w.Helper()
	file := filepath.Join(w.T.TempDir(), "trace.json")
	all := slices.Concat([]string{"trace", "-o", file}, options, []string{"--", path}, args)
	p := w.execute(made("muster"), all...)
	if got := p.wait(); got != status {
		w.Fatalf("%v ended with %d, not %d: %s", args, got, status, p.output)
	}
	document, err := os.ReadFile(file)
	if err != nil {
		w.Fatal(err)
	}
	return shown{tracetest.Check(w.T, document), p.output.String()}
}

// of returns the names of the events of a category, in order.
func (s shown) of(category string) (names []string) {
	for _, e := range s.events {
		if e.Cat == category {
			names = append(names, *e.Name)
		}
	}
	return names
}

func count(names []string, name string) (n int) {
	for _, other := range names {
		if other == name {
			n++
		}
	}
	return n
}

// The timeline of a small program, however it reaches its node, has every call in order, and each
// kernel and copy once on the device.
func TestTimeline(t *testing.T) {
	t.Parallel()
	if err := compile("traced"); err != nil {
		t.Fatal(err)
	}
	calls := "cuInit cuCtxCreate_v2 cuModuleLoadData cuModuleGetFunction cuMemAlloc_v2 cuMemcpyHtoD_v2 " +
		"cuLaunchKernel cuLaunchKernel cuLaunchKernel cuCtxSynchronize cuMemcpyDtoH_v2"
	for name, options := range ways(t) {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := w.traces(0, options(w), made("traced"), "3")
			if got := strings.Join(s.of("call"), " "); got != calls {
				t.Errorf("calls:\n%s\nwant\n%s", got, calls)
			}
			if got := strings.Join(s.of("device"), ", "); got != "add, add, add, copy out" {
				t.Errorf("on the device: %s", got)
			}
			if got := s.of("node"); count(got, "wait for a device") != 1 || count(got, "open the device") != 1 || count(got, "copy in, kept on the host") != 1 || count(got, "swap in") != 1 {
				t.Errorf("on the node: %q", got)
			}
			for _, want := range []string{"muster: where the time went, from the first call to the last (", "muster: the timeline is in "} {
				if !strings.Contains(s.said, want) {
					t.Errorf("no %q in:\n%s", want, s.said)
				}
			}
		})
	}
}

// A program that is killed has a timeline of all its calls; muster trace ends as it did.
func TestTimelineOfTheKilled(t *testing.T) {
	t.Parallel()
	if err := compile("traced"); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	s := w.traces(-1, []string{"--private"}, made("traced"), "5", "kill")
	if got := s.of("call"); count(got, "cuLaunchKernel") != 5 || count(got, "cuMemcpyDtoH_v2") != 1 {
		t.Errorf("calls: %q", got)
	}
	if !strings.Contains(s.said, "it ended without exit()") {
		t.Errorf("nothing is said of what may be missing:\n%s", s.said)
	}
}

// A child of the program is in the same timeline.
func TestTimelineOfChildren(t *testing.T) {
	t.Parallel()
	if err := compile("traced"); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	s := w.traces(0, []string{"--private"}, made("traced"), "4", "fork")
	launches, kernels := map[int]int{}, map[int]int{}
	for _, e := range s.events {
		switch *e.Name {
		case "cuLaunchKernel":
			launches[*e.Pid]++
		case "add":
			kernels[*e.Pid]++
		}
	}
	for what, per := range map[string]map[int]int{"launches": launches, "kernels": kernels} {
		var counts []int
		for _, n := range per {
			counts = append(counts, n)
		}
		if slices.Sort(counts); !slices.Equal(counts, []int{1, 4}) {
			t.Errorf("%s of the processes: %v", what, per)
		}
	}
}

// A program with very many calls has a timeline of limited size, with its beginning and its end,
// exact sums, and a sentence about what was left out.
func TestTimelineIsBounded(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("many launches")
	}
	if err := compile("traced"); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	const many, limit = 20_000, 2000
	s := w.traces(0, []string{"--private", "--limit", fmt.Sprint(limit)}, made("traced"), fmt.Sprint(many))
	calls := s.of("call")
	if len(calls) != limit || calls[0] != "cuInit" || calls[limit-1] != "cuMemcpyDtoH_v2" {
		t.Errorf("%d calls, from %s to %s", len(calls), calls[0], calls[len(calls)-1])
	}
	if n := len(s.of("device")) + len(s.of("node")); n > limit {
		t.Errorf("%d things that the node did", n)
	}
	for _, want := range []string{"left out: 18,008 of 20,008 calls of process", "of what the node did for process"} {
		if !strings.Contains(s.said, want) {
			t.Errorf("no %q in:\n%s", want, s.said)
		}
	}
}

// The timeline does not show the names of other users' programs, but those of the same user's.
func TestTimelineShowsOthers(t *testing.T) {
	t.Parallel()
	if err := compile("traced"); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	n, users := remoteNode(w)
	for i, user := range users {
		other := n.launchWith([]string{"--node", n.gateway, "--tls-dir", users[0]}, made("small"), "until", "1000", "3")
		n.eventually("the other computes", func() bool {
			now := n.status()
			return len(now.Clients) == 1 && now.Clients[0].Device != nil
		})
		s := w.traces(0, []string{"--node", n.gateway, "--tls-dir", user}, made("traced"), "3")
		shown := strings.Join(s.of("others"), ", ")
		if want := []string{"small (client ", "another user's program"}[i]; !strings.Contains(shown, want) || strings.Contains(shown, []string{"another", "small"}[i]) {
			t.Errorf("user %d sees %q, not %q", i, shown, want)
		}
		other.right()
		n.idle()
	}
}

// The timeline of a program with elements shows what each asked for, which node had which object,
// and what moved: of elements in C and in Go alike.
func TestTimelineOfElements(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the whole run does this, without the race detector")
	}
	near, far := elementCluster(t)
	way := []string{"--socket", near.socket, "--nodes", far.gateway}
	for _, c := range []struct {
		program     string
		args, calls []string
	}{
		{"vectoradd", []string{"1"}, []string{"allocate VECA", "master of VECA", "mirror of VECA, whose master is on node 0", "map VECA", "put VECC", "wait for element 1", "signal"}},
		{"dmm", []string{"128", "4"}, []string{"create elements"}},
	} {
		s := near.traces(0, way, made(c.program), c.args...)
		names := s.of("ivm")
		for _, want := range c.calls {
			if count(names, want) == 0 {
				t.Errorf("%s: no %q is in %q", c.program, want, names)
			}
		}
		moved := false
		for _, e := range s.events {
			moved = moved || e.Cat == "ivm" && strings.HasPrefix(*e.Name, "map ") && !strings.Contains(string(e.Args), `"fetched":0`)
		}
		if !moved || !strings.Contains(s.said, " elements on 2 nodes: ") {
			t.Errorf("%s: no map fetched anything in %q, and it said %s", c.program, names, s.said)
		}
	}
}
