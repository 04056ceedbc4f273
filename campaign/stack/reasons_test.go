package stack

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

var reasons = sync.OnceValue(func() error { return compile("reasons") })

// needReasons builds the program that provokes errors.
func needReasons(t *testing.T) {
	t.Helper()
	if err := reasons(); err != nil {
		t.Fatal(err)
	}
}

// told are Muster's lines in the output of a program and muster run, except the one about the start
// of a node.
func told(t *testing.T, output string) []string {
	t.Helper()
	var lines []string
	for line := range strings.Lines(output) {
		text, ours := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "muster: ")
		if ours && !strings.HasPrefix(text, "started a node for this program alone") {
			lines = append(lines, text)
		}
		if strings.Contains(line, "muster: muster:") {
			t.Errorf("a doubled beginning: %s", line)
		}
		if strings.Contains(line, "level=") {
			t.Errorf("the log of a node in what a program says: %s", line)
		}
	}
	return lines
}

// one expects one line of Muster's that matches.
func one(t *testing.T, output, want string) {
	t.Helper()
	lines := told(t, output)
	if len(lines) != 1 || !regexp.MustCompile("^"+want+"$").MatchString(lines[0]) {
		t.Errorf("it was told %q\nwant %s", lines, want)
	}
}

// The message about a fault is the same that muster ptx run prints for the same kernel, and appears
// once.
func TestFaultsHaveReasons(t *testing.T) {
	needReasons(t)
	printed := exec.Command(made("reasons"), "ptx")
	printed.Env = append(os.Environ(), "LD_LIBRARY_PATH="+made("lib"))
	text, err := printed.Output()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kernels.ptx")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	out, _ := exec.Command(made("muster"), "ptx", "run", file, "--kernel", "poke", "--grid", "1", "--block", "1", "--arg", "u64:16").CombinedOutput()
	want := regexp.MustCompile(`kernel poke: illegal address 0x10 in block \(0,0,0\), thread \(0,0,0\), at line \d+ \(st\.global\.u32 \[%d0\], %r0\)`).Find(out)
	if want == nil {
		t.Fatalf("muster ptx run said %s", out)
	}
	for name, options := range ways(t) {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			way := options(w)
			one(t, w.launchWith(way, made("reasons"), "faults", "1").right(), regexp.QuoteMeta(string(want)))
			t.Setenv("MUSTER_QUIET", "1")
			if got := told(t, w.launchWith(way, made("reasons"), "faults", "1").right()); len(got) != 0 {
				t.Errorf("a program that wants quiet was told %q", got)
			}
		})
	}
}

// A program that faults a thousand times, with a new context each time, gets only a few messages.
func TestFaultsDoNotFlood(t *testing.T) {
	t.Parallel()
	needReasons(t)
	times := 1000
	if testing.Short() {
		times = 50
	}
	n := newWorld(t).start("--devices", "soft:memory=64M")
	lines := told(t, n.launch(made("reasons"), "faults", fmt.Sprint(times)).right())
	if len(lines) < 10 || len(lines) > 20 { // 10, and one for each 10 seconds
		t.Fatalf("of %d faults it was told %d times: %q", times, len(lines), lines)
	}
	for i, line := range lines[:10] {
		if !strings.HasPrefix(line, fmt.Sprintf("kernel poke: illegal address %#x in block", 0x10+8*i)) {
			t.Errorf("fault %d: %q", i, line)
		}
	}
	if !strings.HasSuffix(lines[9], "(if more follow, one each 10s is shown)") {
		t.Errorf("the last of many: %q", lines[9])
	}
	n.idle()
}

// The error for a refused image names the reason in the image, to the user and to programs that
// request the log.
func TestImagesHaveReasons(t *testing.T) {
	t.Parallel()
	needReasons(t)
	const head = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k()\n{\n\t.reg .b32 %r;\n"
	cases := []struct{ name, image, result, reason string }{
		{"an instruction that does not exist", head + "\tnonsense.u32 %r;\n}\n", "CUDA_ERROR_INVALID_PTX",
			"the PTX of the image cannot be used: module.ptx:7:2: nonsense.u32: this instruction is not supported"},
		{"a register that does not exist", head + "\tmov.u32 %r, %q;\n}\n", "CUDA_ERROR_INVALID_PTX",
			`the PTX of the image cannot be used: module.ptx:7:14: "%q" is not declared`},
		{"PTX of tomorrow", ".version 99.9\n.target sm_70\n", "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
			"the PTX of the image is of a newer version than the device knows: module.ptx:1:10: this is PTX 99.9, and PTX 2.3 to 9.x can be read: compile the source with an older nvcc or clang"},
		{"no PTX", "nonsense", "CUDA_ERROR_INVALID_IMAGE",
			`not a usable module image: module.ptx:1:1: expected .version as the first directive, found "nonsense"`},
	}
	for name, options := range ways(t) {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			way := options(w)
			for _, c := range cases {
				p := w.launchWith(way, made("reasons"), "load")
				_, _ = p.stdin.Write([]byte(c.image))
				got := p.right()
				one(t, got, regexp.QuoteMeta(c.reason))
				results, logs := 3, 2
				if strings.HasPrefix(c.image, ".version") { // it is linked too
					results, logs = 4, 3
				}
				if strings.Count(got, c.result+"\n") != results || strings.Count(got, "log: error: "+c.reason+"\n") != logs {
					t.Errorf("%s: it said %s", c.name, got)
				}
			}
		})
	}
}

// A fat binary without code for the device says what to do.
func TestMachineCodeHasAReason(t *testing.T) {
	t.Parallel()
	needReasons(t)
	n := newWorld(t).start("--devices", "soft:memory=64M")
	image, err := os.ReadFile("../../device/soft/testdata/cubin.fatbin")
	if err != nil {
		t.Fatal(err)
	}
	p := n.launch(made("reasons"), "load")
	_, _ = p.stdin.Write(image)
	got := p.right()
	one(t, got, "the fat binary holds no PTX, only machine code for real GPUs: rebuild the program with PTX in it.*")
	if strings.Count(got, "CUDA_ERROR_NO_BINARY_FOR_GPU\n") != 3 {
		t.Errorf("it said %s", got)
	}
}

// A program that gets no memory is told, once, which limit applies and how to change it.
func TestMemoryHasReasons(t *testing.T) {
	t.Parallel()
	needReasons(t)
	const oom = "CUDA_ERROR_OUT_OF_MEMORY\n"
	again := func(n *theNode, options []string, bytes int) string {
		n.Helper()
		got := n.launchWith(append([]string{"--socket", n.socket}, options...), made("reasons"), "allocate", fmt.Sprint(bytes), "100").right()
		if !strings.Contains(got, oom) {
			n.Errorf("it said %s", got)
		}
		return got
	}
	t.Run("of the device", func(t *testing.T) {
		n := newWorld(t).start("--devices", "soft:memory=64M")
		one(t, again(n, nil, 65<<20), "an allocation of 65 MiB: the program sees 64 MiB of device memory and has allocated 0 B of it: "+
			"give it more with muster run --memory, more than the device has if need be")
	})
	t.Run("as asked for", func(t *testing.T) {
		n := newWorld(t).start("--devices", "soft:memory=64M")
		one(t, again(n, []string{"--memory", "48M"}, 1<<40), `an allocation of 1 TiB: the program sees 48 MiB of device memory and has allocated 0 B of it: `+
			`give it more with muster run --memory \(MUSTER_RUN_MEMORY\), more than the device has if need be`)
	})
	t.Run("of the user, for one program", func(t *testing.T) {
		n := newWorld(t).configured("devices: [{soft: {memory: 64MiB}}]\nlimits: {default: {memory: 32MiB}}\n")
		one(t, again(n, []string{"--memory", "48M"}, 33<<20), "an allocation of 33 MiB: the program sees 32 MiB of device memory and has allocated 0 B of it: "+
			"no program of this user may have more: ask the administrator to raise the user's memory under limits in the node's configuration")
	})
	t.Run("of the user, for all programs", func(t *testing.T) {
		n := newWorld(t).configured("devices: [{soft: {memory: 64MiB}}]\nlimits: {default: {memory: 32MiB}}\n")
		beside := n.launch(made("small"), "keep", fmt.Sprint(20<<20/4))
		beside.says("keeping")
		one(t, again(n, nil, 16<<20), `an allocation of 16 MiB: user \S+ has no more memory on this node \(32 MiB, of which the user's other programs have \S+ MiB\): `+
			"end another program, or ask the administrator to raise the user's memory under limits in the node's configuration")
		beside.right()
	})
	t.Run("of the swap area", func(t *testing.T) {
		n := newWorld(t).start("--devices", "soft:memory=32M", "--swap", "40M")
		beside := n.launch(made("small"), "keep", fmt.Sprint(20<<20/4))
		beside.says("keeping")
		one(t, again(n, nil, 30<<20), `an allocation of 30 MiB: the node's swap area is full \(40 MiB, of which other programs have \S+ MiB\): `+
			`wait for other programs to end, or ask the administrator to raise swap.size in the node's configuration \(muster node --swap\)`)
		beside.right()
	})
	t.Run("all of the swap area", func(t *testing.T) {
		n := newWorld(t).start("--devices", "soft:memory=64M", "--swap", "40M")
		one(t, again(n, nil, 50<<20), "an allocation of 50 MiB: the program sees 40 MiB of device memory and has allocated 0 B of it: "+
			`that is all of the node's swap area: ask the administrator to raise swap.size in the node's configuration \(muster node --swap\)`)
	})
	t.Run("for a kernel", func(t *testing.T) {
		n := newWorld(t).start("--devices", "soft:memory=16M", "--swap", "64M")
		got := n.launchWith([]string{"--socket", n.socket, "--memory", "48M"}, made("reasons"), "touch", fmt.Sprint(40<<20)).right()
		one(t, got, `kernel add: 40 MiB of device memory are needed at a time, more than any device of the node has for a program \(the largest has 16 MiB\): `+
			"use smaller allocations, or a node with a larger device")
		if !strings.Contains(got, oom+"CUDA_SUCCESS\n") {
			t.Errorf("it said %s", got)
		}
	})
	t.Run("elsewhere", func(t *testing.T) {
		w := newWorld(t)
		certs, user := certificates(w)
		n := w.start("--devices", "soft:memory=64M", "--listen", "127.0.0.1:0", "--tls-dir", certs)
		one(t, w.launchWith([]string{"--node", n.gateway, "--tls-dir", user}, made("reasons"), "allocate", fmt.Sprint(65<<20), "100").right(),
			"an allocation of 65 MiB: the program sees 64 MiB of device memory and has allocated 0 B of it: .*")
	})
}

// A program that cannot be served hears why.
func TestServiceHasReasons(t *testing.T) {
	t.Parallel()
	needReasons(t)
	w := newWorld(t)
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 50), "swap")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	n := w.start("--devices", "soft:memory=64M", "--swap", "32M", "--swap-dir", dir)
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	p := n.launch(made("reasons"), "faults", "1")
	if code := p.wait(); code != 1 {
		t.Errorf("it ended with %d", code)
	}
	one(t, p.output.String(), "no worker can serve the program: making the swap file: open "+regexp.QuoteMeta(dir)+`/muster-swap-\d+: no such file or directory`)
	n.idle()
}
