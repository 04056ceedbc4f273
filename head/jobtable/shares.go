package jobtable

import (
	"cmp"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"muster/report/jsontable"
	"muster/wire/api"
)

// UsageColumns are those of muster usage.
var UsageColumns = jsontable.Columns[api.UsageLine]{
	{Name: "ACCOUNT", Field: "account", Value: func(l *api.UsageLine) string { return cmp.Or(l.Account, "-") }},
	{Name: "USER", Field: "user", Value: func(l *api.UsageLine) string { return cmp.Or(l.User, "-") }},
	{Name: "SHARES", Field: "shares", Value: func(l *api.UsageLine) string { return fraction(l.Shares) }},
	{Name: "USED", Field: "used", Value: func(l *api.UsageLine) string { return fraction(l.Used) }},
	{Name: "FACTOR", Field: "factor", Value: func(l *api.UsageLine) string {
		if l.Factor == nil {
			return "-"
		}
		return fraction(*l.Factor)
	}},
	{Name: "HOURS", Field: "raw_usage_s", Value: func(l *api.UsageLine) string { return strconv.FormatFloat(l.Raw/3600, 'f', 1, 64) }},
}

func fraction(x float64) string { return strconv.FormatFloat(x, 'f', 4, 64) }

// WriteUsage lists what users and accounts have used, as sshare does.
func WriteUsage(w io.Writer, lines []api.UsageLine, room int) error {
	return UsageColumns.Write(w, lines, "ACCOUNT", room)
}

// PriorityColumns are those of muster priorities, with one for each of the factors.
func PriorityColumns(factors []string) jsontable.Columns[api.JobPriority] {
	columns := jsontable.Columns[api.JobPriority]{
		{Name: "JOBID", Field: "job", Value: func(j *api.JobPriority) string { return strconv.FormatUint(j.Job, 10) }},
		{Name: "USER", Field: "user", Value: func(j *api.JobPriority) string { return j.User }},
		{Name: "ACCOUNT", Field: "account", Value: func(j *api.JobPriority) string { return cmp.Or(j.Account, "-") }},
		{Name: "PRIORITY", Field: "priority", Value: func(j *api.JobPriority) string { return strconv.FormatInt(j.Priority, 10) }},
	}
	for _, name := range factors {
		columns = append(columns, jsontable.Column[api.JobPriority]{
			Name: strings.ToUpper(name), Field: "factors",
			Value: func(j *api.JobPriority) string { return strconv.FormatInt(j.Factors[name], 10) },
		})
	}
	return columns
}

// WritePriorities lists what the priorities of jobs are made of, as sprio does. It has a column for each
// factor that any job has.
func WritePriorities(w io.Writer, jobs []api.JobPriority, room int) error {
	factors := map[string]bool{}
	for _, j := range jobs {
		for name := range j.Factors {
			factors[name] = true
		}
	}
	return PriorityColumns(slices.Sorted(maps.Keys(factors))).Write(w, jobs, "USER", room)
}
