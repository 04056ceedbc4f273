package vec

import "runtime/debug"

// The oracles make much garbage and keep nothing: a collector that comes less often saves a fifth of the
// time.
func init() { debug.SetGCPercent(400) }
