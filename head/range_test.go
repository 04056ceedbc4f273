package head_test

import (
	"testing"

	"muster/model/slurmopt"
	"muster/policy/priority"
)

// The range that users are told and the one that the queue's order takes are the same.
func TestOneRangeOfNiceValues(t *testing.T) {
	if priority.MaxNice != slurmopt.MaxNice {
		t.Errorf("%d and %d", priority.MaxNice, slurmopt.MaxNice)
	}
}
