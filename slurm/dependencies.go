package slurm

import (
	"strconv"
	"strings"
)

// Slurm does not look at the dependencies of a job that is held. So the core waits until those it
// depends on have ended, as far as Slurm still knows them, and places the job then; whether they
// ended as they should Slurm decides when it is released. If they did not, the job is recalled, and
// waits with Slurm's reason.

// dependsOn says which of a job's dependencies is surely not satisfied yet; "" if none is.
func (c *Core) dependsOn(f *Job) string {
	any, some := strings.Contains(f.Dependency, "?"), false
	open := ""
	for _, d := range strings.FieldsFunc(f.Dependency, func(r rune) bool { return r == ',' || r == '?' }) {
		d, _, _ = strings.Cut(d, "(")
		if c.unmet(d) {
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

// unmet says whether a dependency as "afterok:17:18_3" names a job that has not ended.
func (c *Core) unmet(text string) bool {
	kind, list, _ := strings.Cut(text, ":")
	switch kind {
	case "afterany", "afterok", "afternotok", "after", "afterburstbuffer":
	default:
		return false // singleton, aftercorr and the like: Slurm knows
	}
	for item := range strings.SplitSeq(list, ":") {
		item, _, _ = strings.Cut(item, "+")
		number, task, isTask := strings.Cut(item, "_")
		id, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			continue
		}
		j := c.jobs[id]
		switch {
		case kind == "after":
			if j != nil && j.fact.pending() {
				return true
			}
		case isTask && task == "*", c.members[id] > 0:
			if j != nil || c.members[id] > 0 {
				return true
			}
		case j != nil:
			return true
		}
	}
	return false
}
