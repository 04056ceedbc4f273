package sim_test

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"muster/model"
	"muster/sim"
)

// fastAndSlow is a node with a device of speed 1, which policies give out first, and one of speed 4. A
// GiB passes in a second.
func fastAndSlow(first, second float64) *model.Cluster {
	return &model.Cluster{Name: "two",
		GPUTypes: []model.GPUType{{Name: "first", Memory: 8 << 30, Speed: first}, {Name: "second", Memory: 8 << 30, Speed: second}},
		Nodes:    []model.Node{{Name: "n1", Cores: 16, Memory: 64 << 30, GPUs: []int{0, 1}}}}
}

var late = &sim.Binding{Usual: model.DefaultHolds(), Cost: time.Second, Bandwidth: 1 << 30}

func asks(cores int, memory int64, gpuType string) model.Request {
	return model.Request{Nodes: 1, CoresPerNode: cores, GPUs: 1, GPUMemory: memory, GPUType: gpuType}
}

func checkEnds(t *testing.T, r *sim.Result, moves int, want ...float64) {
	t.Helper()
	for i, seconds := range want {
		if got := r.Outcomes[i].End.Seconds(); r.Outcomes[i].State != sim.Finished || got < seconds-1e-6 || got > seconds+1e-6 {
			t.Errorf("job %s ends at %v, %s, not at %v", r.Jobs[i].ID, got, r.Outcomes[i].State, seconds)
		}
	}
	if r.Rebinds != moves {
		t.Errorf("%d moves, not %d", r.Rebinds, moves)
	}
}

// TestLateBindingByHand: a share of 1 GiB on a slow device, beside an idle one that is four times as
// fast. A move takes 1 s and two copies of 1 GiB at 1 GiB/s: 3 s.
func TestLateBindingByHand(t *testing.T) {
	home := model.ReachDevice
	share := model.Job{ID: "a", Run: seconds(100), Request: asks(1, 1<<30, "first")}
	whole := model.Job{ID: "w", Submit: seconds(10), Run: seconds(80), Request: asks(1, 0, "second")}
	alone := share
	alone.GPU.Reach = &home
	beside := model.Job{ID: "b", Submit: seconds(10), Run: seconds(80), Request: asks(1, 1<<30, "second")}
	for _, c := range []struct {
		name  string
		bind  *sim.Binding
		jobs  []model.Job
		moves int
		want  []float64
	}{
		{"as granted", nil, []model.Job{share, whole}, 0, []float64{100, 30}},
		{"its user wants it to stay", late, []model.Job{alone, whole}, 0, []float64{100, 30}},
		// It begins on the fast device: 40 s of work until 10. Then that is w's alone until 30. From 13 it
		// does 17 s of work at home. At 30 it has lost 17 x 3/4 s there since it came, more than 3 s, and goes
		// back: from 33 on it does the last 43 s of its work at four times the speed.
		{"a whole device is given away", late, []model.Job{share, whole}, 2, []float64{43.75, 30}},
		// b's home is the fast device: from 10 they share it, each at a speed of 2; a would have 1 at home. a did
		// 40 s of work before, and does 60 until 40. So does b, which then has 20 left and the device for itself.
		{"another one's home", late, []model.Job{share, beside}, 0, []float64{40, 45}},
	} {
		t.Run(c.name, func(t *testing.T) {
			checkEnds(t, run(t, "fcfs", sim.Config{Cluster: fastAndSlow(1, 4), Jobs: c.jobs, Bind: c.bind}), c.moves, c.want...)
		})
	}
}

// TestRunTimesOfAnyDevice: a job whose run time holds for all devices takes as long on a fast one, and others do not.
func TestRunTimesOfAnyDevice(t *testing.T) {
	jobs := []model.Job{{ID: "a", Run: seconds(100), Request: asks(1, 1<<30, "second")}, {ID: "b", Run: seconds(100), Request: asks(1, 1<<30, "second")}}
	for i := range jobs {
		jobs[i].Intensity = 0.5
	}
	checkEnds(t, run(t, "fcfs", sim.Config{Cluster: fastAndSlow(1, 4), Jobs: jobs, Anywhere: []bool{true, false}}), 0, 100, 25)
}

// TestLateBindingReachesTheCluster: the device that is four times as fast is another node's, and counts 3.2 times as
// fast. One that is as fast as home counts less.
func TestLateBindingReachesTheCluster(t *testing.T) {
	cluster, device := model.ReachCluster, model.ReachDevice
	jobs := func(reach *model.Reach) []model.Job {
		list := []model.Job{
			{ID: "a", Run: seconds(100), Request: asks(1, 1<<30, "first")},
			{ID: "w", Submit: seconds(10), Run: seconds(80), Request: asks(1, 0, "second")},
		}
		list[0].GPU.Reach = reach
		return list
	}
	for _, c := range []struct {
		name   string
		second float64
		reach  *model.Reach
		moves  int
		want   []float64
	}{
		{"its reach is the node", 4, nil, 0, []float64{100, 30}},
		{"its user wants it to stay", 4, &device, 0, []float64{100, 30}},
		// 40 s of work until 10, when the device is given away whole; at home from 13. At 30 it has lost 17 x (1 - 1/3.2) s,
		// more than the 3 s of a move, and goes back: from 33 on it does the last 43 s at four times the speed.
		{"its reach is the cluster", 4, &cluster, 2, []float64{43.75, 30}},
		{"as fast as home", 1.2, &cluster, 0, []float64{100, 10 + 80/1.2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			two := fastAndSlow(1, c.second)
			two.Nodes = append(two.Nodes, two.Nodes[0])
			two.Nodes[0].GPUs, two.Nodes[1].GPUs, two.Nodes[1].Name = []int{0}, []int{1}, "n2"
			checkEnds(t, run(t, "fcfs", sim.Config{Cluster: two, Jobs: jobs(c.reach), Bind: late}), c.moves, c.want...)
		})
	}
}

// TestLateBindingWaitsUntilAMovePays: two jobs share a device until another one's end leaves a device of the
// same speed idle. One of them gains by 2 there, so it has lost the 3 s of the move after 6 s.
func TestLateBindingWaitsUntilAMovePays(t *testing.T) {
	jobs := []model.Job{
		{ID: "w", Run: seconds(20), Request: asks(1, 0, "second")},
		{ID: "a", Run: seconds(100), Request: asks(1, 1<<30, "first")},
		{ID: "b", Submit: seconds(18), Run: seconds(100), Request: asks(1, 1<<30, "first")},
	}
	// From 18 to 20 both have half of the first. a has been there since 0: at 20 it has lost 20/2 s by today's
	// crowd, and goes. It has done 19 s then, and is done 81 s after it has moved. b is alone from 20 on,
	// with 99 s to do.
	checkEnds(t, run(t, "fcfs", sim.Config{Cluster: fastAndSlow(1, 1), Jobs: jobs, Bind: late}), 1, 20, 104, 119)
	// b begins at 16 with the first idle device at 17: a is younger and has to wait until 6 s after it came.
	jobs[0].Run, jobs[1].Submit, jobs[2].Submit = seconds(17), seconds(16), seconds(16)
	// Both at half speed from 16 to 22. Then a leaves, with 97 s to do, and b has 97 s, too.
	checkEnds(t, run(t, "fcfs", sim.Config{Cluster: fastAndSlow(1, 1), Jobs: jobs, Bind: late}), 1, 17, 122, 119)
}

// TestLateBindingLeavesForWhatWasGranted: what another job is granted of a device is not a guest's.
func TestLateBindingLeavesForWhatWasGranted(t *testing.T) {
	jobs := []model.Job{
		{ID: "a", Run: seconds(100), Request: asks(1, 5<<30, "first")},
		{ID: "b", Submit: seconds(10), Run: seconds(30), Request: asks(1, 4<<30, "second")},
	}
	// a does 40 s of work on the fast device until 10, when b is granted 4 of its 8 GiB. a needs 5, and goes home:
	// 1 s and 10 s. From 21 it is there; b is done at 10 + 30/4. a has lost 11 s by 21 + 11 x 4/3, and goes
	// again: 11 s, and the rest of its 60 s at four times the speed.
	back := 21 + 11.0*4/3
	checkEnds(t, run(t, "fcfs", sim.Config{Cluster: fastAndSlow(1, 4), Jobs: jobs, Bind: late}), 2, back+11+(60-11.0*4/3)/4, 17.5)
}

// TestLateBindingNeverStrands: whatever jobs come, all end, and twice the same is the same. If none may leave
// its home, all is as without it.
func TestLateBindingNeverStrands(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := &model.Cluster{Name: "some"}
		for i := range 3 {
			c.GPUTypes = append(c.GPUTypes, model.GPUType{Name: string(rune('a' + i)), Memory: 8 << 30, Speed: []float64{1, 0.5, 3}[i]})
		}
		for range 3 {
			c.Nodes = append(c.Nodes, model.Node{Name: string(rune('l' + len(c.Nodes))), Cores: 8, Memory: 64 << 30, GPUs: []int{rng.IntN(3), rng.IntN(3), rng.IntN(3)}})
		}
		home, far := model.ReachDevice, model.ReachCluster
		var jobs []model.Job
		for i := range 40 {
			j := model.Job{ID: string(rune('A' + i)), Run: seconds(1 + rng.IntN(200)), Intensity: float64(1+rng.IntN(4)) / 4, Request: asks(1, int64(rng.IntN(7))<<30, "")}
			if i > 0 {
				j.Submit = jobs[i-1].Submit + seconds(rng.IntN(20))
			}
			switch rng.IntN(4) {
			case 0:
				j.GPU.Reach = &home
			case 1:
				j.GPU.Reach = &far
			}
			if rng.IntN(4) == 0 {
				j.Request.GPUs = 2
			}
			jobs = append(jobs, j)
		}
		play := func() *sim.Result {
			return run(t, "first-fit", sim.Config{Cluster: c, Jobs: jobs, Bind: &sim.Binding{Usual: model.DefaultHolds(), Cost: seconds(rng.IntN(2)), Bandwidth: 1 << 30}})
		}
		rng = rand.New(rand.NewPCG(seed, 2))
		first := play()
		rng = rand.New(rand.NewPCG(seed, 2))
		if again := play(); !reflect.DeepEqual(first, again) {
			t.Fatalf("seed %d: another result", seed)
		}
		for i, o := range first.Outcomes {
			jobs[i].GPU.Reach = &home
			if o.State != sim.Finished {
				t.Errorf("seed %d: job %d: %s", seed, i, o.State)
			}
		}
		plain := run(t, "first-fit", sim.Config{Cluster: c, Jobs: jobs})
		if still := play(); !reflect.DeepEqual(still.Outcomes, plain.Outcomes) || still.Rebinds > 0 {
			t.Errorf("seed %d: jobs that stay at home end otherwise", seed)
		}
	}
}
