package kernelpage

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/mapping"
	"muster/report"
	"muster/sim/kernels"
)

// maxChoices limits the devices in the explanation of a call.
const maxChoices = 12

// explained calls f for every launch that the user asked about, in the order of the mappers. The
// table is nil if the mapper compared no devices.
func (s *Study) explained(f func(title, lead string, t *report.Table)) {
	for i := range s.Policies {
		r := &s.Runs[i]
		names := r.deviceNames()
		for k := range r.Result.Explained {
			e := &r.Result.Explained[k]
			title := fmt.Sprintf("Call %s explained: %s, at %s s", report.Number(float64(e.Call)), r.Policy, strconv.FormatFloat(e.At.Seconds(), 'f', 3, 64))
			var t *report.Table
			if len(e.Choices) > 0 {
				t = r.choiceTable(e, names)
			}
			f(title, r.lead(e, names), t)
		}
	}
}

// WriteExplained writes the explanations of launches for a terminal.
func (s *Study) WriteExplained(w io.Writer) error {
	var err error
	s.explained(func(title, lead string, t *report.Table) {
		if err == nil {
			_, err = fmt.Fprintf(w, "\n%s\n%s\n", title, lead)
		}
		if err == nil && t != nil {
			err = t.WriteText(w)
		}
	})
	return err
}

// explainedSections are the explanations for the page.
func (s *Study) explainedSections() []report.Section {
	var list []report.Section
	s.explained(func(title, lead string, t *report.Table) {
		list = append(list, report.Heading(title), report.Text(lead))
		if t != nil {
			list = append(list, t)
		}
	})
	return list
}

// lead says which process launched what, where the call went, and the mapper's reason if it gives
// one.
func (r *Run) lead(e *kernels.Explained, names []string) string {
	c := &e.Launched
	var b strings.Builder
	app := r.Workload.Apps[c.App].Name
	fmt.Fprintf(&b, "Process %d of %s, on %s", c.Rank, app, r.Cluster.Nodes[c.Node].Name)
	if kernel, named := strings.CutPrefix(r.Workload.Kernels()[c.Kernel], app+"/"); named {
		fmt.Fprintf(&b, ", kernel %s", kernel)
	}
	fmt.Fprintf(&b, ": %s to send", Size(float64(c.In)))
	for _, held := range c.Resident {
		fmt.Fprintf(&b, ", of which %s has %s", names[held.Device], Size(float64(c.ResidentOn(held.Device))))
	}
	fmt.Fprintf(&b, ", %s back. ", Size(float64(c.Out)))
	switch {
	case e.Given < 0:
		b.WriteString("It waits until a GPU is free.")
	case r.Result.Devices[e.Given].Node == c.Node:
		fmt.Fprintf(&b, "It went to %s, of its own node.", names[e.Given])
	default:
		fmt.Fprintf(&b, "It went to %s, of another node.", names[e.Given])
	}
	if e.Reason != "" {
		b.WriteString(" " + e.Reason)
	}
	return b.String()
}

// choiceTable lists the devices that the mapper compared, the best first. It always includes the
// chosen one.
func (r *Run) choiceTable(e *kernels.Explained, names []string) *report.Table {
	t := &report.Table{}
	shown := make([]int, min(maxChoices, len(e.Choices)))
	for i := range shown {
		shown[i] = i
	}
	at := slices.IndexFunc(e.Choices, func(c mapping.Choice) bool { return c.Device == e.Device })
	if at >= len(shown) {
		shown[len(shown)-1] = at
	}
	t.Rows = make([][]string, len(shown))
	column := func(name, help string, right bool, text func(i int) string) {
		t.Columns = append(t.Columns, report.Column{Name: name, Help: help, Right: right})
		for row, i := range shown {
			t.Rows[row] = append(t.Rows[row], text(i))
		}
	}
	// some says whether a column has any content.
	some := func(of func(i int) bool) bool {
		for i := range e.Choices {
			if of(i) {
				return true
			}
		}
		return false
	}
	span := func(name, help string, of func(c *mapping.Choice) time.Duration) {
		column(name, help, true, func(i int) string { return wait(of(&e.Choices[i]).Seconds()) })
	}

	column("#", "Its place: the best is first.", true, func(i int) string { return strconv.Itoa(i + 1) })
	column("GPU", "Its node, and its number there.", false, func(i int) string { return names[e.Choices[i].Device] })
	column("Where", "Of the caller's own node, or of another.", false, func(i int) string {
		if r.Result.Devices[e.Choices[i].Device].Node == e.Launched.Node {
			return "own node"
		}
		return "other node"
	})
	column("Queued", "Calls that it had, as the mapper saw it.", true, func(i int) string { return strconv.Itoa(int(e.Choices[i].Queued)) })
	if some(func(i int) bool { return e.Truth[i] != e.Choices[i].Queued }) {
		column("In truth", "Calls that it really had.", true, func(i int) string { return strconv.Itoa(int(e.Truth[i])) })
	}
	if some(func(i int) bool { return e.Choices[i].Held > 0 }) {
		column("Holds", "Input that it has already.", true, func(i int) string { return Size(float64(e.Choices[i].Held)) })
	}
	if e.Drawn {
		column("Weight", "Idle GPUs weigh more than busy ones, those of the own node more than others.", true, func(i int) string {
			return strconv.FormatFloat(e.Choices[i].Weight, 'g', 3, 64)
		})
		column("Chance", "Of being drawn.", true, func(i int) string { return percent(e.Choices[i].Chance) })
	} else {
		span("Wait", "Expected, for the calls before this one.", func(c *mapping.Choice) time.Duration { return c.Wait })
		if some(func(i int) bool { return e.Choices[i].Run > 0 }) {
			span("Kernel", "Expected, on a device of this speed.", func(c *mapping.Choice) time.Duration { return c.Run })
		}
		span("Transfer", "Expected, for the data there and back.", func(c *mapping.Choice) time.Duration { return c.Transfer })
		if some(func(i int) bool { return e.Choices[i].Care > 0 }) {
			span("Care", "What others who wait lose while the device is held for data, as far as the mapper cares.", func(c *mapping.Choice) time.Duration { return c.Care })
		}
		span("Sum", "The least is chosen.", (*mapping.Choice).Sum)
	}
	column("Chosen", "", false, func(i int) string {
		if i == at {
			return "yes"
		}
		return ""
	})
	t.Note = notShown(len(e.Choices)-len(shown), e.Unseen)
	return t
}

// notShown says what a table leaves out.
func notShown(more, unseen int) string {
	var words []string
	if more > 0 {
		words = append(words, gpus(more, "more ")+" compared.")
	}
	if unseen > 0 {
		words = append(words, gpus(unseen, "")+" not looked at: none could be better.")
	}
	return strings.Join(words, " ")
}

// gpus says in words that something was done to this many GPUs.
func gpus(n int, which string) string {
	if n == 1 {
		return "1 " + which + "GPU was"
	}
	return report.Number(float64(n)) + " " + which + "GPUs were"
}
