// Package all lists the experiments. A new one joins with one line here.
package all

import (
	"muster/exp"
	"muster/exp/noderuntime"
	"muster/exp/tsubame"
)

// Experiments in the order in which they are shown.
var Experiments = []exp.Experiment{
	tsubame.Experiment,
	noderuntime.Experiment,
}
