package onekernel

import (
	"strconv"
	"strings"

	"muster/internal/misuse"
	"muster/ptx/simt"
	"muster/ptx/simt/shape"
)

// LaunchWords say how to run a kernel, in the words of the flags of muster ptx run.
type LaunchWords struct {
	Grid, Block            string // X[,Y[,Z]]
	Engine                 string
	Shared, Stack, Workers int
	Cooperative            bool
	// Profile has the lines counted and sampled, Disasm the machine code kept.
	Profile, Disasm bool
}

// maxCooperative bounds the threads of a cooperative launch: the state of all
// of them is in memory at once.
const maxCooperative = 1 << 17

// Launch reads the words.
func (w *LaunchWords) Launch() (simt.Launch, error) {
	l := simt.Launch{Shared: w.Shared, Stack: w.Stack, Workers: w.Workers, Cooperative: w.Cooperative}
	engine, ok := simt.ParseEngine(w.Engine)
	if !ok {
		return l, misuse.Errorf("there is no engine %q: --engine is one of interpret, compile and auto", w.Engine)
	}
	l.Engine, l.List = engine, w.Disasm
	if w.Disasm {
		if engine == simt.Interpret {
			return l, misuse.Errorf("--disasm: the interpreter has no machine code; leave --engine out")
		}
		l.Engine = simt.Compile
	}
	if w.Profile {
		l.Profile = &simt.Profile{}
	}
	var err error
	if l.Grid, err = parseDim("--grid", "blocks", w.Grid); err != nil {
		return l, err
	}
	if l.Block, err = parseDim("--block", "threads a block", w.Block); err != nil {
		return l, err
	}
	if w.Workers < 1 {
		return l, misuse.Errorf("--workers must be 1 or more, not %d", w.Workers)
	}
	if w.Cooperative && (l.Grid.Count() > maxCooperative || l.Block.Count() > maxCooperative || l.Grid.Count()*l.Block.Count() > maxCooperative) {
		return l, misuse.Errorf("--cooperative: at most %d threads can run at the same time", maxCooperative)
	}
	return l, nil
}

// parseDim reads X[,Y[,Z]].
func parseDim(flag, what, text string) (shape.Dim, error) {
	if text == "" {
		return shape.Dim{}, misuse.Errorf("say how many %s: %s X, X,Y or X,Y,Z", what, flag)
	}
	sides := strings.Split(text, ",")
	d := [3]uint32{1, 1, 1}
	if len(sides) > len(d) {
		return shape.Dim{}, misuse.Errorf("%s %s: there are three dimensions at most", flag, text)
	}
	for i, side := range sides {
		n, err := strconv.ParseUint(strings.TrimSpace(side), 10, 32)
		if err != nil || n == 0 {
			return shape.Dim{}, misuse.Errorf("%s %s: %q is no number from 1 on; write X, X,Y or X,Y,Z", flag, text, side)
		}
		d[i] = uint32(n)
	}
	return shape.Dim{X: d[0], Y: d[1], Z: d[2]}, nil
}
