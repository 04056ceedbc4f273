package agent

import (
	"testing"

	wire "muster/wire/agent"
)

// Two agents on one machine, each with a task of the same number, have two control
// groups.
func TestGroupsOfTwoAgents(t *testing.T) {
	task := wire.Start{Task: wire.Task{Job: 1, Attempt: 1}}
	one, other := taskFile{Marker: "0123456789abcdef0123", start: task}, taskFile{Marker: "fedcba98765432100123", start: task}
	if one.group() == other.group() || one.group() != "1.1.0-0123456789abcdef" {
		t.Error(one.group(), other.group())
	}
}
