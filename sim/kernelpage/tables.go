package kernelpage

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"muster/report"
)

// Tables show the study in numbers: the mappers side by side, then the results of each application.
func (s *Study) Tables() []*report.Table {
	return []*report.Table{s.mapperTable(), s.appTable()}
}

// cell is a column of a table, with a function for its value for a policy and size.
type cell struct {
	name, help string
	right      bool
	text       func(size, policy int) string
}

// write writes a number over all seeds: the mean, with its interval if there are several seeds.
func (s *Study) write(i report.Interval, format func(float64) string) string {
	return s.plusMinus(format(i.Mean), i, format)
}

// plusMinus appends the interval to a mean. If the units are the same it writes the unit once.
func (s *Study) plusMinus(mean string, i report.Interval, format func(float64) string) string {
	if len(s.Seeds) == 1 || math.IsNaN(i.Mean) {
		return mean
	}
	half := format(i.Half)
	value, unit, _ := strings.Cut(mean, " ")
	if halfValue, halfUnit, _ := strings.Cut(half, " "); unit == halfUnit && unit != "" {
		return value + " ± " + halfValue + " " + unit
	}
	return mean + " ± " + half
}

func (s *Study) number(name, help string, of Measure, format func(float64) string) cell {
	return cell{name, help, true, func(size, policy int) string { return s.write(s.Over(size, policy, of), format) }}
}

// mean is a column without intervals. Only the most important columns have them, because otherwise
// the table would be too wide.
func (s *Study) mean(name, help string, of Measure, format func(float64) string) cell {
	return cell{name, help, true, func(size, policy int) string { return format(s.Over(size, policy, of).Mean) }}
}

// compared is a column that is empty for the first policy.
func (s *Study) compared(name, help string, of func(size, policy int) report.Interval, format func(float64) string) cell {
	return cell{name, help, true, func(size, policy int) string {
		if policy == 0 {
			return ""
		}
		i := of(size, policy)
		return s.plusMinus(signed(i.Mean, format), i, format)
	}}
}

func signed(x float64, format func(float64) string) string {
	if x > 0 {
		return "+" + format(x)
	}
	return format(x)
}

// Size formats bytes in the unit that suits the amount.
func Size(bytes float64) string {
	units := []string{"B", "KB", "MB", "GB", "TB", "PB"}
	unit := 0
	for unit+1 < len(units) && bytes >= 999.5 {
		bytes /= 1000
		unit++
	}
	return strconv.FormatFloat(bytes, 'f', digits(bytes), 64) + " " + units[unit]
}

// digits is the number of digits after the point that leaves three significant digits.
func digits(x float64) int {
	switch {
	case x == 0 || x >= 99.95 || x == math.Trunc(x):
		return 0
	case x >= 9.995:
		return 1
	}
	return 2
}

// points writes the difference of two shares in percentage points.
func points(x float64) string { return strconv.FormatFloat(x*100, 'f', 1, 64) + " pp" }

// percent writes a fraction as a percentage; small ones, such as intervals, with two digits.
func percent(x float64) string {
	if a := math.Abs(x); a > 0 && a < 0.00995 {
		return strconv.FormatFloat(x*100, 'f', 2, 64) + " %"
	}
	return report.Percent(x)
}

// wait writes seconds with three significant digits where mappers may differ in the third.
func wait(x float64) string {
	if a := math.Abs(x); a >= 0.9995 && a < 59.5 {
		return strconv.FormatFloat(x, 'f', digits(a), 64) + " s"
	}
	return report.Duration(x)
}

// count writes a mean of counts.
func count(x float64) string { return report.Number(math.Round(x)) }

// rate writes kernels per second.
func rate(x float64) string {
	if x >= 999.5 {
		return count(x)
	}
	return strconv.FormatFloat(x, 'f', digits(x), 64)
}

func (s *Study) seedsInWords() string {
	if len(s.Seeds) == 1 {
		return ""
	}
	return fmt.Sprintf("Means over %d seeds ± 95 %% confidence.", len(s.Seeds))
}

func (s *Study) mapperTable() *report.Table {
	cells := []cell{{"Mapper", "What chooses a device for each kernel.", false, func(_, policy int) string { return s.Policies[policy] }}}
	if len(s.Nodes) > 1 {
		cells = append(cells, cell{"Nodes", "Nodes of the cluster.", true, func(size, _ int) string { return strconv.Itoa(s.Nodes[size]) }})
	}
	title, first := "Mappers side by side", s.Policies[0]
	cells = append(cells, s.number("GPUs", "Time of all GPUs that was spent in kernels.", Utilisation, percent))
	if len(s.Policies) > 1 {
		title += ", and against " + first
		cells = append(cells, s.compared("ΔGPUs", "Difference from "+first+", in percentage points.", func(size, policy int) report.Interval { return s.Margin(size, policy, Utilisation) }, points))
	}
	cells = append(cells, s.number("Wait", "From the launch of a kernel until its results are there, without the kernel itself. Mean over calls.", Wait, wait))
	if len(s.Policies) > 1 {
		cells = append(cells, s.compared("ΔWait", "Change against "+first+".", func(size, policy int) report.Interval { return s.Against(size, policy, Wait) }, percent))
	}
	if s.speedsDiffer() {
		cells = append(cells, s.number("Turnaround", "From the launch of a kernel until its results are there, with the kernel itself. Mean over calls.", Turnaround, wait))
	}
	cells = append(cells,
		s.mean("Queue", "Part of the wait: until the call has its device.", Queue, wait),
		s.mean("Transfer", "Part of the wait: latency and data, of calls to other nodes.", Transfer, wait),
		s.number("Kernels", "Calls that are done.", Kernels, count),
		s.mean("Remote", "Part of the calls that were done by a GPU of another node.", Remote, percent),
		s.mean("Moved", "Data that went from node to node.", Moved, Size),
		s.mean("For data", "Time of all GPUs in which they were held for data that travelled.", ForData, percent))
	if s.allEnd() {
		cells = append(cells, s.number("End", "When the last process ended.", End, wait))
	}
	t := s.table(title, cells)
	t.Note = s.notes()
	return t
}

// notes are the caveats below the table of mappers.
func (s *Study) notes() string {
	list := []string{s.seedsInWords(), s.unfinishedInWords()}
	if s.speedsDiffer() {
		list = append(list, "The GPUs differ in speed: compare kernels and turnaround. A fast GPU needs less time for the same work, which GPUs and Wait do not show.")
	}
	return strings.Join(slices.DeleteFunc(list, func(line string) bool { return line == "" }), " ")
}

// speedsDiffer says whether some GPU is faster than another.
func (s *Study) speedsDiffer() bool {
	for i := range s.Nodes {
		c := s.Runs[i*len(s.Policies)].Cluster
		speed := 0.0
		for n := range c.Nodes {
			for _, kind := range c.Nodes[n].GPUs {
				if speed != 0 && c.GPUTypes[kind].Speed != speed {
					return true
				}
				speed = c.GPUTypes[kind].Speed
			}
		}
	}
	return false
}

// fewUnfinished is the fraction of calls in progress at the end that needs no note.
const fewUnfinished = 0.1

// unfinishedInWords names the mappers with many unfinished calls at the end. No mean includes the
// waits of those calls, so that the worst mapper could look best.
func (s *Study) unfinishedInWords() string {
	var list []string
	for size, nodes := range s.Nodes {
		for k, policy := range s.Policies {
			launched, done := s.Over(size, k, Launched).Mean, s.Over(size, k, Kernels).Mean
			if launched-done <= fewUnfinished*launched {
				continue
			}
			words := fmt.Sprintf("%s of %s under %s", count(launched-done), count(launched), policy)
			if len(s.Nodes) > 1 {
				words += fmt.Sprintf(" on %d nodes", nodes)
			}
			list = append(list, words)
		}
	}
	if list == nil {
		return ""
	}
	return "Calls that were not done at the end, and so are in no mean: " + strings.Join(list, ", ") + "."
}

// appTable has a row for each application, size and policy.
func (s *Study) appTable() *report.Table {
	t := &report.Table{Title: "Applications", Note: s.seedsInWords()}
	if len(s.Policies) > 1 {
		t.Title += ", and who lost against " + s.Policies[0]
	}
	for app := range s.Runs[0].Workload.Apps {
		part := s.table("", s.appCells(app))
		t.Columns = part.Columns
		t.Rows = append(t.Rows, part.Rows...)
	}
	return t
}

func (s *Study) appCells(app int) []cell {
	name, its := s.Runs[0].Result.Apps[app].Name, OfApp(app)
	cells := []cell{
		{"Application", "", false, func(size, policy int) string {
			if size+policy > 0 {
				return ""
			}
			return name
		}},
		{"Mapper", "", false, func(_, policy int) string { return s.Policies[policy] }},
	}
	if len(s.Nodes) > 1 {
		cells = append(cells, cell{"Nodes", "Nodes of the cluster.", true, func(size, _ int) string { return strconv.Itoa(s.Nodes[size]) }})
	}
	cells = append(cells,
		cell{"Processes", "", true, func(size, _ int) string {
			return strconv.Itoa(s.Runs[size*len(s.Policies)].Result.Apps[app].Processes)
		}},
		s.number("Kernels", "Calls that are done.", its.Kernels, count),
		s.mean("a second", "Kernels for each second that the application ran.", its.Rate, rate))
	if len(s.Policies) > 1 {
		cells = append(cells,
			s.compared("Change", "Of the kernels a second, against "+s.Policies[0]+".", func(size, policy int) report.Interval { return s.Against(size, policy, its.Rate) }, percent))
	}
	cells = append(cells,
		s.number("Wait", "Mean over its calls.", its.Wait, wait))
	if s.speedsDiffer() {
		cells = append(cells, s.number("Turnaround", "Wait and kernel. Mean over its calls.", its.Turnaround, wait))
	}
	cells = append(cells,
		s.mean("Queue", "Part of the wait: until the call has its device.", its.Queue, wait),
		s.mean("Transfer", "Part of the wait: latency and data.", its.Transfer, wait),
		s.mean("Remote", "Part of its calls that were done by a GPU of another node.", its.Remote, percent),
		s.mean("Its GPUs", "Time of the GPUs on its own nodes that was spent in kernels, of whomever.", its.OwnGPUs, percent))
	if s.allEnd() {
		cells = append(cells, s.number("End", "When the last of its processes ended.", its.End, wait))
	}
	return cells
}

// allEnd says whether the processes of every run have ended.
func (s *Study) allEnd() bool {
	for i := range s.Runs {
		for k := range s.Runs[i].Result.Apps {
			if a := &s.Runs[i].Result.Apps[k]; a.Ended < a.Processes {
				return false
			}
		}
	}
	return true
}

// table fills in the cells for every size and policy.
func (s *Study) table(title string, cells []cell) *report.Table {
	t := &report.Table{Title: title}
	for _, c := range cells {
		t.Columns = append(t.Columns, report.Column{Name: c.name, Help: c.help, Right: c.right})
	}
	for size := range s.Nodes {
		for policy := range s.Policies {
			row := make([]string, len(cells))
			for k, c := range cells {
				row[k] = c.text(size, policy)
			}
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

// runTable has a row for each run.
func (s *Study) runTable() *report.Table {
	t := &report.Table{Columns: []report.Column{
		{Name: "Mapper"}, {Name: "Nodes", Right: true}, {Name: "Seed", Right: true}, {Name: "GPUs", Right: true}, {Name: "Wait", Right: true},
		{Name: "Queue", Right: true}, {Name: "Transfer", Right: true}, {Name: "Kernels", Right: true}, {Name: "Remote", Right: true}, {Name: "Moved", Right: true},
	}}
	for i := range s.Runs {
		r := &s.Runs[i]
		t.Rows = append(t.Rows, []string{
			r.Policy, strconv.Itoa(r.Nodes()), strconv.FormatUint(r.Seed, 10), percent(Utilisation(r)), wait(Wait(r)),
			wait(Queue(r)), wait(Transfer(r)), count(Kernels(r)), percent(Remote(r)), Size(Moved(r)),
		})
	}
	return t
}
