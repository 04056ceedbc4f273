package exp

import (
	"math"
	"slices"

	"muster/report"
)

// Nothing marks a number that is missing in a chart.
var Nothing = math.NaN()

// AddBar adds the mean of all runs to a series of bars, with the least and the most. Without values
// it leaves a gap.
func AddBar(s *report.BarSeries, values []float64) { addBar(s, values, Mean) }

func addBar(s *report.BarSeries, values []float64, middle func([]float64) float64) {
	mid, lo, hi := Nothing, Nothing, Nothing
	if len(values) > 0 {
		mid, lo, hi = middle(values), slices.Min(values), slices.Max(values)
	}
	s.Values, s.Lo, s.Hi = append(s.Values, mid), append(s.Lo, lo), append(s.Hi, hi)
}

// AddPoint adds the mean of all runs to a line, with the least and the most.
func AddPoint(s *report.Series, x float64, values []float64) {
	s.X, s.Y = append(s.X, x), append(s.Y, Mean(values))
	s.Lo, s.Hi = append(s.Lo, slices.Min(values)), append(s.Hi, slices.Max(values))
}

// MedianBars makes one series of bars, with the least and the most of all runs; each bar is a
// median. Where there are no values, it has a gap.
func MedianBars(label string, points [][]float64) report.BarSeries {
	return bars(label, points, Median)
}

// MeanBars is MedianBars with means.
func MeanBars(label string, points [][]float64) report.BarSeries { return bars(label, points, Mean) }

func bars(label string, points [][]float64, middle func([]float64) float64) report.BarSeries {
	s := report.BarSeries{Name: label}
	for _, values := range points {
		addBar(&s, values, middle)
	}
	return s
}
