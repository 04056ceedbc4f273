package misuse

import (
	"errors"
	"fmt"
	"testing"
)

func TestIs(t *testing.T) {
	err := Errorf("--weight %d: give a number from 1 to 1000", 0)
	if !Is(err) || !Is(fmt.Errorf("the job: %w", err)) {
		t.Error("a mistake of the user is not recognised")
	}
	if Is(nil) || Is(errors.New("the disk is full")) {
		t.Error("a failure is taken for a mistake of the user")
	}
	if got := err.Error(); got != "--weight 0: give a number from 1 to 1000" {
		t.Error(got)
	}
}
