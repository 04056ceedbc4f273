package priority

import (
	"math"
	"time"

	"muster/internal/portable"
)

// meter is the usage of one user in one account: what was used up to an
// instant, and what is used per second from then on.
type meter struct {
	used  float64       // weighted resource seconds, decayed to since
	since time.Duration // when used was true
	rate  int64         // of the jobs that run, in millionths
}

// at is the usage at an instant not before since.
//
// With a half-life H, usage follows dU/dt = rate - U ln2/H, so that
// U(t) = U 2^(-t/H) + rate t m, where m is the mean of 2^(-s/H) over 0..t.
func (m *meter) at(now, halfLife time.Duration) float64 {
	elapsed := max(0, now-m.since)
	left, mean := 1.0, 1.0
	if halfLife > 0 && elapsed > 0 {
		left, mean = decay(elapsed, halfLife)
	}
	fresh := 0.0
	if m.rate != 0 {
		perSecond := float64(m.rate) / Million
		fresh = float64(float64(perSecond*elapsed.Seconds()) * mean)
	}
	return float64(m.used*left) + fresh
}

// change settles the usage at now and adds to the rate.
func (m *meter) change(now, halfLife time.Duration, by int64) {
	m.used, m.since = m.at(now, halfLife), max(now, m.since)
	m.rate += by
}

// decay is what is left of 1 after a time, and the mean of that over the time.
func decay(elapsed, halfLife time.Duration) (left, mean float64) {
	x := float64(float64(elapsed)/float64(halfLife)) * math.Ln2
	if x > 700 {
		return 0, 1 / x // what is left is no normal number any more
	}
	left = portable.Exp(-x)
	if x > 0.25 {
		return left, (1 - left) / x
	}
	// 1 - left would lose digits: the series of (1 - e^-x) / x.
	sum := 0.0
	for n := 13; n >= 1; n-- {
		sum = float64((sum+1)*-x) / float64(n+1)
	}
	return left, sum + 1
}

// halved is 2 to the -x, for x from 0 on.
func halved(x float64) float64 {
	if !(x < 1000) {
		return 0
	}
	return portable.Exp(-float64(x * math.Ln2))
}
