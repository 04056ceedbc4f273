package nodetable

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"muster/internal/units"
	"muster/wire/status"
)

var elementColumns = []column[status.IVMProgram]{
	{"<ELEMENTS OF", "program", func(_ *status.Node, p *status.IVMProgram) string { return filepath.Base(p.Program) }},
	{"<USER", "user", func(_ *status.Node, p *status.IVMProgram) string { return p.User }},
	{"<NODE", "number", func(_ *status.Node, p *status.IVMProgram) string { return fmt.Sprintf("%d of %d", p.Number, p.Nodes) }},
	{"<ELEMENTS", "elements", func(_ *status.Node, p *status.IVMProgram) string { return elementWords(p.Elements) }},
	{">MASTERS", "masters", func(_ *status.Node, p *status.IVMProgram) string {
		return fmt.Sprintf("%d (%s)", p.Masters, units.BriefSize(p.MasterBytes))
	}},
	{">MIRRORS", "mirrors", func(_ *status.Node, p *status.IVMProgram) string {
		return fmt.Sprintf("%d (%s)", p.Mirrors, units.BriefSize(p.MirrorBytes))
	}},
	{">PUT", "put_bytes", func(_ *status.Node, p *status.IVMProgram) string { return units.BriefSize(p.PutBytes) }},
	{">GOT", "got_bytes", func(_ *status.Node, p *status.IVMProgram) string { return units.BriefSize(p.GotBytes) }},
}

// writeElements writes the table of programs with elements below another, if there are any.
func writeElements(w io.Writer, s *status.Node, columns int) error {
	if s.IVM == nil || len(s.IVM.Programs) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	return tableOf(elementColumns, s, s.IVM.Programs).WriteFitted(w, columns)
}

// elementWords names the first elements, and where they are: 1, 2, 4 gpu0 and 7 more.
func elementWords(all []status.IVMElement) string {
	const most = 6
	var words []string
	for _, e := range all[:min(most, len(all))] {
		word := fmt.Sprint(e.Element)
		if e.GPU != nil {
			word += fmt.Sprintf(" gpu%d", *e.GPU)
		}
		words = append(words, word)
	}
	text := cmp.Or(strings.Join(words, ", "), "-")
	if more := len(all) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
