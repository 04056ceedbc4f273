package worker

import (
	"strings"
	"testing"

	"muster/node/clientcore"
)

// What asks in the core's table is what has an outcome in the worker's, and no kind is missing in either.
func TestEveryOperationIsPerformed(t *testing.T) {
	for kind := range clientcore.Kinds {
		how := operations[kind]
		if name := kind.String(); name == "" || strings.HasPrefix(name, "operation ") {
			t.Errorf("kind %d has no name", kind)
		}
		if asks := how.ask != nil; asks == (how.do != nil) || asks != kind.Asks() {
			t.Errorf("%v: asks is %v, and the worker has an answer: %v", kind, kind.Asks(), asks)
		}
	}
}
