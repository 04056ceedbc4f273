package machine

import (
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

const (
	v2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	v1 = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n" +
		"32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n" +
		"35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
	// In a container that shares its host's names of groups, its own group is at the top.
	contained = "32 31 0:29 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n" +
		"35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
)

func TestLimits(t *testing.T) {
	const none = uint64(unlimited)
	for _, c := range []struct {
		name         string
		groups       string // /proc/self/cgroup
		mounts       string // /proc/self/mountinfo
		files        map[string]string
		memory, free uint64
		withSwap     uint64 // of a machine with 1000 bytes of memory and 500 of swap space
		cpus         int
	}{
		{name: "no control groups", memory: none, free: none, withSwap: 1500, cpus: math.MaxInt},
		{
			name: "version 2 without limits", groups: "0::/user.slice\n", mounts: v2,
			files:  map[string]string{"user.slice/memory.max": "max\n", "user.slice/memory.swap.max": "max\n", "user.slice/cpu.max": "max 100000\n"},
			memory: none, free: none, withSwap: 1500, cpus: math.MaxInt,
		},
		{
			name: "version 2, the process's own group", groups: "0::/a/b\n", mounts: v2,
			files: map[string]string{
				"a/b/memory.max": "300\n", "a/b/memory.current": "250\n", "a/b/memory.stat": "anon 100\ninactive_file 40\n", "a/b/memory.swap.max": "20\n",
				"a/b/cpu.max": "150000 100000\n", "a/memory.max": "max\n", "a/cpu.max": "max 100000\n",
			},
			memory: 300, free: 90, withSwap: 320, cpus: 2,
		},
		{
			name: "version 2, a limit in a parent", groups: "0::/a/b/c\n", mounts: v2,
			files: map[string]string{
				"a/b/c/memory.max": "900\n", "a/b/c/memory.current": "10\n", "a/b/memory.max": "max\n", "a/memory.max": "500\n", "a/memory.current": "480\n",
				"a/b/c/cpu.max": "max 100000\n", "a/cpu.max": "50000 100000\n", "a/memory.swap.max": "0\n",
			},
			memory: 500, free: 20, withSwap: 500, cpus: 1,
		},
		{
			name: "version 2, more used than allowed", groups: "0::/a\n", mounts: v2,
			files:  map[string]string{"a/memory.max": "100\n", "a/memory.current": "120\n"},
			memory: 100, free: 0, withSwap: 600, cpus: math.MaxInt,
		},
		{
			name: "version 2, in a container with names of its own", groups: "0::/\n", mounts: v2,
			files:  map[string]string{"memory.max": "70\n", "cpu.max": "300000 100000\n"},
			memory: 70, free: none, withSwap: 570, cpus: 3,
		},
		{
			name: "version 2, in a group outside of what is mounted", groups: "0::/../other\n", mounts: v2,
			files:  map[string]string{"memory.max": "70\n"},
			memory: 70, free: none, withSwap: 570, cpus: math.MaxInt,
		},
		{
			name: "version 1 without limits", groups: "4:memory:/x\n3:cpu,cpuacct:/x\n", mounts: v1,
			files: map[string]string{
				"memory/x/memory.limit_in_bytes": "9223372036854771712\n", "memory/x/memory.usage_in_bytes": "10\n",
				"cpu,cpuacct/x/cpu.cfs_quota_us": "-1\n", "cpu,cpuacct/x/cpu.cfs_period_us": "100000\n",
			},
			memory: 9223372036854771712, free: 9223372036854771702, withSwap: 1500, cpus: math.MaxInt,
		},
		{
			name: "version 1, limits in the group and above", groups: "4:memory:/x/y\n3:cpu,cpuacct:/x/y\n0::/\n", mounts: v1,
			files: map[string]string{
				"memory/x/y/memory.limit_in_bytes": "400\n", "memory/x/y/memory.usage_in_bytes": "100\n", "memory/x/y/memory.stat": "inactive_file 1\ntotal_inactive_file 30\n",
				"memory/x/memory.limit_in_bytes": "350\n", "memory/x/memory.usage_in_bytes": "300\n", "memory/x/memory.memsw.limit_in_bytes": "380\n",
				"cpu,cpuacct/x/cpu.cfs_quota_us": "400000\n", "cpu,cpuacct/x/cpu.cfs_period_us": "100000\n",
			},
			memory: 350, free: 50, withSwap: 380, cpus: 4,
		},
		{
			name: "version 1, in a container", groups: "4:memory:/docker/abc\n3:cpu:/docker/abc/in\n", mounts: contained,
			files:  map[string]string{"memory/memory.limit_in_bytes": "60\n", "cpu/in/cpu.cfs_quota_us": "200000\n", "cpu/in/cpu.cfs_period_us": "100000\n"},
			memory: 60, free: none, withSwap: 560, cpus: 2,
		},
		{
			name: "both, as where systemd names groups of version 2 only", groups: "4:memory:/m\n0::/s\n", mounts: v1 + "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
			files:  map[string]string{"memory/m/memory.limit_in_bytes": "80\n"},
			memory: 80, free: none, withSwap: 580, cpus: math.MaxInt,
		},
		{
			name: "files that make no sense", groups: "x\n::\n0::/a\n", mounts: "nothing\n" + v2,
			files:  map[string]string{"a/memory.max": "much\n", "a/cpu.max": "1\n", "memory.max": "", "cpu.max": "100 0\n"},
			memory: none, free: none, withSwap: 1500, cpus: math.MaxInt,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			write(t, filepath.Join(root, "proc/self/cgroup"), c.groups)
			write(t, filepath.Join(root, "proc/self/mountinfo"), c.mounts)
			for name, text := range c.files {
				write(t, filepath.Join(root, "sys/fs/cgroup", name), text)
			}
			g := groupsBelow(root)
			if got := g.memory(); got != c.memory {
				t.Errorf("memory %d, not %d", got, c.memory)
			}
			if got := g.freeMemory(); got != c.free {
				t.Errorf("%d free, not %d", got, c.free)
			}
			if got := g.memoryAndSwap(1000, 500); got != c.withSwap {
				t.Errorf("memory and swap %d, not %d", got, c.withSwap)
			}
			if got := g.cpus(); got != c.cpus {
				t.Errorf("%d processors, not %d", got, c.cpus)
			}
		})
	}
}

func TestEscapedNames(t *testing.T) {
	if got := unescape(`/a\040b\134c\`); got != `/a b\c\` {
		t.Errorf("%q", got)
	}
}

// This machine has something.
func TestThisMachine(t *testing.T) {
	memory, err := Memory()
	free, ok := FreeMemory()
	withSwap, swapErr := MemoryAndSwap()
	if err != nil || swapErr != nil || !ok || memory == 0 || free > memory || withSwap < memory || CPUs() < 1 || CPUs() > runtime.NumCPU() {
		t.Errorf("memory %d (%v), free %d (%v), with swap %d (%v), %d processors", memory, err, free, ok, withSwap, swapErr, CPUs())
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
