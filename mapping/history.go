package mapping

import "time"

// history is what earlier calls of each kernel took: what to expect of the next.
// The zero value has seen nothing.
type history struct {
	kernels []kernelHistory
	all     kernelHistory
}

// kernelHistory fades: what a kernel took lately counts most.
type kernelHistory struct {
	calls       int64
	mean        float64 // nanoseconds
	meanBytes   float64
	square, mix float64 // faded means of bytes x bytes, and of bytes x time
}

// fading is the weight of the newest call; the first ones count equally.
const fading = 1.0 / 64

// observe notes how long a call took, at normal speed.
func (h *history) observe(c *Call, ran time.Duration) {
	for int(c.Kernel) >= len(h.kernels) {
		h.kernels = append(h.kernels, kernelHistory{})
	}
	bytes := float64(c.In + c.Out)
	h.kernels[c.Kernel].observe(bytes, float64(ran))
	h.all.observe(bytes, float64(ran))
}

func (k *kernelHistory) observe(bytes, ran float64) {
	k.calls++
	w := max(fading, 1/float64(k.calls))
	k.mean += float64(w * (ran - k.mean))
	k.meanBytes += float64(w * (bytes - k.meanBytes))
	k.square += float64(w * (float64(bytes*bytes) - k.square))
	k.mix += float64(w * (float64(bytes*ran) - k.mix))
}

// expect is how long a call should take at normal speed; 0 where nothing is known.
// A kernel that was never called is taken to be like all others together.
func (h *history) expect(c *Call, by Estimate) time.Duration {
	k := &h.all
	if int(c.Kernel) < len(h.kernels) && h.kernels[c.Kernel].calls > 0 {
		k = &h.kernels[c.Kernel]
	}
	if by == ByBytes {
		return k.onLine(float64(c.In + c.Out))
	}
	return time.Duration(k.mean)
}

// onLine follows the line through what was seen: calls that move more run longer,
// as far as earlier ones did.
func (k *kernelHistory) onLine(bytes float64) time.Duration {
	variance := k.square - float64(k.meanBytes*k.meanBytes)
	if k.calls < enoughForALine || variance <= float64(1e-9*k.square) {
		return time.Duration(k.mean)
	}
	slope := float64(k.mix-float64(k.meanBytes*k.mean)) / variance
	return time.Duration(min(longest, max(0, k.mean+float64(slope*(bytes-k.meanBytes)))))
}

const (
	// leastExpected is what is expected of a call of which nothing is known, so that a
	// device with calls is never taken for an idle one.
	leastExpected = time.Duration(1)
	// enoughForALine is how many calls must be known before a line is drawn through them.
	enoughForALine = 8
	// longest bounds what a steep line may say, so that sums of it stay sums: 13 days.
	longest = 1 << 50
)

// misses is how far calls took another time than was expected. The zero value
// has seen none, and takes calls for memoryless.
type misses struct {
	calls        int64
	square, base float64 // faded means of (ran - expected)^2 and of expected^2
}

func (m *misses) observe(expected, ran time.Duration) {
	if expected <= leastExpected {
		return // nothing was known
	}
	m.calls++
	w := max(fading, 1/float64(m.calls))
	miss := float64(ran - expected)
	m.square += float64(w * (float64(miss*miss) - m.square))
	if m.square < 1 {
		m.square = 0 // numbers that fade to nothing become slow
	}
	m.base += float64(w * (float64(float64(expected)*float64(expected)) - m.base))
}

// rest is the remaining time to expect of a running call for which a time was expected, however
// long it has run. With v, the square of the relative error, a call that is met at a random time
// has (1+v)/2 of the expected time before it on average; if v is 1, as with exponential times, that
// is all of it at any time. Below 1 the time that it has run says more, and the rest fades to
// nothing. Half of the mean is taken, since most calls end earlier than that, and a call that goes
// elsewhere costs other calls time: tried with 1/4, 1/2 and 1.
func (m *misses) rest(expected time.Duration) time.Duration {
	v := 1.0
	if m.calls > 0 {
		v = m.square / m.base
	}
	share := float64(min(1, v) * float64((1+v)/4))
	return max(min(leastExpected, expected), time.Duration(min(longest, float64(share*float64(expected)))))
}
