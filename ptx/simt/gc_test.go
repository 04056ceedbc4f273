package simt_test

import "runtime/debug"

// Tests make much garbage and keep little: a collector that comes less often takes a quarter of their time
// less.
func init() { debug.SetGCPercent(400) }
