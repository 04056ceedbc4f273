package onekernel

import (
	"fmt"
	"io"
	"strings"

	"muster/ptx/simt/memcheck"
	"muster/ptx/simt/shape"
)

// newChecker makes a checker that knows all buffers and variables, and calls found with each defect.
func (r *Kernel) newChecker(checks memcheck.Checks, found func(*memcheck.Defect)) *memcheck.Checker {
	checker := memcheck.New(checks, 0, found)
	for i := range r.memory.regions {
		g := &r.memory.regions[i]
		checker.Allocate(g.Base, g.size, g.what, !r.isOut(g))
	}
	return checker
}

// isOut says whether a region is an "out" buffer, which counts as uninitialised.
func (r *Kernel) isOut(g *region) bool {
	for i, a := range r.args {
		if a.mode == "out" && len(r.buffers[i]) > 0 && &r.buffers[i][0] == &g.Bytes[0] {
			return true
		}
	}
	return false
}

// CheckPrefix begins the lines that a checker writes.
const CheckPrefix = "muster check: "

// writeDefect writes a report, with the prefix on each line.
func writeDefect(w io.Writer, d *memcheck.Defect) {
	for line := range strings.Lines(d.String()) {
		fmt.Fprintf(w, "%s%s\n", CheckPrefix, strings.TrimSuffix(line, "\n"))
	}
}

// writeSummary writes how many defects were found.
func writeSummary(w io.Writer, c *memcheck.Checker) {
	for _, line := range c.Summary() {
		fmt.Fprintf(w, "%s%s\n", CheckPrefix, line)
	}
}

// defectDocument is a defect in a Document.
type defectDocument struct {
	Kind    string        `json:"kind"`
	Message string        `json:"message"`
	Space   string        `json:"space"`
	Address uint64        `json:"address"`
	Size    int           `json:"size_bytes"`
	Memory  string        `json:"memory"`
	Access  deedDocument  `json:"access"`
	Earlier *deedDocument `json:"earlier"` // the other access of a race
}

type deedDocument struct {
	What        string    `json:"what"`
	Block       [3]uint32 `json:"block"`
	Thread      [3]uint32 `json:"thread"`
	Line        int       `json:"line"`
	Source      string    `json:"source"`
	Instruction string    `json:"instruction"`
}

// setDefects adds the defects that a checker has found.
func (doc *Document) setDefects(found []*memcheck.Defect) {
	three := func(d shape.Dim) [3]uint32 { return [3]uint32{d.X, d.Y, d.Z} }
	deed := func(d *memcheck.Deed) deedDocument {
		return deedDocument{d.What, three(d.Block), three(d.Thread), d.Line, d.Source, d.Instruction}
	}
	for _, d := range found {
		j := defectDocument{Kind: d.Kind.String(), Message: d.String(), Space: d.SpaceName(), Address: d.Address, Size: d.Size, Memory: d.Memory, Access: deed(&d.Deed)}
		if d.Other != nil {
			earlier := deed(d.Other)
			j.Earlier = &earlier
		}
		doc.Defects = append(doc.Defects, j)
	}
}
