package mapping_test

import (
	"fmt"
	"math/rand/v2"
	"time"

	"muster/mapping"
)

// Whoever runs kernels drives a mapper like this: it asks before each launch, and
// tells the table what happens to the call.
func Example() {
	// Two nodes of 8 cores; each has one GPU. Data travel at 1 GB/s.
	layout := &mapping.Layout{
		NodeOf: []int32{0, 1}, First: []int32{0, 1, 2}, Cores: []int32{8, 8},
		Speed: []float64{1, 1}, Owner: []int32{0, 1}, Critical: []bool{false, false}, Bandwidth: 1e9,
	}
	mapper, err := mapping.New("ag:estimate=kernel:locality=yes", layout)
	if err != nil {
		fmt.Println(err)
		return
	}
	table := mapping.NewTable(layout, 10)
	table.Estimate = mapping.EstimateOf(mapper)
	view := &mapping.View{Table: table, Local: table, Rand: rand.New(rand.NewPCG(1, 1))}

	launch := func(process int32, now time.Duration, resident ...mapping.Resident) (call *mapping.Call, device int32, expected time.Duration) {
		call = &mapping.Call{Process: process, Node: 0, In: 500e6, Out: 1e6, Resident: resident}
		view.Now = now
		device = mapper.Map(call, view)
		expected = table.Assign(call, device)
		return call, device, expected
	}

	first, device, expected := launch(0, 0)
	fmt.Println("nothing is queued: device", device)
	table.Begin(device, expected, 0)
	table.Finish(first, device, expected, 400*time.Millisecond)

	_, device, expected = launch(0, time.Second)
	table.Begin(device, expected, time.Second)
	fmt.Println("it took 400 ms; the next on device", device, "is expected to take", expected)

	_, device, _ = launch(1, time.Second)
	fmt.Println("waiting 400 ms is better than sending 500 MB: device", device)

	_, device, _ = launch(2, time.Second, mapping.Resident{Device: 1, Bytes: 400e6})
	fmt.Println("most of these data are there already: device", device)
	// Output:
	// nothing is queued: device 0
	// it took 400 ms; the next on device 0 is expected to take 400ms
	// waiting 400 ms is better than sending 500 MB: device 0
	// most of these data are there already: device 1
}
