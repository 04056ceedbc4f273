package kernelpage

import (
	"fmt"
	"strings"

	"muster/internal/units"
	"muster/report"
	"muster/sim/kernels"
)

// Words are what a user wrote, as far as it is shown again.
type Words struct {
	Cluster, Workload, Span string
	Nodes                   string // "" if the cluster was taken as it is
	Seeds                   string
}

// Asked tells in words what was asked: what is simulated, and how.
func Asked(s *kernels.Sweep, w Words) [][2]string {
	c := s.Sizes[0].Cluster
	span := "until all processes have ended"
	if s.Common.Span > 0 {
		span = w.Span
	}
	hold := "until the end of the kernel"
	if s.Common.HoldResults {
		hold = "until the results have arrived"
	}
	send := "when it has its turn"
	if s.Common.SendAhead {
		send = "as soon as its GPU is chosen, before the call joins the queue there"
	}
	var apps []string
	for _, app := range s.Sizes[0].Workload.Apps {
		apps = append(apps, fmt.Sprintf("%s on %s", app.Name, units.Plural(app.Nodes, "node")))
	}
	rows := [][2]string{
		{"Cluster", fmt.Sprintf("%s: %s", w.Cluster, c.Summary())},
		{"Network", network(c)},
		{"Workload", fmt.Sprintf("%s: %s", w.Workload, strings.Join(apps, ", "))},
		{"Mappers", strings.Join(s.Mappers, ", ")},
		{"Simulated time", span},
		{"A remote call holds its GPU", hold},
		{"Its input is sent", send},
		{"Kernels that an average counts", fmt.Sprint(s.Common.Window)},
	}
	if st := s.Common.Status; st != (kernels.Status{}) {
		rows = append(rows, [2]string{"What nodes know of others", fmt.Sprintf("after %s; an idle GPU seems busy %s of the time, a busy one idle %s",
			st.Delay, report.Percent(st.FalsePositive), report.Percent(st.FalseNegative))})
	}
	if w.Nodes != "" {
		rows = append(rows, [2]string{"Nodes", w.Nodes})
	}
	return append(rows, [2]string{"Seeds", w.Seeds})
}
