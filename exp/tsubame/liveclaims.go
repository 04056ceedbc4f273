package tsubame

import (
	"fmt"
	"math"

	"muster/exp"
)

// liveClaim is a statement of section 2.1 with the number of ours that decides it.
type liveClaim struct {
	id, says string
	// of computes the number; NaN if nothing was measured that could decide.
	of    func(m *liveMeasured) float64
	judge exp.Judge
	unit  string
}

// within confirms a value at most near from number; one at most far from it has the direction.
func within(number, near, far float64) exp.Judge {
	return func(r exp.Row) exp.Verdict {
		off := math.Abs(r.Ours - number)
		return exp.Graded(off <= far, off <= near)
	}
}

// much is the ratio from which on "much more" holds.
const much = 10

func liveClaims() []liveClaim {
	fit := func(of func(*fitted) float64, r reading) func(m *liveMeasured) float64 {
		return func(m *liveMeasured) float64 {
			if f := m.fit(shaped, r); f != nil {
				return of(f)
			}
			return math.NaN()
		}
	}
	slow := func(app string, users int) func(m *liveMeasured) float64 {
		return func(m *liveMeasured) float64 { return m.slowdown(shaped, app, users) }
	}
	return []liveClaim{
		{"model_fits", "the time of a copy beside traffic is what the model predicts (R2 0.986; confirmed from 0.986, direction from 0.9)", fit(func(f *fitted) float64 { return f.r2 }, readings[0]),
			func(r exp.Row) exp.Verdict { return exp.Graded(r.Ours >= 0.9, r.Ours >= paperFit) }, "R2"},
		{"divided_by_n", "the bandwidth is divided by the number of others, not by one more (R2 of n less R2 of n + 1)", func(m *liveMeasured) float64 {
			return fit(func(f *fitted) float64 { return f.r2 }, readings[1])(m) - fit(func(f *fitted) float64 { return f.r2 }, readings[0])(m)
		}, exp.AtLeast(0), "R2"},
		{"overhead", "the remote path takes about 9 % more of the bandwidth (confirmed from 1.06 to 1.12)", fit((*fitted).overhead, readings[0]), within(paperOverhead, 0.03, 0.09), "x"},
		{"latency", fmt.Sprintf("the latency of the remote path is far above that of the network (%d times)", much), func(m *liveMeasured) float64 {
			if len(m.axis(shaped, bytesOf)) == 0 {
				return math.NaN()
			}
			return m.smallCopy(shaped) / m.Idle[shaped].Trip
		}, exp.AtLeast(much), "x"},
		{"jacobi", "there is little slow-down on Jacobi (1.01, beside the most others)", slow(jacobi, mostUsers), within(paperJacobi, 0.02, 0.05), "x"},
		{"md_more", "the program that copies often suffers a lot more than Jacobi (slow-down beside the most others, less Jacobi's)", func(m *liveMeasured) float64 {
			return slow(md, mostUsers)(m) - slow(jacobi, mostUsers)(m)
		}, exp.Above(0.05), "points"},
		{"md_six", "beside 6 others it takes 1.17 times as long", slow(md, 6), within(paperSix, 0.05, 0.17), "x"},
		{"md_eight", "beside 8 others it takes 1.78 times as long", slow(md, 8), within(paperEight, 0.1, 0.3), "x"},
		{"queue_sooner", "all jobs of a congested queue are finished 15 to 30 % sooner if they share nodes and borrow GPUs (change until the last has ended)", func(m *liveMeasured) float64 {
			if len(m.Queues) == 0 {
				return math.NaN()
			}
			return exp.Mean(m.changes(queueTimes[0].of))
		}, func(r exp.Row) exp.Verdict { return exp.Graded(r.Ours < 0, r.Ours <= -15) }, "%"},
		{"md_jump", "from 6 to 8 others the loss grows by far more than the bandwidth explains (a third): more than twofold", func(m *liveMeasured) float64 {
			return (slow(md, 8)(m) - 1) / max(slow(md, 6)(m)-1, 1e-3)
		}, exp.Above(2), "x"},
	}
}

// claimRows are the verdicts on what was measured on the link.
func (m *liveMeasured) claimRows() []exp.Row {
	var rows []exp.Row
	for _, c := range liveClaims() {
		value := c.of(m)
		if math.IsNaN(value) {
			continue
		}
		verdict := c.judge(exp.Row{Ours: value})
		rows = append(rows, verdict.Told("live_"+c.id, "", c.says, fmt.Sprintf("%.3f %s", value, c.unit)))
	}
	return rows
}
