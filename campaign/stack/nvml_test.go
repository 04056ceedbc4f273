package stack

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// allocated waits until the node knows about a program's memory, which its worker reports from time
// to time.
func (n *theNode) allocated(d *dialogue, bytes uint64) (pid int32) {
	n.Helper()
	n.eventually("the node knows of the memory", func() bool {
		for _, c := range n.status().Clients {
			if c.Allocated >= bytes {
				pid = c.Pid
				return true
			}
		}
		return false
	})
	return pid
}

// A GPU monitoring tool finds, under muster run, the devices that a CUDA program sees there, and
// the programs on them with their memory.
func TestToolsThatWatchGPUs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.start("--devices", "soft:memory=64M;soft:memory=64M")
	c := w.counter("--socket", n.socket)
	c.ask("alloc 2000000")
	pid := n.allocated(c, 8000000)
	said := w.launchWith([]string{"--socket", n.socket, "--memory", "16MiB"}, made("query")).right()
	for _, want := range []string{
		"2 devices\n", "device 0 Muster software GPU GPU-", "device 1 Muster software GPU GPU-", "memory 16777216 8", "processes: 1, with no room for them Insufficient Size\n",
		fmt.Sprintf("process %d counter 8", pid), "memory 16777216 0 16777216, 0 0\n", "nvmlDeviceGetPowerUsage: Not Supported\n", "table: 1 processes, the first " + fmt.Sprint(pid) + " with 8",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in\n%s", want, said)
		}
	}
	if _, err := exec.LookPath("python3"); err == nil {
		w.asksInPython(n, pid)
	}
	c.kill()
}

// asksInPython queries through Python's packages.
func (w *world) asksInPython(n *theNode, pid int32) {
	w.Helper()
	const program = `
import ctypes
nvml = ctypes.CDLL("libnvidia-ml.so.1")
class Memory(ctypes.Structure): _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]
class Process(ctypes.Structure): _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("instance", ctypes.c_uint), ("compute", ctypes.c_uint)]
assert nvml.nvmlInit_v2() == 0
device, count, memory, name, some = ctypes.c_void_p(), ctypes.c_uint(), Memory(), ctypes.create_string_buffer(96), (Process * 8)()
assert nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0
assert nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
assert nvml.nvmlDeviceGetName(device, name, 96) == 0
assert nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)) == 0
processes = ctypes.c_uint(8)
assert nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(processes), some) == 0
assert nvml.nvmlDeviceGetTemperature(device, 0, ctypes.byref(count)) == 3
print(name.value.decode(), memory.used == memory.total - memory.free, [p.pid for p in some[:processes.value]])
`
	said := w.launchWith([]string{"--socket", n.socket}, "python3", "-c", program).right()
	if want := fmt.Sprintf("Muster software GPU True [%d]\n", pid); said != want {
		w.Errorf("Python says %q, want %q", said, want)
	}
}
