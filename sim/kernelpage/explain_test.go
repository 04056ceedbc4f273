package kernelpage_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"muster/mapping"
	"muster/sim/kernelpage"
	"muster/sim/kernels"
	"muster/workload/phased"
)

// explained is a study of a call that each mapper had, of 14 GPUs.
func explained() *kernelpage.Study {
	c, w := plain(14, 1)
	w.Apps[0].Steps = []phased.Step{{Kernel: "stencil"}, {Kernel: "reduce"}}
	w.Apps[1].Steps = make([]phased.Step, 1)
	s := &kernelpage.Study{Policies: []string{"gr", "ag", "ar", "probe"}, Nodes: []int{14}, Seeds: []uint64{1}}
	add := func(policy string, e kernels.Explained) {
		r := made(c, w, policy, 1, time.Second, 4, 0, 0, 0, true)
		e.Account.Device = e.Given
		r.Result.Explained = []kernels.Explained{e}
		s.Runs = append(s.Runs, r)
	}
	call := mapping.Call{Rank: 3, Node: 1, App: 0, Kernel: 1, In: 22_500_000, Out: 8}
	add("gr", kernels.Explained{Call: 1, At: 1500 * time.Millisecond, Launched: call, Given: -1, Account: mapping.Account{Reason: "There is one queue."}})

	// What it saw was wrong, and it did not look everywhere.
	add("ag", kernels.Explained{
		Call: 12345, At: 70 * time.Second, Launched: call, Given: 2, Truth: []int32{4, 1},
		Account: mapping.Account{Unseen: 12, Choices: []mapping.Choice{
			{Device: 2, Queued: 0, Transfer: 225 * time.Millisecond},
			{Device: 1, Queued: 1, Wait: 2 * time.Second},
		}},
	})

	// The one that was drawn is the last of 14.
	drawn := kernels.Explained{Call: 7, Launched: call, Given: 13, Truth: make([]int32, 14), Account: mapping.Account{Drawn: true}}
	for d := range int32(14) {
		drawn.Choices = append(drawn.Choices, mapping.Choice{Device: d, Weight: 1 - float64(d)/16, Chance: float64(16-d) / 133})
	}
	add("ar", drawn)

	call = mapping.Call{Rank: 1, Node: 9, App: 1, Kernel: 2, In: 4e6, Resident: []mapping.Resident{{Device: 5, Bytes: 5e6}}}
	add("probe", kernels.Explained{
		Call: 2, Launched: call, Given: 9, Truth: []int32{1, 0},
		Account: mapping.Account{Unseen: 1, Choices: []mapping.Choice{
			{Device: 9, Queued: 1, Wait: 30 * time.Millisecond, Run: 100 * time.Millisecond},
			{Device: 5, Held: 4e6, Run: 150 * time.Millisecond, Transfer: time.Millisecond, Care: 2 * time.Millisecond},
		}},
	})
	return s
}

func TestExplained(t *testing.T) {
	s := explained()
	var b bytes.Buffer
	if err := s.WriteExplained(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "explained.txt", b.String())

	html := page(t, s)
	for _, want := range []string{
		"Call 12,345 explained: ag, at 70.000 s</h2>", "Process 3 of H, on n2, kernel reduce: 22.5 MB to send, 8 B back.",
		"12 GPUs were not looked at: none could be better.", "2 more GPUs were compared.", ">In truth</th>", "There is one queue.",
	} {
		if !strings.Contains(html, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page(t, twoByTwo()), "explained") {
		t.Error("a page explains what nobody asked for")
	}
}
