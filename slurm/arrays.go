package slurm

import (
	"strconv"
	"strings"
)

// arrayTasks lists the first most tasks that Slurm's notation for an array's tasks names: "1-4%2",
// "0,3-8:2". A list that Slurm has cut short ("1,3,...") is read as far as it goes.
func arrayTasks(text string, most int) []int {
	text, _, _ = strings.Cut(text, "%")
	var list []int
	for _, item := range strings.Split(text, ",") {
		span, stepText, stepped := strings.Cut(item, ":")
		first, last, ranged := strings.Cut(span, "-")
		from, err := strconv.Atoi(first)
		if err != nil {
			return list
		}
		to, step := from, 1
		if ranged {
			if to, err = strconv.Atoi(last); err != nil {
				return list
			}
		}
		if stepped {
			if step, err = strconv.Atoi(stepText); err != nil || step < 1 {
				return list
			}
		}
		for t := from; t <= to; t += step {
			if len(list) == most {
				return list
			}
			list = append(list, t)
		}
	}
	return list
}
