package stack

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"muster/internal/need"
)

// mix has a run of each example, short enough to be repeated often. Kernel calls build on each
// other, and --memory is checked at the end, so that lost updates are noticed.
var mix = [][]string{
	{"bp", "--size", "1k", "--repeat", "4"},
	{"bfs", "--size", "16k"},
	{"hotspot", "--size", "64"},
	{"nw", "--size", "256"},
	{"sp", "--size", "1k"},
	{"mt", "--size", "96", "--repeat", "40"},
	{"pr", "--size", "32k", "--repeat", "40"},
	{"sc", "--size", "4k", "--repeat", "40"},
	{"bs", "--size", "4k", "--repeat", "20"},
	{"va", "--size", "256k"},
	{"mm", "--size", "64", "--repeat", "20", "--cpu", "0.5"},
	{"weave", "--size", "4k", "--repeat", "30"},
	{"adfa", "--size", "48", "--repeat", "2"},
	{"pairs", "--size", "32", "--pairs", "3"},
	{"align", "--size", "32", "--pairs", "3"},
	{"procs", "--processes", "3", "--iterations", "3", "--kernels", "4", "--pattern", "alltoall", "--mpi-bytes", "3000"},
}

// result is what a program says without the times.
func result(output string) string {
	return regexp.MustCompile(`, [0-9.]+ s \(.*\)`).ReplaceAllString(output, "")
}

// alone are the results of the examples, each by itself on a roomy node.
func alone(t *testing.T) map[string]string {
	n := newWorld(t).start("--devices", "soft:memory=256M")
	results := map[string]string{}
	for _, words := range mix {
		results[words[0]] = result(n.launch(example(t, words[0]), words[1:]...).right())
		if !strings.Contains(results[words[0]], "right") {
			t.Fatalf("%s says %q", words[0], results[words[0]])
		}
	}
	n.idle()
	return results
}

// The results are the same with any configuration of the node: the number of virtual GPUs, the
// order of clients, when and where memory moves, and the way in which calls arrive.
func TestSameResults(t *testing.T) {
	t.Parallel()
	want := alone(t)
	seeds, copies := []uint64{1}, 2
	if allBetween {
		seeds = append(seeds, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
	}
	if testing.Short() {
		copies = 1
	}
	if text := os.Getenv("MUSTER_STACK_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seeds = []uint64{seed}
	}
	swaps, preemptions := 0.0, 0.0
	for _, seed := range seeds {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			n, way := randomNode(newWorld(t), rand.New(rand.NewPCG(seed, 0)))
			random := rand.New(rand.NewPCG(seed, 1))
			var programs []*program
			for range copies {
				for _, i := range random.Perm(len(mix)) {
					// They do not fit together.
					memory := fmt.Sprint(4 * random.IntN(1<<20))
					options := append([]string{"--memory", memory}, mix[i][1:]...)
					p := n.launchWith(way, example(t, mix[i][0]), options...)
					p.name = mix[i][0]
					programs = append(programs, p)
				}
			}
			for _, p := range programs {
				if got := result(p.right()); got != want[p.name] {
					t.Errorf("%s says %q, and alone %q", p.name, got, want[p.name])
				}
			}
			n.idle()
			swaps += n.total("muster_swaps_total")
			preemptions += n.total("muster_preemptions_total")
			if n.total("muster_faults_total") != 0 {
				t.Error("a program faulted")
			}
		})
	}
	t.Logf("%v swaps, %v preemptions", swaps, preemptions)
	if !t.Failed() && (swaps == 0 || preemptions == 0) {
		t.Errorf("%v swaps and %v preemptions: this was too easy", swaps, preemptions)
	}
}

// randomNode starts a node with a random configuration, and returns the options
// with which programs reach it.
func randomNode(w *world, r *rand.Rand) (*theNode, []string) {
	pick := func(words ...string) string { return words[r.IntN(len(words))] }
	args := []string{
		"--devices", fmt.Sprintf("soft:memory=%dM,workers=2;soft:memory=%dM,speed=%s,workers=1", 2*(4+r.IntN(8)), 2*(4+r.IntN(4)), pick("1", "0.5")),
		"--vgpus", pick("1", "2", "4"), "--policy", pick("fcfs", "sjf", "credit"), "--max-idle", pick("1ms", "10ms"),
		"--warm", pick("0", "2"), "--defer=" + pick("true", "false"),
	}
	if r.IntN(2) == 0 {
		args = append(args, "--swap-dir", w.T.TempDir())
	}
	if r.IntN(3) > 0 {
		w.Logf("muster node %s", strings.Join(args, " "))
		n := w.start(args...)
		return n, []string{"--socket", n.socket}
	}
	certs, user := certificates(w)
	args = append(args, "--listen", "127.0.0.1:0", "--tls-dir", certs)
	w.Logf("muster node %s", strings.Join(args, " "))
	n := w.start(args...)
	return n, []string{"--node", n.gateway, "--tls-dir", user}
}

// A program from another machine, whose streams call functions of its own: these fill
// pinned memory that copies behind them take.
func TestFunctionsFillPinnedMemoryElsewhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	certs, user := certificates(w)
	n := w.start("--devices", "soft:memory=64M", "--listen", "127.0.0.1:0", "--tls-dir", certs)
	w.launchWith([]string{"--node", n.gateway, "--tls-dir", user}, example(t, "weave"), "--size", "4k", "--repeat", "30").right()
	n.idle()
}

// certificates makes a node's folder and a user's.
func certificates(w *world) (nodeFolder, userFolder string) {
	dir := filepath.Join(w.T.TempDir(), "certs")
	w.muster("cert", dir, "--host", "127.0.0.1", "--user", "somebody")
	nodes, _ := filepath.Glob(dir + "/node-*")
	users, _ := filepath.Glob(dir + "/user-*")
	if len(nodes) != 1 || len(users) != 1 {
		w.Fatalf("muster cert made %v and %v", nodes, users)
	}
	return nodes[0], users[0]
}

// There are more processes than virtual GPUs, and all must reach the barrier before any continues:
// so a process that waits at the barrier must give up its virtual GPU.
func TestBarrier(t *testing.T) {
	t.Parallel()
	n := newWorld(t).start("--devices", "soft:memory=64M", "--vgpus", "2")
	n.launch(example(t, "procs"), "--processes", "6", "--iterations", "4", "--kernels", "2", "--elements", "4k", "--gpu-bytes", "4k", "--pattern", "barrier").right()
	if got := n.total("muster_preemptions_total"); got < 4 {
		t.Errorf("%v preemptions: six processes cannot have met four times on two virtual GPUs", got)
	}
	n.idle()
}

// With real MPI. No time of idleness makes a rank lose its GPU here: the
// collectives that it is in do.
func TestMPI(t *testing.T) {
	t.Parallel()
	mpiexec, err := exec.LookPath("mpiexec")
	if err != nil {
		need.Missing(t, need.MPI, "there is no mpiexec: install an MPI (Debian: mpich)")
	}
	for _, pattern := range []string{"barrier", "bcast", "scatter-gather", "alltoall"} {
		t.Run(pattern, func(t *testing.T) {
			w := newWorld(t)
			n := w.start("--devices", "soft:memory=64M", "--vgpus", "2", "--max-idle", "0")
			w.execute(mpiexec, "-n", "5", made("muster"), "run", "--mpi", "--socket", n.socket, "--",
				example(t, "phases"), "--iterations", "3", "--kernels", "2", "--elements", "4k", "--gpu-bytes", "4k", "--mpi-bytes", "4k", "--pattern", pattern).right()
			if got := n.total(`muster_preemptions_total{reason="sync"}`); got < 3 {
				t.Errorf("%v preemptions: five ranks cannot have met three times on two virtual GPUs", got)
			}
			n.idle()
		})
	}
}
