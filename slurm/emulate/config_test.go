package emulate

import (
	"encoding/binary"
	"flag"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"muster/slurm/release"
)

var update = flag.Bool("update", false, "rewrite testdata")

// The whole configuration, as Slurm reads it.
func TestConfiguration(t *testing.T) {
	o, err := Options{Nodes: 12, GPUs: 2, GPUNodes: 4, JobSubmit: "return 0", Release: release.Newest(),
		Extra: "slurmdTimeout = 5\nPartitionName=more Nodes=n01\nLicenses=rgpu:3\n# MinJobAge=1"}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	l := layout{Options: o, folder: "/tmp/c", user: "joe", controller: 10240, nodes: []int{10242, 10243, 10244, 10246, 10247, 10248, 10249, 10250, 10251, 10252, 10253, 10299}}
	got := l.slurmConf() + "\n# gres.conf\n" + l.gresConf()
	file := filepath.Join("testdata", "configuration.txt")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || string(want) != got {
		t.Errorf("the configuration changed (go test ./slurm/emulate -run Configuration -update rewrites %s): %v\n%s", file, err, got)
	}
}

func TestNoGPUs(t *testing.T) {
	o, err := Options{Nodes: 1}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	l := layout{Options: o, folder: "/tmp/c", user: "joe", controller: 1, nodes: []int{7}}
	if conf := l.slurmConf(); strings.Contains(conf, "Licenses") || !strings.Contains(conf, "NodeName=n1 NodeHostname=muster NodeAddr=127.0.0.1 Port=7 CPUs=8 RealMemory=16000 State=UNKNOWN\n") || l.gresConf() != "" {
		t.Errorf("got %s%s", conf, l.gresConf())
	}
}

func TestAccountLines(t *testing.T) {
	file := filepath.Join(t.TempDir(), "passwd")
	if err := os.WriteFile(file, []byte("root:x:0:0:root:/root:/bin/zsh\njoe:x:7:7::/home/joe:/bin/fish\njane:x:1000:8::/home/jane:/bin/zsh\nbin:x:2:2::/bin:/usr/sbin/nologin\nbroken\n# no:x:1:1\nann:x:9:9::/a:/bin/ksh"), 0o644); err != nil {
		t.Fatal(err)
	}
	got := accountLines([]string{"muster:x:1000:1000::/:/bin/bash", "root:x:0:0::/root:/bin/bash"}, file)
	want := "muster:x:1000:1000::/:/bin/bash\nroot:x:0:0::/root:/bin/bash\njoe:x:7:7::/home/joe:/bin/bash\nbin:x:2:2::/bin:/usr/sbin/nologin\nann:x:9:9::/a:/bin/bash\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got := accountLines([]string{"a:x:1:1"}, filepath.Join(t.TempDir(), "none")); got != "a:x:1:1\n" {
		t.Errorf("without a list: %q", got)
	}
}

func TestNumbers(t *testing.T) {
	for want, list := range map[string][]int{"5": {5}, "[5-6]": {5, 6}, "[5,7]": {5, 7}, "[5-7,9-10,12]": {5, 6, 7, 9, 10, 12}} {
		if got := numbers(list); got != want {
			t.Errorf("%v: got %s", list, got)
		}
	}
}

// FuzzRequest sends anything to the door: it is refused, or it is a request, and open files are found.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"argv":["sinfo"],"dir":"/"}`), uint32(28))
	f.Add([]byte(`{}`), uint32(1<<31))
	f.Add([]byte(``), uint32(9))
	f.Fuzz(func(t *testing.T, text []byte, size uint32) {
		pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		ours, theirs := unixConn(t, pair[0]), unixConn(t, pair[1])
		defer theirs.Close()
		go func() {
			defer ours.Close()
			ours.Write(append(binary.BigEndian.AppendUint32(nil, size), text...))
		}()
		if r, files, err := readRequest(theirs); err == nil && (size > maxRequest || len(files) > 0) {
			t.Errorf("got %v with %v", r, files)
		}
	})
}

func unixConn(t *testing.T, fd int) *net.UnixConn {
	t.Helper()
	file := os.NewFile(uintptr(fd), "socket")
	defer file.Close()
	c, err := net.FileConn(file)
	if err != nil {
		t.Fatal(err)
	}
	return c.(*net.UnixConn)
}

func TestRequestsCarryFiles(t *testing.T) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := unixConn(t, pair[0]), unixConn(t, pair[1])
	defer ours.Close()
	defer theirs.Close()
	sent := request{Argv: []string{"srun", "x y"}, Env: []string{"A=" + strings.Repeat("b", 1<<20)}, Dir: "/d"}
	go sendRequest(ours, sent, 0, 1, 2)
	r, files, err := readRequest(theirs)
	if err != nil || len(files) != 3 || len(r.Env[0]) != 1<<20+2 || r.Argv[1] != "x y" {
		t.Errorf("got %d files, %v", len(files), err)
	}
	for _, fd := range files {
		syscall.Close(fd)
	}
}

func TestJobEnvironment(t *testing.T) {
	c := &inner{spec: &spec{Folder: "/tmp/c"}}
	got := c.jobEnvironment([]string{"A=1", "PATH=/tmp/c/bin:/usr/bin:/tmp/c/bin", "SLURM_CONF=/other", "LD_LIBRARY_PATH=/x"})
	want := []string{"A=1", "LD_LIBRARY_PATH=/x", "PATH=/usr/bin", "SLURM_CONF=/tmp/c/slurm.conf"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}
