package tsubame

import (
	"math"
	"slices"

	"muster/exp"
	"muster/report"
)

// The paper's model of a copy: time = latency + bytes x overhead / bandwidth (equation 1), where
// the users of a network share its bandwidth. Equation 2 divides by the number of ib_read_bw
// processes, but the text by one more: "with up to 6 ... one-seventh". Both readings are fitted.

// Numbers of section 2.1.
const (
	paperOverhead = 1.09
	paperLatency  = 3.47e-3
	paperFit      = 0.986
	paperJacobi   = 1.01
	paperSix      = 1.17
	paperEight    = 1.78
)

// reading gives the divisor of the bandwidth for a number of background users.
type reading struct {
	key, says string
	divides   func(others int) float64
}

var readings = []reading{
	{"text", "n + 1, as the text", func(n int) float64 { return float64(n + 1) }},
	{"eq2", "n, as equation 2", func(n int) float64 { return float64(max(1, n)) }},
}

// fitted is the model with its fitted constants.
type fitted struct {
	latency   float64 // seconds
	perByte   float64 // seconds per byte, on a network without other users
	r2        float64 // the fraction of the variance that the model explains
	bandwidth float64 // of the idle network
}

// overhead is the time of a byte relative to what the network's bandwidth allows.
func (f *fitted) overhead() float64 { return f.perByte * f.bandwidth }

func (f *fitted) time(r reading, users int, bytes float64) float64 {
	return f.latency + f.perByte*bytes*r.divides(users)
}

// fit finds the constants by least squares, over all copies of a network in both directions.
func (m *liveMeasured) fit(network string, r reading) *fitted {
	var x, y []float64
	for _, c := range m.Copies {
		if c.Network == network {
			load := float64(c.Bytes) * r.divides(c.Users)
			x, y = append(x, load, load), append(y, c.In, c.Out)
		}
	}
	f := leastSquares(x, y)
	if f != nil {
		f.bandwidth = m.Idle[network].Bandwidth
	}
	return f
}

// leastSquares fits y = latency + perByte * x; nil for fewer than three points.
func leastSquares(x, y []float64) *fitted {
	if len(x) < 3 {
		return nil
	}
	mx, my := report.IntervalOf(x).Mean, report.IntervalOf(y).Mean
	var xx, xy, yy float64
	for i := range x {
		xx += float64((x[i] - mx) * (x[i] - mx))
		xy += float64((x[i] - mx) * (y[i] - my))
		yy += float64((y[i] - my) * (y[i] - my))
	}
	if xx == 0 || yy == 0 {
		return nil
	}
	f := &fitted{perByte: xy / xx}
	f.latency = my - f.perByte*mx
	f.r2 = f.perByte * xy / yy
	return f
}

// times lists the times of all copies of one size beside this many users, in one direction.
func (m *liveMeasured) times(network string, users, bytes int, in bool) []float64 {
	var list []float64
	for _, c := range m.Copies {
		if c.Network == network && c.Users == users && c.Bytes == bytes {
			list = append(list, map[bool]float64{true: c.In, false: c.Out}[in])
		}
	}
	return list
}

// seconds lists the times of all runs of an application.
func (m *liveMeasured) seconds(network, app string, users int) []float64 {
	var list []float64
	for _, a := range m.Apps {
		if a.Network == network && a.App == app && a.Users == users {
			list = append(list, a.Seconds)
		}
	}
	return list
}

// slowdown is the median time of an application beside users divided by that without any; NaN if
// one of them is missing.
func (m *liveMeasured) slowdown(network, app string, users int) float64 {
	return median(m.seconds(network, app, users)) / median(m.seconds(network, app, 0))
}

// axis lists the distinct values of a property of a network's copies, in ascending order.
func (m *liveMeasured) axis(network string, of func(copied) int) []int {
	var list []int
	for _, c := range m.Copies {
		if c.Network == network && !slices.Contains(list, of(c)) {
			list = append(list, of(c))
		}
	}
	slices.Sort(list)
	return list
}

func usersOf(c copied) int { return c.Users }
func bytesOf(c copied) int { return c.Bytes }

// median is the middle of some values; NaN of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	return exp.Median(values)
}
