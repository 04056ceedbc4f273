// Package all lists the experiments. To add one, add a line here.
package all

import (
	"muster/exp"
	"muster/exp/aucsched"
	"muster/exp/clusterscheduler"
	"muster/exp/fgd"
	"muster/exp/gremm"
	"muster/exp/ivm"
	"muster/exp/noderuntime"
	"muster/exp/rgpu"
	"muster/exp/tsubame"
)

// Experiments in the order in which they are shown.
var Experiments = []exp.Experiment{
	tsubame.Experiment,
	rgpu.Experiment,
	aucsched.Experiment,
	fgd.Experiment,
	gremm.Experiment,
	noderuntime.Experiment,
	clusterscheduler.Experiment,
	ivm.Experiment,
}
