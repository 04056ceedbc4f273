package node

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"time"

	"muster/device"
	"muster/wire/status"
)

// Tools that watch GPUs load a library in C (nvml/), which reads this answer: lines of
// fields separated by tabs, with texts last. The first line has the version; the last
// one shows that nothing is missing.
const monitorHead, monitorEnd = "muster-monitor\t1\n", "end\n"

// maxMonitored is how many programs are listed.
const maxMonitored = 1024

// lines is an answer that is not a JSON document.
type lines []byte

// answerMonitor describes the devices as a program that the asking user starts would
// see them, and the clients that use them.
func (d *daemon) answerMonitor(who peer, line []byte) (any, error) {
	var r struct {
		Request string `json:"request"`
		Memory  uint64 `json:"memory"` // what the asker's programs are to see; 0: all
	}
	if err := strictly(line, &r); err != nil {
		return nil, err
	}
	infos := d.stock.Load().infos()
	if len(infos) == 0 {
		return nil, errNoDevices
	}
	s, ok := d.status()
	if !ok {
		return nil, errShuttingDown
	}
	memory := d.worldOf(infos, r.Memory, d.live().Limits.of(who.user))
	return monitored(d.cfg.Name, infos, d.visibleCount(infos, 0), memory, s), nil
}

// monitored writes the answer.
func monitored(node string, infos []device.Info, count int, memory uint64, s status.Node) lines {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%snode\t%d\t%d\n", monitorHead, driverVersion(infos), nanoseconds(s.Up))
	common := leastOf(infos)
	for i := range count {
		v := visible(node, infos, i, i, memory)
		fmt.Fprintf(&b, "device\t%d\t%d\t%s", i, v.Memory, hex.EncodeToString(v.Uuid))
		for _, number := range []int{attrComputeMajor, attrComputeMinor, attrClock, attrMemoryClock, attrBusWidth, attrECC} {
			fmt.Fprintf(&b, "\t%d", common[number])
		}
		fmt.Fprintf(&b, "\t%d\t%s\n", 1+i, printable(v.Name)) // its number on the PCI bus, as programs see it
	}
	for _, c := range s.Clients[:min(len(s.Clients), maxMonitored)] {
		busy := 0
		if c.Busy {
			busy = 1
		}
		fmt.Fprintf(&b, "process\t%d\t%d\t%d\t%d\t%d\t%s\n", c.Virtual, c.Pid, c.Allocated, nanoseconds(c.BusyTime), busy, printable(c.Program))
	}
	b.WriteString(monitorEnd)
	return b.Bytes()
}

func nanoseconds(seconds float64) int64 { return int64(seconds * float64(time.Second)) }
