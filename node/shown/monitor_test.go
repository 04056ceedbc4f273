package shown

import (
	"testing"

	"muster/device"
	"muster/wire/status"
)

// The library in C reads these bytes: a change here is a change there, and of the
// version in the first line.
func TestMonitorLines(t *testing.T) {
	infos := []device.Info{{
		Name: "A GPU", Memory: 1 << 30, Compute: device.Compute{Major: 9, Minor: 0}, Driver: 12080,
		Attributes: map[int]int{attrClock: 1980000, attrMemoryClock: 3201000, attrBusWidth: 6144, attrECC: 1},
	}}
	s := status.Node{Up: 2.5, Clients: []status.Client{
		{Pid: 17, Virtual: 1, Allocated: 4096, BusyTime: 0.25, Busy: true, Program: "a\tb\nprogram"},
		{Pid: 18, Program: ""},
	}}
	const want = "muster-monitor\t1\n" +
		"node\t12080\t2500000000\n" +
		"device\t0\t1048576\t7e1d5e6500318a862665573cf701bbfe\t9\t0\t1980000\t3201000\t6144\t1\t1\tA GPU\n" +
		"device\t1\t1048576\tfeb5a02b82f7f6f0872bafcfb34d993f\t9\t0\t1980000\t3201000\t6144\t1\t2\tA GPU\n" +
		"process\t1\t17\t4096\t250000000\t1\ta?b?program\n" +
		"process\t0\t18\t0\t0\t0\t\n" +
		"end\n"
	if got := string(Monitored("n1", infos, 2, 1<<20, s)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
