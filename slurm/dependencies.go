package slurm

import (
	"strconv"
	"strings"
)

// Slurm does not look at the dependencies of a held job. So the core waits until the jobs that it
// depends on have ended, as far as Slurm still knows them, and places it then. Whether they ended
// as required Slurm decides when the job is released. If they did not, the core recalls the job,
// and it waits with Slurm's reason.

// dependsOn returns the first dependency of a job that is certainly not satisfied yet; "" if there
// is none.
func (r *roster) dependsOn(f *Job) string {
	any, some := strings.Contains(f.Dependency, "?"), false
	open := ""
	for _, d := range strings.FieldsFunc(f.Dependency, func(r rune) bool { return r == ',' || r == '?' }) {
		d, _, _ = strings.Cut(d, "(")
		if r.unmet(d) {
			if open == "" {
				open = d
			}
		} else {
			some = true
		}
	}
	if any && some {
		return ""
	}
	return open
}

// unmet says whether a dependency such as "afterok:17:18_3" names a job that has not ended, or for
// after, has not started.
func (r *roster) unmet(text string) bool {
	kind, list, _ := strings.Cut(text, ":")
	switch kind {
	case "afterany", "afterok", "afternotok", "after", "afterburstbuffer":
	default:
		return false // Slurm decides about the others, such as singleton and aftercorr
	}
	for item := range strings.SplitSeq(list, ":") {
		item, _, _ = strings.Cut(item, "+")
		number, task, isTask := strings.Cut(item, "_")
		id, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			continue
		}
		j := r.jobs[id]
		switch {
		case kind == "after":
			if j != nil && j.fact.pending() {
				return true
			}
		case isTask && task == "*", r.members[id] > 0:
			if j != nil || r.members[id] > 0 {
				return true
			}
		case j != nil:
			return true
		}
	}
	return false
}
