package nvmltest

import (
	"flag"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/*.txt anew, with the answers of now: read the difference")

// nvidia-smi gives up after some answers that other tools accept. The scripts are the calls that
// version 580 made with NVIDIA's library, in its order and with its structs, and after each is what
// this library answers for the good node's devices.
func TestCallsOfNvidiaSmi(t *testing.T) {
	folder := made(t, "address,undefined")
	driver := regexp.MustCompile(`(?m)^(nvmlSystemGetDriverVersion .* = Success ).*$`) // the loaded one's, if there is one
	for _, name := range []string{"nvidia-smi", "nvidia-smi-q", "nvidia-smi-pmon"} {
		t.Run(name, func(t *testing.T) {
			file := "testdata/" + name + ".txt"
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			stdout, stderr, err := run(t, folder, play(t, say(good)), nil, questions(string(want)), "replay")
			stdout = driver.ReplaceAllString(stdout, "${1}(the driver's)")
			if err != nil || stderr != "" {
				t.Fatalf("%v, complained %s", err, stderr)
			}
			if *rewrite {
				if err := os.WriteFile(file, []byte(stdout), 0o666); err != nil {
					t.Fatal(err)
				}
			} else if stdout != string(want) {
				t.Errorf("printed\n%s\nwant\n%s", stdout, want)
			}
		})
	}
}

// What a tool asks for and does not get is named in the trace: a function without a body once, what
// a body refuses each time, and slots of the private table by number.
func TestTrace(t *testing.T) {
	folder := made(t, "address,undefined")
	const script = `nvmlDeviceGetPowerUsage D u
nvmlInitWithFlags 0
nvmlInternalGetExportTable T I
nvmlInternalGetExportTable T L
nvmlDeviceGetHandleByIndex_v2 1 d
nvmlDeviceGetPowerUsage D u
nvmlDeviceGetFanSpeed D u
nvmlDeviceGetFanSpeed D u
nvmlDeviceGetMaxClockInfo D 2 u
nvmlDeviceGetIndex D 0
nvmlDeviceGetFieldValues D 1 f95x1
table[26] L L L
table[72] D u
table[300] D u
table[301] L u
`
	const refused = `muster: nvmlDeviceGetPowerUsage is not supported
muster: table 6e76696469612d736d69000000000000 is not supported
muster: nvmlDeviceGetFanSpeed is not supported
muster: nvmlDeviceGetMaxClockInfo is not supported for what it was asked
muster: table c4fe3e6c[300] is not supported for what it was asked
muster: table c4fe3e6c[301] is unknown and was agreed to
`
	const all = `muster: nvmlDeviceGetPowerUsage
muster: nvmlDeviceGetPowerUsage answers Uninitialized
muster: nvmlInitWithFlags
muster: nvmlInternalGetExportTable
muster: nvmlInternalGetExportTable
muster: table 6e76696469612d736d69000000000000 is not supported
muster: nvmlInternalGetExportTable answers Invalid Argument
muster: nvmlDeviceGetHandleByIndex_v2
muster: nvmlDeviceGetPowerUsage
muster: nvmlDeviceGetPowerUsage answers Not Supported
muster: nvmlDeviceGetFanSpeed
muster: nvmlDeviceGetFanSpeed answers Not Supported
muster: nvmlDeviceGetFanSpeed
muster: nvmlDeviceGetFanSpeed answers Not Supported
muster: nvmlDeviceGetMaxClockInfo
muster: nvmlDeviceGetMaxClockInfo answers Not Supported
muster: nvmlDeviceGetIndex
muster: nvmlDeviceGetIndex answers Invalid Argument
muster: nvmlDeviceGetFieldValues
muster: nvmlDeviceGetFieldValues refuses field 95 of scope 0
muster: table c4fe3e6c[26]
muster: table c4fe3e6c[72]
muster: table c4fe3e6c[300]
muster: table c4fe3e6c[300] answers Not Supported
muster: table c4fe3e6c[301]
muster: table c4fe3e6c[301] is unknown and was agreed to
`
	for level, want := range map[string]string{"0": "", "1": refused, "2": all} {
		_, stderr, err := run(t, folder, play(t, say(good)), []string{"MUSTER_TRACE=" + level}, script, "replay")
		if err != nil || stderr != want {
			t.Errorf("MUSTER_TRACE=%s: %v, it complained\n%s\nwant\n%s", level, err, stderr, want)
		}
	}
}

// Tools that watch programs get the share of each, and only what they have not seen; about events
// they learn that there are none.
func TestShares(t *testing.T) {
	folder := made(t, "address,undefined")
	const want = `nvmlInit_v2 = Success
nvmlDeviceGetHandleByIndex_v2 0 d = Success a device
nvmlDeviceGetProcessUtilization D 0 c9 0 = Insufficient Size
nvmlDeviceGetProcessUtilization D x2 c2 0 = Success [2000000001 100% in this century, others 0 0 0] [2000000002 0% in this century, others 0 0 0] 2
nvmlDeviceGetProcessUtilization D x1 c1 0 = Insufficient Size
nvmlDeviceGetProcessUtilization D x2 c2 0x7fffffffffffffff = Not Found
nvmlDeviceGetProcessUtilization D x2 0 0 = Invalid Argument
nvmlDeviceGetProcessesUtilizationInfo D m2 = Success [2000000001 100% in this century] [2000000002 0% in this century]
nvmlDeviceGetProcessesUtilizationInfo D m0 = Insufficient Size
nvmlDeviceGetProcessesUtilizationInfo D s24:2000018 = Argument version mismatch
nvmlDeviceGetProcessesUtilizationInfo D 0 = Invalid Argument
nvmlDeviceGetRunningProcessDetailList D l2 = Success [2000000001 1000 -1 -1 0] [2000000002 24 -1 -1 0]
nvmlDeviceGetRunningProcessDetailList D l1 = Insufficient Size
nvmlDeviceGetRunningProcessDetailList D s24:2000018 = Argument version mismatch
nvmlDeviceGetSamples D 1 0 u c9 y = Success 1 1 100 in this century
nvmlDeviceGetSamples D 1 0 u c9 0 = Success 1 1
nvmlDeviceGetSamples D 1 0x7fffffffffffffff u c9 y = Not Found
nvmlDeviceGetSamples D 2 0 u c9 y = Not Supported
nvmlDeviceGetSupportedEventTypes D w = Success 0
nvmlEventSetCreate e = Success a set
nvmlDeviceRegisterEvents D 8 E = Not Supported
nvmlDeviceRegisterEvents D 0 E = Success
nvmlEventSetWait_v2 E s32 1 = Timeout
nvmlEventSetFree E = Success
nvmlEventSetFree E = Invalid Argument
nvmlEventSetWait_v2 E s32 1 = Invalid Argument
nvmlEventSetFree 0 = Invalid Argument
nvmlShutdown = Success
nvmlEventSetCreate e = Uninitialized
`
	stdout, stderr, err := run(t, folder, play(t, say(good)), nil, questions(want), "replay")
	if err != nil || stderr != "" || stdout != want {
		t.Errorf("%v, complained %s, printed\n%s\nwant\n%s", err, stderr, stdout, want)
	}
}

// A program's share is that of its own kernels' time between two pictures. Each picture here is a
// second after the last; in it, the second program's kernels ran for a tenth of the time, while the
// first has one that has not ended and a third program begins.
func TestShareOverTime(t *testing.T) {
	folder := made(t, "address,undefined")
	var asked atomic.Int64
	socket := play(t, func(request string, conn net.Conn) {
		n := asked.Add(1)
		now := strings.Replace(good, "\t5000000000", fmt.Sprintf("\t%d", n*1e9), 1)
		now = strings.Replace(now, "\t24\t0\t0\tsecond", fmt.Sprintf("\t24\t%d\t0\tsecond", n*1e8), 1)
		if n > 1 {
			now = strings.Replace(now, "process\t0\t2000000001", "process\t0\t2000000009\t5\t700\t0\tnew\nprocess\t0\t2000000001", 1)
		}
		say(now)(request, conn)
	})
	// The wait is longer than a picture is used.
	const script = `nvmlInit_v2
nvmlDeviceGetHandleByIndex_v2 0 d
nvmlEventSetCreate e
nvmlEventSetWait_v2 E s32 150
nvmlDeviceGetProcessUtilization D x3 c3 0
`
	stdout, stderr, err := run(t, folder, socket, nil, script, "replay")
	const want = "Success [2000000009 0% in this century, others 0 0 0] [2000000001 100% in this century, others 0 0 0] [2000000002 10% in this century, others 0 0 0] 3\n"
	if err != nil || stderr != "" || !strings.HasSuffix(stdout, want) {
		t.Errorf("%v, complained %s, printed\n%s\nwant at its end\n%s", err, stderr, stdout, want)
	}
}

// questions are the calls of a script without their answers.
func questions(script string) string {
	return regexp.MustCompile(`(?m) = .*$`).ReplaceAllString(script, "")
}
