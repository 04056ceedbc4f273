package demo

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"time"

	"muster/internal/screen"
	"muster/internal/units"
	"muster/report"
	"muster/wire/api"
)

// liveView is the demonstration on a terminal.
type liveView struct {
	out    *os.File
	close  func()
	began  time.Time
	before map[string]float64 // how long each device had been busy when it was drawn
	at     time.Time          // and when that was
	share  map[string]float64 // how busy it was since
}

func openScreen(out *os.File) *liveView {
	return &liveView{out: out, close: screen.Open(out), began: time.Now(), share: map[string]float64{}}
}

// draw shows the last lines of the story, the nodes with their GPUs, and the jobs that
// have not ended.
func (s *liveView) draw(d *tour) {
	s.measure(d)
	var b bytes.Buffer
	fmt.Fprintf(&b, "muster demo: a head and three nodes on this machine, %s. Ctrl-C ends it.\n", seconds(time.Since(s.began).Seconds()))
	if d.shown != "" {
		fmt.Fprintf(&b, "%s\n", d.shown)
	}
	fmt.Fprintln(&b)
	lines := strings.Split(strings.TrimSpace(d.story.String()), "\n")
	for _, line := range lines[max(0, len(lines)-3):] {
		fmt.Fprintln(&b, line)
	}
	fmt.Fprintln(&b)
	_ = s.nodes(d).WriteText(&b)
	fmt.Fprintln(&b)
	jobs, over := jobsNow(d.seen)
	_ = jobs.WriteText(&b)
	fmt.Fprintf(&b, "\n%d jobs have ended\n", over)
	_ = screen.Draw(s.out, b.String())
}

// measure finds out how busy devices were in the last half second.
func (s *liveView) measure(d *tour) {
	now := time.Now()
	if s.before != nil && now.Sub(s.at) < 500*time.Millisecond {
		return
	}
	busy := map[string]float64{}
	for name, node := range d.seen.status {
		for i, device := range node.Devices {
			at := place(name, i)
			busy[at] = device.BusyTime
			if before, ok := s.before[at]; ok {
				s.share[at] = min(1, max(0, (device.BusyTime-before)/now.Sub(s.at).Seconds()))
			}
		}
	}
	s.before, s.at = busy, now
}

func (s *liveView) nodes(d *tour) *report.Table {
	t := &report.Table{Columns: report.Columns("<NODE", "<STATE", "<GPU", ">MEMORY", ">SPEED", "<BUSY", "<JOBS")}
	for _, node := range d.seen.nodes {
		rows := [][]string{}
		for i, device := range node.Devices {
			rows = append(rows, []string{"", "", device.Name, units.BriefSize(uint64(device.Memory)), fmt.Sprint(device.Speed), busyBar(s.share[place(node.Name, i)]), list(device.Jobs)})
		}
		if len(rows) == 0 {
			rows = [][]string{{"", "", "none", "", "", "", list(node.Jobs)}}
		}
		rows[0][0], rows[0][1] = node.Name, string(node.State)
		t.Rows = append(t.Rows, rows...)
	}
	return t
}

func list(jobs []uint64) string { return strings.Trim(fmt.Sprint(jobs), "[]") }

// busyBar draws a share of 1.
func busyBar(share float64) string {
	const width = 10
	n := int(share*width + 0.5)
	return strings.Repeat("#", n) + strings.Repeat(".", width-n)
}

func jobsNow(s *seen) (t *report.Table, over int) {
	t = &report.Table{Columns: report.Columns("<JOB", "<NAME", "<STATE", "<ON", ">RAN", "<WAITS FOR")}
	for _, j := range s.jobs {
		if j.State.Over() {
			over++
			continue
		}
		reason := ""
		if j.State == api.Pending {
			reason = j.Reason
		}
		t.Rows = append(t.Rows, []string{numberOf(j), j.Name, string(j.State), j.NodeList, seconds(j.Elapsed), reason})
	}
	return t, over
}
