package mapping

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"muster/internal/seeds"
)

// What is said of others counts like calls that were assigned one by one, from the node where they
// run: two tables, one told this way and one the other, decide alike, whatever else happens. When
// nothing is said of others any more, nothing is left of them.
func TestOthersCountLikeCalls(t *testing.T) {
	seed, _ := seeds.First(t)
	r := rand.New(rand.NewPCG(seed, 7))
	for _, spec := range []string{"ag", "ag:estimate=kernel", "ar", "probe"} {
		for range 50 {
			const devices = 6
			l := &Layout{Speed: slices.Repeat([]float64{1}, devices), Owner: make([]int32, devices+1), Critical: []bool{false}, Cores: make([]int32, devices+1), Bandwidth: 1 << 30}
			for d := range int32(devices) {
				l.NodeOf, l.First = append(l.NodeOf, d), append(l.First, d)
			}
			l.First = append(l.First, devices, devices)
			mapper, err := New(spec, l)
			if err != nil {
				t.Fatal(err)
			}
			said, counted := NewTable(l, 10), NewTable(l, 10)
			said.Estimate, counted.Estimate = EstimateOf(mapper), EstimateOf(mapper)
			own := &Call{Node: devices, Kernel: 1}
			for range r.IntN(20) { // what the caller itself did
				d, ran := r.Int32N(devices), time.Duration(1+r.IntN(1e6))
				for _, table := range []*Table{said, counted} {
					expected := table.Assign(own, d)
					table.Finish(own, d, expected, ran)
				}
			}
			for d := range int32(devices) {
				others := r.Int32N(3)
				said.Beside(d, r.Int32N(4), time.Millisecond) // which is forgotten
				said.Beside(d, others, counted.Expect(own, d))
				for range others {
					counted.Assign(&Call{Node: d, Kernel: 1}, d)
				}
			}
			same := slices.Equal(slices.Sorted(slices.Values(said.Idle())), slices.Sorted(slices.Values(counted.Idle())))
			for d := range int32(devices) {
				same = same && said.Queued(d) == counted.Queued(d) && said.Backlog(d, 0) == counted.Backlog(d, 0)
			}
			if !same || said.Waiting() != counted.Waiting() {
				t.Fatalf("%s: %+v and %+v", spec, said.loads, counted.loads)
			}
			call := &Call{Node: devices, Kernel: 1, In: r.Int64N(1 << 24)}
			if spec != "probe" { // which draws idle devices in the order in which the table has them
				if a, b := mapper.Map(call, &View{Table: said, Local: said, Rand: rand.New(rand.NewPCG(1, 1))}), mapper.Map(call, &View{Table: counted, Local: counted, Rand: rand.New(rand.NewPCG(1, 1))}); a != b {
					t.Fatalf("%s: device %d, and %d when they are counted one by one", spec, a, b)
				}
			}
			for d := range int32(devices) {
				if said.Others(d) != counted.Queued(d) {
					t.Errorf("device %d has %d of others, and should have %d", d, said.Others(d), counted.Queued(d))
				}
				said.Beside(d, 0, 0)
			}
			if len(said.Idle()) != devices || said.Waiting() != 0 {
				t.Fatalf("%s: something is left of others: %+v", spec, said.loads)
			}
		}
	}
}
