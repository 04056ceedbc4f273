package jobtable

import (
	"cmp"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"muster/head/api"
	"muster/report"
)

// WriteUsage lists what users and accounts have used, as sshare does.
func WriteUsage(w io.Writer, lines []api.UsageLine, room int) error {
	fraction := func(x float64) string { return strconv.FormatFloat(x, 'f', 4, 64) }
	hours := func(seconds float64) string { return strconv.FormatFloat(seconds/3600, 'f', 1, 64) }
	var rows [][]string
	for _, l := range lines {
		rows = append(rows, []string{
			cmp.Or(l.Account, "-"), cmp.Or(l.User, "-"), fraction(l.Shares), fraction(l.Used), fraction(l.Factor), hours(l.Raw),
		})
	}
	return report.WriteColumns(w, []string{"ACCOUNT", "USER", "SHARES", "USED", "FACTOR", "HOURS"}, rows, 0, room)
}

// WritePriorities lists what the priorities of jobs are made of, as sprio does. It has a column for each factor that any job has.
func WritePriorities(w io.Writer, jobs []api.JobPriority, room int) error {
	factors := map[string]bool{}
	for _, j := range jobs {
		for name := range j.Factors {
			factors[name] = true
		}
	}
	names := slices.Sorted(maps.Keys(factors))
	header := []string{"JOBID", "USER", "ACCOUNT", "PRIORITY"}
	for _, name := range names {
		header = append(header, strings.ToUpper(name))
	}
	var rows [][]string
	for _, j := range jobs {
		row := []string{strconv.FormatUint(j.Job, 10), j.User, cmp.Or(j.Account, "-"), strconv.FormatInt(j.Priority, 10)}
		for _, name := range names {
			row = append(row, strconv.FormatInt(j.Factors[name], 10))
		}
		rows = append(rows, row)
	}
	return report.WriteColumns(w, header, rows, 1, room)
}
