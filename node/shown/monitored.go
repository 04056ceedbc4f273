package shown

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"time"

	"muster/device"
	"muster/node/settings"
	"muster/wire/status"
)

// Tools that watch GPUs load a library in C (nvml/), which reads this answer: lines of
// fields separated by tabs, with texts last. The first line has the version; the last
// one shows that nothing is missing.
const monitorHead, monitorEnd = "muster-monitor\t1\n", "end\n"

// maxMonitored is how many programs are listed.
const maxMonitored = 1024

// Lines is an answer that is not a JSON document.
type Lines []byte

// Monitored writes the answer.
func Monitored(node string, infos []device.Info, count int, memory uint64, s status.Node) Lines {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%snode\t%d\t%d\n", monitorHead, driverVersion(infos), nanoseconds(s.Up))
	common := LeastOf(infos)
	for i := range count {
		v := Visible(node, infos, i, i, memory)
		fmt.Fprintf(&b, "device\t%d\t%d\t%s", i, v.Memory, hex.EncodeToString(v.Uuid))
		for _, number := range []int{AttrComputeMajor, AttrComputeMinor, attrClock, attrMemoryClock, attrBusWidth, attrECC} {
			fmt.Fprintf(&b, "\t%d", common[number])
		}
		fmt.Fprintf(&b, "\t%d\t%s\n", 1+i, settings.Printable(v.Name)) // its number on the PCI bus, as programs see it
	}
	for _, c := range s.Clients[:min(len(s.Clients), maxMonitored)] {
		busy := 0
		if c.Busy {
			busy = 1
		}
		fmt.Fprintf(&b, "process\t%d\t%d\t%d\t%d\t%d\t%s\n", c.Virtual, c.Pid, c.Allocated, nanoseconds(c.BusyTime), busy, settings.Printable(c.Program))
	}
	b.WriteString(monitorEnd)
	return b.Bytes()
}

func nanoseconds(seconds float64) int64 { return int64(seconds * float64(time.Second)) }
