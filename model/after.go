package model

import (
	"math"
	"time"
)

// After is at + span, or the largest duration if that would overflow. span must not be negative.
func After(at, span time.Duration) time.Duration {
	if end := at + span; end >= at {
		return end
	}
	return math.MaxInt64
}
