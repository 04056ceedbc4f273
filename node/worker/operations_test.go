package worker

import (
	"testing"

	"muster/node/clientcore"
)

// What asks in the core's table is what has an outcome in the worker's, and no kind is missing in either.
func TestEveryOperationIsPerformed(t *testing.T) {
	var p parts
	p.enter()
	for kind := range clientcore.Kinds {
		how := p.operations[kind]
		if asks := how.ask != nil; asks == (how.do != nil) || asks != kind.Asks() {
			t.Errorf("kind %d: asks is %v, and the worker has an answer: %v", kind, kind.Asks(), asks)
		}
	}
}
