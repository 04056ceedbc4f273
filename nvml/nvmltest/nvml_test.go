package nvmltest

import (
	"bufio"
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"muster/internal/need"
)

// built are the library and the program that queries it, each made once: with a sanitiser, and
// without.
var built = map[string]func() (string, error){
	"address,undefined": sync.OnceValues(func() (string, error) { return build("address,undefined") }),
	"":                  sync.OnceValues(func() (string, error) { return build("") }),
}

var scratch string

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "nvmltest"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(scratch)
	os.Exit(code)
}

func build(sanitise string) (folder string, err error) {
	folder, err = os.MkdirTemp(scratch, "")
	if err != nil {
		return "", err
	}
	sources, err := filepath.Glob("../*.c")
	if err != nil || len(sources) == 0 {
		return "", fmt.Errorf("no sources: %w", err)
	}
	flags := []string{"-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O0", "-g1", "-pthread"}
	if sanitise != "" {
		flags = append(flags, "-fsanitize="+sanitise, "-fno-sanitize-recover=all")
	}
	library := append(append([]string{"-fPIC", "-fvisibility=hidden", "-shared", "-Wl,-soname,libnvidia-ml.so.1", "-o", folder + "/libnvidia-ml.so.1"}, flags...), sources...)
	program := func(name string) []string {
		return append([]string{"-o", folder + "/" + name, "../test/" + name + ".c", "-ldl"}, flags...)
	}
	for _, args := range [][]string{library, program("query"), program("replay")} {
		if said, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w\n%s", err, said)
		}
	}
	return folder, nil
}

// made returns the folder with what was built.
func made(t *testing.T, sanitise string) string {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		need.Missing(t, need.Compiler, "no gcc")
	}
	folder, err := built[sanitise]()
	if err != nil {
		t.Fatal(err)
	}
	return folder
}

var nodes atomic.Int64

// play listens as a node does, and lets do answer each connection.
func play(t *testing.T, do func(request string, conn net.Conn)) (socket string) {
	t.Helper()
	socket = fmt.Sprintf("@muster-nvml-%d-%d", os.Getpid(), nodes.Add(1))
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				request, _ := bufio.NewReader(conn).ReadString('\n')
				do(request, conn)
			}()
		}
	}()
	return socket
}

// say gives every connection the same answer.
func say(answer string) func(string, net.Conn) {
	return func(_ string, conn net.Conn) { _, _ = conn.Write([]byte(answer)) }
}

// run runs one of the programs, with settings and input.
func run(t *testing.T, folder, socket string, settings []string, input, program string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	limit, stop := context.WithTimeout(context.Background(), 4*time.Minute)
	defer stop()
	command := exec.CommandContext(limit, folder+"/"+program, args...)
	command.Env = append(os.Environ(), "LD_LIBRARY_PATH="+folder, "MUSTER_SOCKET="+socket, "MUSTER_MEMORY=123", "MUSTER_TRACE=0", "ASAN_OPTIONS=detect_leaks=0")
	command.Env = append(command.Env, settings...)
	var out, complaints bytes.Buffer
	command.Stdin, command.Stdout, command.Stderr = strings.NewReader(input), &out, &complaints
	err = command.Run()
	return out.String(), complaints.String(), err
}

func query(t *testing.T, folder, socket string, args ...string) (stdout string, err error) {
	t.Helper()
	stdout, stderr, err := run(t, folder, socket, nil, "", "query", args...)
	if stderr != "" {
		t.Errorf("it complained: %s", stderr)
	}
	return stdout, err
}

const good = "muster-monitor\t1\nnode\t13000\t5000000000\n" +
	"device\t0\t1048576\t000102030405060708090a0b0c0d0e0f\t9\t0\t1980000\t3201000\t6144\t1\t1\tA GPU\n" +
	"device\t1\t1048576\tf00102030405060708090a0b0c0d0e0f\t8\t9\t0\t0\t0\t0\t2\tAnother\n" +
	"process\t0\t2000000001\t1000\t0\t1\tfirst\n" +
	"process\t0\t2000000002\t24\t0\t0\tsecond program\n" +
	"process\t1\t2000000003\t99999999999\t0\t0\tthird\n" +
	"process\t7\t2000000004\t1\t0\t0\tof a device that is no more\n" +
	"end\n"

const before = "before: Uninitialized, Uninitialized\n"

func TestGoodNode(t *testing.T) {
	folder := made(t, "address,undefined")
	asked := make(chan string, 100)
	socket := play(t, func(request string, conn net.Conn) {
		asked <- request
		say(good)(request, conn)
	})
	const first = `cuda 13000, the driver's version is in the library's, 2 devices
device 0 A GPU GPU-00010203-0405-0607-0809-0a0b0c0d0e0f found
a short buffer: Insufficient Size
memory 1048576 1024 1047552, 1024 0
another struct: Argument version mismatch
capability 9.0, utilization 100
pci 00000000:01:00.0 0000:01:00.0 1 0000:01:00.0, beyond the oldest struct 7070707
by its bus found, not found: Not Found, Invalid Argument
nvmlDeviceGetIndex 0
nvmlDeviceGetMinorNumber 0
nvmlDeviceGetArchitecture 9
nvmlDeviceGetPersistenceMode 1
nvmlDeviceGetComputeMode 0
nvmlDeviceGetDisplayMode 0
nvmlDeviceGetMemoryBusWidth 6144
nvmlDeviceGetMaxMigDeviceCount 0
nvmlDeviceGetPowerUsage: Not Supported
nvmlDeviceGetFanSpeed: Not Supported
nvmlDeviceGetPerformanceState: Not Supported
memory clock 3201 Success
mig 0 0
processes: 2, with no room for them Insufficient Size
process 2000000001 first 1000 1000
process 2000000002 second program 24 24
`
	const second = `device 1 Another GPU-f0010203-0405-0607-0809-0a0b0c0d0e0f found
a short buffer: Insufficient Size
memory 1048576 1048576 0, 1048576 0
another struct: Argument version mismatch
capability 8.9, utilization 0
pci 00000000:02:00.0 0000:02:00.0 2 0000:02:00.0, beyond the oldest struct 7070707
by its bus found, not found: Not Found, Invalid Argument
nvmlDeviceGetIndex 1
nvmlDeviceGetMinorNumber 1
nvmlDeviceGetArchitecture 8
nvmlDeviceGetPersistenceMode 1
nvmlDeviceGetComputeMode 0
nvmlDeviceGetDisplayMode 0
nvmlDeviceGetMemoryBusWidth: Not Supported
nvmlDeviceGetMaxMigDeviceCount 0
nvmlDeviceGetPowerUsage: Not Supported
nvmlDeviceGetFanSpeed: Not Supported
nvmlDeviceGetPerformanceState: Not Supported
memory clock 0 Not Supported
mig 0 0
processes: 1, with no room for them Insufficient Size
process 2000000003 third 99999999999 99999999999
beyond the last: Invalid Argument; no device: Invalid Argument
table: 2 processes, the first 2000000001 with 1000; another table: Invalid Argument
the child: 0
`
	stdout, err := query(t, folder, socket)
	if want := before + first + second; err != nil || stdout != want {
		t.Errorf("%v, printed\n%s\nwant\n%s", err, stdout, want)
	}
	if request := <-asked; request != "{\"request\":\"monitor\",\"memory\":123}\n" {
		t.Errorf("it asked %q", request)
	}
}

// Whatever a node answers, the library reports that there is no node, and nothing breaks.
func TestBadNodes(t *testing.T) {
	folder := made(t, "address,undefined")
	line := func(from, to string) string { return strings.Replace(good, from, to, 1) }
	many := strings.Repeat("process\t0\t1\t1\t0\t0\tx\n", 2000)
	for name, answer := range map[string]string{
		"nothing": "", "a document": "{\"error\":\"no\"}\n", "no end": strings.TrimSuffix(good, "end\n"), "more after the end": good + "end\n",
		"another version": line("muster-monitor\t1", "muster-monitor\t2"), "no head": line("muster-monitor\t1\n", ""), "no node": line("node\t13000\t5000000000\n", ""),
		"a NUL": line("A GPU", "A\x00GPU"), "a device twice": line("device\t1", "device\t0"), "a large place": line("device\t1", "device\t99999999999999999999"),
		"a negative number": line("\t1048576", "\t-5"), "no number": line("\t1048576", "\tx"), "an odd UUID": line("0001020304", "000102030g"), "a short UUID": line("0001020304", "00010203"),
		"a short line": line("\t1\tA GPU", ""), "an unknown line": line("process", "progress"), "too many programs": line("end\n", many+"end\n"),
		"too many devices": line("process", strings.Repeat("device\t2\t1\t000102030405060708090a0b0c0d0e0f\t9\t0\t0\t0\t0\t0\t1\tX\nprocess", 1)+"\nprocess"),
		"too much":         strings.Repeat("x", 3<<20), "no devices": "muster-monitor\t1\nnode\t13000\t5\nend\n", "a long line": line("A GPU", strings.Repeat("y", 2<<20)),
	} {
		t.Run(name, func(t *testing.T) {
			stdout, err := query(t, folder, play(t, say(answer)))
			if want := before + "init: Driver Not Loaded\n"; err == nil || stdout != want {
				t.Errorf("%v, printed %q, want %q", err, stdout, want)
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		if stdout, err := query(t, folder, "@muster-nvml-nobody"); err == nil || stdout != before+"init: Driver Not Loaded\n" {
			t.Errorf("%v, printed %q", err, stdout)
		}
	})
}

// Damaged answers do no harm: the sanitiser checks.
func TestDamagedAnswers(t *testing.T) {
	folder := made(t, "address,undefined")
	const seed = 7
	r := rand.New(rand.NewPCG(seed, seed))
	for i := range 40 {
		bad := []byte(good)
		for range 1 + r.IntN(4) {
			switch at := r.IntN(len(bad)); r.IntN(3) {
			case 0:
				bad[at] = byte(r.IntN(256))
			case 1:
				bad = append(bad[:at], bad[min(len(bad), at+1+r.IntN(30)):]...)
			case 2:
				bad = append(bad[:at:at], append([]byte(strings.Repeat("9", r.IntN(300))), bad[at:]...)...)
			}
		}
		stdout, err := query(t, folder, play(t, say(string(bad))))
		if !strings.HasPrefix(stdout, before) {
			t.Errorf("seed %d, answer %d: %v, printed %q\n%q", seed, i, err, stdout, bad)
		}
	}
}

// A node that falls silent costs a tool one wait, not one for each of its calls; the loss of a node
// is reported.
func TestSilentNode(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for a node that does not answer")
	}
	folder := made(t, "")
	var asked atomic.Int64
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	socket := play(t, func(request string, conn net.Conn) {
		if asked.Add(1) == 1 {
			say(good)(request, conn)
			return
		}
		<-release
	})
	stdout, err := query(t, folder, socket, "300", "1") // longer than a picture is used
	if want := before + "the last: GPU is lost, 0%\nthe child: 0\n"; err != nil || stdout != want {
		t.Errorf("%v, printed %q, want %q", err, stdout, want)
	}
	if n := asked.Load(); n < 2 || n > 10 { // on a busy machine the tool takes so long that it asks again
		t.Errorf("the node was asked %d times for 300 calls, want 2", n)
	}
}

// A burst of calls is answered from one picture.
func TestBurst(t *testing.T) {
	folder := made(t, "")
	var asked atomic.Int64
	socket := play(t, func(request string, conn net.Conn) {
		asked.Add(1)
		say(good)(request, conn)
	})
	stdout, err := query(t, folder, socket, "100000")
	if want := before + "the last: Success, 100%\nthe child: 0\n"; err != nil || stdout != want {
		t.Errorf("%v, printed %q, want %q", err, stdout, want)
	}
	if n := asked.Load(); n > 1000 {
		t.Errorf("the node was asked %d times for 100000 calls", n)
	}
}

// How busy a device is follows from what the node says of kernels' time: here each picture is a
// second later, in which kernels ran for a quarter of the time.
func TestUtilization(t *testing.T) {
	folder := made(t, "")
	var asked atomic.Int64
	socket := play(t, func(request string, conn net.Conn) {
		n := asked.Add(1)
		now := strings.Replace(good, "\t5000000000", fmt.Sprintf("\t%d", n*1e9), 1)
		say(strings.Replace(now, "\t1000\t0\t1\tfirst", fmt.Sprintf("\t1000\t%d\t1\tfirst", n*25e7), 1))(request, conn)
	})
	stdout, err := query(t, folder, socket, "300", "1") // longer than a picture is used
	if want := before + "the last: Success, 25%\nthe child: 0\n"; err != nil || stdout != want {
		t.Errorf("%v, printed %q, want %q", err, stdout, want)
	}
	if n := asked.Load(); n < 2 {
		t.Errorf("the node was asked %d times", n)
	}
}

// Every function of NVIDIA's library can be found, and nothing else.
func TestExports(t *testing.T) {
	folder := made(t, "")
	list, err := os.ReadFile("../names.h")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^(?:NAME|TEXT)\((nvml\w+)\)$`).FindAllSubmatch(list, -1) {
		names[string(m[1])] = true
	}
	if len(names) < 400 {
		t.Fatalf("only %d names were found", len(names))
	}
	f, err := elf.Open(folder + "/libnvidia-ml.so.1")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	exported := map[string]bool{}
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF {
			exported[s.Name] = true
			if !names[s.Name] {
				t.Errorf("%s is exported and not in names.h", s.Name)
			}
		}
	}
	for name := range names {
		if !exported[name] {
			t.Errorf("%s is not exported", name)
		}
	}
}
