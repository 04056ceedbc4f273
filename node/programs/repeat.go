package programs

import (
	"context"
	"fmt"
	"os"
	"time"
)

// Repeat saves something each time that this much time has passed, until it is gone or the context ends.
// A save that fails although neither is so is reported, and the next one is tried all the same.
func Repeat(ctx context.Context, every time.Duration, gone func() bool, save func(context.Context) error, failed func(error)) {
	for {
		select {
		case <-time.After(every):
		case <-ctx.Done():
			return
		}
		if gone() {
			return
		}
		if err := save(ctx); err != nil && ctx.Err() == nil && !gone() {
			failed(err)
		}
	}
}

// ProcessGone says whether there is no process of that number.
func ProcessGone(pid int) bool {
	_, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	return err != nil
}
