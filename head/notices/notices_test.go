package notices

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"muster/wire/agent"
)

// A notice begins at its bound and ends below half of it, and what is shown of it is how it is now.
func TestStanding(t *testing.T) {
	var s Standing
	memory := []int64{1 << 30, 2 << 30}
	for i, step := range []struct {
		load       agent.Load
		want, list []string
	}{
		{load: agent.Load{}},
		{agent.Load{Used: []int{1000, 1000}, Waiting: 2, Longest: 50 * time.Second, SwapIn: 1 << 29},
			[]string{"gpu-memory: 97 % of the memory of GPU 0 is used"}, []string{"0s 97 % of the memory of GPU 0 is used"}},
		{agent.Load{Used: []int{900, 2048}, Waiting: 2, Longest: 100 * time.Second},
			[]string{"gpu-memory: 100 % of the memory of GPU 1 is used", "wait: 2 waiting for a GPU, the first for 00:01:40 or more"},
			[]string{"0s 87 % of the memory of GPU 0 is used", "1s 100 % of the memory of GPU 1 is used", "1s 2 waiting for a GPU, the first for 00:01:40 or more"}},
		{agent.Load{Used: []int{1024, 2048}, Waiting: 1, Longest: 50 * time.Second, SwapIn: 1 << 30, SwapOut: 1 << 30},
			[]string{"swap: 2 GiB of programs' memory is swapped per second"}, []string{
				"0s 100 % of the memory of GPU 0 is used", "1s 100 % of the memory of GPU 1 is used", "1s 1 waiting for a GPU, the first for 00:00:50 or more",
				"2s 2 GiB of programs' memory is swapped per second"}},
		{agent.Load{Used: []int{100, 1024, 1 << 40}, SwapOut: 1 << 30}, []string{"over gpu-memory 0", "over wait 0"},
			[]string{"1s 50 % of the memory of GPU 1 is used", "2s 1 GiB of programs' memory is swapped per second"}},
		{agent.Load{}, []string{"over swap 0"}, nil}, // a device of which nothing is said is as it was
	} {
		var got, list []string
		for _, c := range s.Heard(time.Duration(i-1)*time.Second, "n1", &step.load, memory) {
			if c.Over {
				got = append(got, fmt.Sprintf("over %s %d", c.Name, c.Device))
			} else {
				got = append(got, c.Name+": "+c.Text)
			}
		}
		for _, n := range s.List(&step.load, memory) {
			list = append(list, fmt.Sprint(n.Since, " ", n.Text))
		}
		if !slices.Equal(got, step.want) || !slices.Equal(list, step.list) {
			t.Errorf("%+v: %q and %q, not %q and %q", step.load, got, list, step.want, step.list)
		}
	}
}

// Of a notice that comes and goes the log says at once that it is there, and then how it is and how often it
// changed, once a minute for as long as it does.
func TestLog(t *testing.T) {
	var l Log
	var got []string
	note := func(now time.Duration, lines []Line) {
		slices.SortFunc(lines, func(a, b Line) int { return a.Device - b.Device })
		for _, line := range lines {
			got = append(got, fmt.Sprintf("%v %d %v %d", now, line.Device, line.Over, line.Changed))
		}
	}
	for tick := range 1250 { // 125 s
		now := time.Duration(tick) * 100 * time.Millisecond
		change := Change{Node: "n1", Over: tick%2 == 1, Notice: Notice{Name: "swap"}}
		once := Change{Node: "n1", Notice: Notice{Name: "swap", Device: 1}}
		if tick < 700 {
			note(now, l.Heard(now, []Change{change}))
		}
		if tick == 10 {
			note(now, l.Heard(now, []Change{once}))
		}
		if tick == 20 {
			once.Over = true
			note(now, l.Heard(now, []Change{once}))
		}
		if tick%250 == 0 {
			lines, _ := l.Due(now)
			note(now, lines)
		}
	}
	want := []string{"0s 0 false 1", "1s 1 false 1", "1m0s 0 false 600", "1m15s 1 true 1"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
	if lines, _ := l.Due(125 * time.Second); len(lines) != 1 || lines[0].Changed != 99 || !lines[0].Over {
		t.Errorf("at the end %+v", lines)
	}
	if lines, again := l.Due(250 * time.Second); len(lines) != 0 || again || len(l.of) != 0 {
		t.Errorf("later %+v, %v, %d are kept", lines, again, len(l.of))
	}
}
