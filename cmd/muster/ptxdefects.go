package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"muster/ptx/simt"
)

// checker makes the checker that --check asks for, which knows all buffers and
// variables; nil if none is wanted. What it finds is told as it comes, after quiet has
// been called, and gathered.
func (f *ptxRunFlags) checker(c *cobra.Command, r *kernelRun, quiet func()) (*simt.Checker, *[]*simt.Defect, error) {
	found := new([]*simt.Defect)
	if f.check == "" {
		return nil, found, nil
	}
	checks, err := simt.ParseChecks(f.check)
	if err != nil {
		return nil, nil, usageErrorf("--check: %v", err)
	}
	if f.errorStatus < 0 || f.errorStatus > 255 {
		return nil, nil, usageErrorf("--error-exitcode %d: give a number from 0 to 255", f.errorStatus)
	}
	checker := simt.NewChecker(checks, 0, func(d *simt.Defect) {
		*found = append(*found, d)
		if !f.asJSON {
			quiet()
			writeDefect(c.ErrOrStderr(), d)
		}
	})
	for i := range r.memory.regions {
		g := &r.memory.regions[i]
		checker.Allocate(g.Base, g.size, g.what, !r.isOut(g))
	}
	return checker, found, nil
}

// isOut says whether a region is a buffer that the kernel is to fill.
func (r *kernelRun) isOut(g *gpuRegion) bool {
	for i, a := range r.args {
		if a.mode == "out" && len(r.buffers[i]) > 0 && &r.buffers[i][0] == &g.Bytes[0] {
			return true
		}
	}
	return false
}

// status is how the command ends after a check.
func (f *ptxRunFlags) status(c *simt.Checker) error {
	if c == nil || f.errorStatus == 0 || c.Found() == 0 {
		return nil
	}
	return exitStatus(f.errorStatus)
}

// checkPrefix begins the lines that a checker writes.
const checkPrefix = "muster check: "

// writeDefect writes a report, each line with the prefix.
func writeDefect(w io.Writer, d *simt.Defect) {
	for line := range strings.Lines(d.String()) {
		fmt.Fprintf(w, "%s%s\n", checkPrefix, strings.TrimSuffix(line, "\n"))
	}
}

// writeSummary writes what was found in all.
func writeSummary(w io.Writer, c *simt.Checker) {
	for _, line := range c.Summary() {
		fmt.Fprintf(w, "%s%s\n", checkPrefix, line)
	}
}

// ptxDefectJSON is a defect in the document of muster ptx run --json.
type ptxDefectJSON struct {
	Kind    string       `json:"kind"`
	Message string       `json:"message"`
	Space   string       `json:"space"`
	Address uint64       `json:"address"`
	Size    int          `json:"size_bytes"`
	Memory  string       `json:"memory"`
	Access  ptxDeedJSON  `json:"access"`
	Earlier *ptxDeedJSON `json:"earlier"` // of a race
}

type ptxDeedJSON struct {
	What        string    `json:"what"`
	Block       [3]uint32 `json:"block"`
	Thread      [3]uint32 `json:"thread"`
	Line        int       `json:"line"`
	Source      string    `json:"source"`
	Instruction string    `json:"instruction"`
}

func defectsJSON(found []*simt.Defect) []ptxDefectJSON {
	three := func(d simt.Dim) [3]uint32 { return [3]uint32{d.X, d.Y, d.Z} }
	deed := func(d *simt.Deed) ptxDeedJSON {
		return ptxDeedJSON{d.What, three(d.Block), three(d.Thread), d.Line, d.Source, d.Instruction}
	}
	var all []ptxDefectJSON
	for _, d := range found {
		j := ptxDefectJSON{Kind: d.Kind.String(), Message: d.String(), Space: d.SpaceName(), Address: d.Address, Size: d.Size, Memory: d.Memory, Access: deed(&d.Deed)}
		if d.Other != nil {
			earlier := deed(d.Other)
			j.Earlier = &earlier
		}
		all = append(all, j)
	}
	return all
}
