package mapping

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"muster/internal/seeds"
)

func flat(spans []span) (devices []int32) {
	for _, s := range spans {
		for d := s.from; d < s.to; d++ {
			devices = append(devices, d)
		}
	}
	return devices
}

// TestFewDevicesAreDrawn: those of the own node, and as many others as asked for,
// all different, all visible, idle ones first.
func TestFewDevicesAreDrawn(t *testing.T) {
	seeds.Check(t, func(t *rapid.T) {
		s := drawScene(t, ByWindow)
		s.view.Rand = rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		r := drawReach(t, s.layout.Nodes())
		all := r
		all.idle = false
		own, visible := s.candidates(all)
		r.choices = int32(rapid.IntRange(1, 6).Draw(t, "choices"))

		spans := newCandidates(s.layout, r).of(s.call, s.view)
		if got := flat(spans[:1]); !slices.Equal(got, own) {
			t.Fatalf("own devices %v, want %v", got, own)
		}
		others := flat(spans[1:])
		seen, holders := map[int32]bool{}, 0
		for i, d := range others {
			if seen[d] || !slices.Contains(visible, d) {
				t.Fatalf("device %d of %v is there twice, or not one of %v", d, others, visible)
			}
			seen[d] = true
			if i >= int(r.choices) {
				holders++ // more than asked for, and only those that hold data
				if !r.locality || !slices.ContainsFunc(s.call.Resident, func(h Resident) bool { return h.Device == d }) {
					t.Fatalf("%+v: %v", r, others)
				}
			}
		}
		if want := min(int(r.choices), len(visible)); len(others)-holders != want {
			t.Fatalf("%+v: %d of %v, want %d", r, len(others), visible, want)
		}
		if r.locality {
			for _, h := range s.call.Resident {
				if slices.Contains(visible, h.Device) && !seen[h.Device] {
					t.Fatalf("device %d holds data and was not looked at", h.Device)
				}
			}
		}
	})
}

// TestIdleDevicesAreDrawnFirst: with a few idle ones, all are found nearly always; with many, nothing else is looked at.
func TestIdleDevicesAreDrawnFirst(t *testing.T) {
	for _, group := range []int32{0, 8} {
		for _, idle := range []int{0, 1, 3, 4, 9, 60} {
			table := NewTable(even(24, 3, 6), 10)
			order := rand.New(rand.NewPCG(5, 6)).Perm(72)
			c := newCandidates(table.layout, reach{choices: 4, idle: true, group: group})
			v := sees(table)
			call := &Call{Node: 2}
			free := 0
			for i, d := range order {
				visible := group == 0 || table.layout.NodeOf[d]%3 == 2
				switch {
				case i >= idle:
					put(table, table.layout.NodeOf[d], int32(d), 1)
				case visible && table.layout.NodeOf[d] != 2:
					free++
				}
			}
			complete := 0
			for range 1000 {
				found := 0
				for _, d := range flat(c.of(call, v)[1:]) {
					if table.Queued(d) == 0 {
						found++
					}
				}
				if found == min(4, free) {
					complete++
				}
			}
			if complete < 950 {
				t.Errorf("group %d, %d idle, %d of them can be drawn: all or 4 were drawn in %d of 1000", group, idle, free, complete)
			}
		}
	}
}

// TestDrawsAreEven: each of the others is drawn as often as each.
func TestDrawsAreEven(t *testing.T) {
	for _, r := range []reach{{choices: 2}, {choices: 5, group: 12}, {choices: 3, idle: true}, {choices: 2, protect: true}} {
		l := even(24, 3, 6)
		l.Critical[0] = true
		table := NewTable(l, 10)
		c, v := newCandidates(l, r), sees(table)
		count := map[int32]float64{}
		const draws = 50_000
		for range draws {
			for _, d := range flat(c.of(&Call{Node: 10, App: 1}, v)[1:]) {
				count[d]++
			}
		}
		others := 69.0
		if r.group > 0 {
			others = 33
		}
		if r.protect {
			others = 69 - 18
		}
		if float64(len(count)) != others {
			t.Errorf("%+v: %d devices were drawn, want %v", r, len(count), others)
		}
		mean := draws * float64(r.choices) / others
		for d, n := range count {
			if math.Abs(n-mean) > 5*math.Sqrt(mean) {
				t.Errorf("%+v: device %d was drawn %v times, the mean is %v", r, d, n, mean)
			}
		}
	}
}

// TestProtection: devices of a critical application are for itself; it may use those of others.
func TestProtection(t *testing.T) {
	l := even(4, 2, 2)
	l.Critical[0] = true
	table := NewTable(l, 10)
	c := newCandidates(l, reach{protect: true})
	for _, test := range []struct {
		app, node int32
		want      []int32
	}{
		{0, 1, []int32{2, 3, 4, 5, 6, 7, 0, 1}},
		{1, 2, []int32{4, 5, 6, 7}},
		{1, 3, []int32{6, 7, 4, 5}},
		{7, 3, []int32{6, 7, 4, 5}},       // an application that nobody announced
		{1, 0, []int32{0, 1, 4, 5, 6, 7}}, // whoever runs on a node may use what it has
	} {
		if got := flat(c.of(&Call{App: test.app, Node: test.node}, sees(table))); !slices.Equal(got, test.want) {
			t.Errorf("application %d on node %d sees %v, want %v", test.app, test.node, got, test.want)
		}
	}
}

// TestManyCriticalApplications: each of 50,000 nodes has a critical application, or all but every tenth, and is a group.
func TestManyCriticalApplications(t *testing.T) {
	const nodes = 50_000
	l := even(nodes, 1, 0)
	l.Critical = nil
	for n := range nodes {
		l.Owner[n] = int32(n)
		l.Critical = append(l.Critical, n%10 != 0)
	}
	v := sees(NewTable(l, 1))
	alone := newCandidates(l, reach{protect: true, group: 1})
	pairs := newCandidates(l, reach{protect: true, group: 2, block: true})
	if got := len(alone.special) + len(alone.common) + len(pairs.special) + len(pairs.common); got > 4*nodes {
		t.Errorf("%d sets", got)
	}
	for _, test := range []struct {
		c         *candidates
		app, node int32
		want      []int32
	}{
		{alone, 49_999, 49_999, []int32{49_999}},
		{alone, 49_999, 10, []int32{10}},
		{pairs, 10, 10, []int32{10}},                     // its neighbour is kept
		{pairs, 11, 11, []int32{11, 10}},                 // it may use one that is not
		{pairs, 11, 12, []int32{12}},                     // neither, of another pair
		{pairs, 49_999, 10, []int32{10}},                 // nor in one where it has nothing
		{pairs, 49_999, 11, []int32{11, 10}},             // but what all may use
		{pairs, 49_999, 49_998, []int32{49_998, 49_999}}, // and its own
	} {
		if got := flat(test.c.of(&Call{App: test.app, Node: test.node}, v)); !slices.Equal(got, test.want) {
			t.Errorf("application %d on node %d sees %v, want %v", test.app, test.node, got, test.want)
		}
	}
}

func TestGroups(t *testing.T) {
	table := NewTable(even(7, 1, 2), 10)
	for _, test := range []struct {
		reach reach
		node  int32
		want  []int32
	}{
		{reach{group: 3}, 0, []int32{0, 3, 6}}, // 3 groups
		{reach{group: 3}, 4, []int32{4, 1}},
		{reach{group: 3, block: true}, 4, []int32{4, 5, 3}},
		{reach{group: 3, block: true}, 6, []int32{6}},
		{reach{group: 1}, 5, []int32{5}},
		{reach{group: 99}, 5, []int32{5, 6, 0, 1, 2, 3, 4}},
	} {
		if got := flat(newCandidates(table.layout, test.reach).of(&Call{Node: test.node}, sees(table))); !slices.Equal(got, test.want) {
			t.Errorf("%+v: node %d sees %v, want %v", test.reach, test.node, got, test.want)
		}
	}
}
