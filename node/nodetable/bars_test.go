package nodetable

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"muster/wire/status"
)

// atWork is a node at two moments, a second apart.
func atWork() (before, now *status.Node) {
	const gib = 1 << 30
	before = &status.Node{Node: "n1", Up: 10, Policy: "fcfs",
		Devices: []status.Device{{Name: "a", State: "up", Memory: 80 * gib, Free: 80 * gib, BusyTime: 3}, {Name: "b", State: "up", Memory: 8 * gib, Free: 8 * gib}},
		Clients: []status.Client{{ID: 1, CopiedIn: gib}, {ID: 2, SwapOut: 7}}}
	now = &status.Node{Node: "n1", Up: 11, Policy: "fcfs",
		Devices: []status.Device{{Name: "a", State: "up", Memory: 80 * gib, Free: 20 * gib, BusyTime: 3.5}, {Name: "b", State: "removed", Memory: 8 * gib}},
		Clients: []status.Client{{ID: 1, CopiedIn: gib + 2_000_000_000, CopiedOut: 500_000}},
		Ended:   []status.Client{{ID: 2, SwapOut: 7, SwapIn: 1234, CopiedOut: 500_000}, {ID: 3, CopiedIn: 10}}}
	return before, now
}

func TestBars(t *testing.T) {
	before, now := atWork()
	for _, c := range []struct {
		columns int
		want    string
	}{
		{0, `
GPU 0      [################----------------] 50.0 % in use
memory 0   [########################--------] 60 GiB of 80 GiB
in         [################################] 2 GB/s, at most 2 GB/s
out        [################################] 1 MB/s, at most 1 MB/s
swap       [################################] 1.23 kB/s, at most 1.23 kB/s
`},
		{53, `
GPU 0      [###--] 50.0 % in use
memory 0   [####-] 60 GiB of 80 GiB
in         [#####] 2 GB/s, at most 2 GB/s
out        [#####] 1 MB/s, at most 1 MB/s
swap       [#####] 1.23 kB/s, at most 1.23 kB/s
`},
		{40, `
GPU 0      50.0 % in use
memory 0   60 GiB of 80 GiB
in         2 GB/s, at most 2 GB/s
out        1 MB/s, at most 1 MB/s
swap       1.23 kB/s, at most 1.23 kB/s
`},
	} {
		var b bytes.Buffer
		drawn := bars{columns: c.columns}
		drawn.write(&b, now, before)
		if got := "\n" + strings.TrimSuffix(b.String(), "\n"); got != c.want {
			t.Errorf("%d columns:%swant:%s", c.columns, got, c.want)
		}
		for _, line := range strings.Split(b.String(), "\n") {
			if c.columns >= 50 && len(line) > c.columns {
				t.Errorf("%d columns: %q is longer", c.columns, line)
			}
		}
	}
}

// What is slower than before has a shorter bar, and what is small is not nothing.
func TestBarsRememberTheFastest(t *testing.T) {
	var b bytes.Buffer
	drawn := bars{}
	drawn.data(io.Discard, "in", 1e9)
	drawn.data(&b, "in", 0.25e9)
	drawn.data(&b, "in", 1)
	drawn.data(&b, "in", 0)
	want := `in         [########------------------------] 250 MB/s, at most 1 GB/s
in         [#-------------------------------] 1 B/s, at most 1 GB/s
in         [--------------------------------] 0 B/s, at most 1 GB/s
`
	if b.String() != want {
		t.Errorf("%s\nwant\n%s", b.String(), want)
	}
	b.Reset()
	_, now := atWork()
	if drawn.write(&b, now, nil); b.Len() > 0 {
		t.Errorf("bars of nothing:\n%s", b.String())
	}
}

// Red is what needs somebody to act. Work, however much, does not.
func TestColoursSayWhatToDo(t *testing.T) {
	before, now := atWork()
	now.Devices[0].BusyTime = before.Devices[0].BusyTime + 1
	now.Devices[0].Free = 0
	now.Problems = []status.Problem{{Part: "swap", What: "the disk is full"}}
	for coloured, want := range map[bool]string{
		true: `
node n1, up 11.0s, fcfs: 1 client, 0 on devices, 0 waiting for one, swap area 0 B of 0 B promised
RED problem: swap: the disk is full END

GPU 0      [GREEN ################################ END ] 100.0 % in use
memory 0   [YELLOW ################################ END ] 80 GiB of 80 GiB
in         [GREEN ################################ END ] 2 GB/s, at most 2 GB/s
out        [GREEN ################################ END ] 1 MB/s, at most 1 MB/s
swap       [GREEN ################################ END ] 1.23 kB/s, at most 1.23 kB/s
`,
		false: `
node n1, up 11.0s, fcfs: 1 client, 0 on devices, 0 waiting for one, swap area 0 B of 0 B promised
problem: swap: the disk is full

GPU 0      [################################] 100.0 % in use
memory 0   [################################] 80 GiB of 80 GiB
in         [################################] 2 GB/s, at most 2 GB/s
out        [################################] 1 MB/s, at most 1 MB/s
swap       [################################] 1.23 kB/s, at most 1.23 kB/s
`} {
		p := Picture{Coloured: coloured}
		var b bytes.Buffer
		for _, s := range []*status.Node{before, now} {
			b.Reset()
			if err := p.WriteNode(&b, s); err != nil {
				t.Fatal(err)
			}
		}
		named := strings.NewReplacer("\x1b[31m", "RED ", "\x1b[32m", "GREEN ", "\x1b[33m", "YELLOW ", "\x1b[0m", " END ").Replace(b.String())
		got, _, _ := strings.Cut(strings.ReplaceAll(named, " END \n", " END\n"), "\nDEVICE")
		if "\n"+got != want {
			t.Errorf("coloured %v: got\n%s\nwant%s", coloured, got, want)
		}
	}
}
