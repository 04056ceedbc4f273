package question

import (
	"slices"
	"strconv"
	"strings"

	"muster/internal/misuse"
	"muster/internal/units"
	"muster/model"
	"muster/sim"
)

func parseSeeds(list string) (seeds []uint64, err error) {
	numbers, err := model.ParseRange(list)
	if err != nil {
		return nil, misuse.Errorf("--seeds: %v", err)
	}
	for _, n := range numbers {
		seeds = append(seeds, uint64(n))
	}
	return seeds, nil
}

func checkRuns(runs int) error {
	if runs > maxRuns {
		return misuse.Errorf("that would be %d runs: ask for at most %d at once", runs, maxRuns)
	}
	return nil
}

// parseMoments reads "STEP,STEP", or what else is numbered; like is a time as one might write it.
func parseMoments(list, step, like string) ([]sim.Moment, error) {
	if list == "" {
		return nil, nil
	}
	var moments []sim.Moment
	for word := range strings.SplitSeq(list, ",") {
		word = strings.TrimSpace(word)
		var m sim.Moment
		var err error
		if m.Step, err = strconv.Atoi(word); err == nil {
			if m.Step < 1 {
				return nil, misuse.Errorf("--explain %s: %ss are numbered from 1", word, step)
			}
		} else if m.At, err = units.ParseDuration(word); err != nil {
			return nil, misuse.Errorf("--explain: %q is no number of a %[2]s and no time: write 12, or %[3]s for the first %[2]s then or later", word, step, like)
		}
		if slices.Contains(moments, m) {
			return nil, misuse.Errorf("--explain: %s is named twice", word)
		}
		moments = append(moments, m)
	}
	return moments, nil
}

// notExplained says why a moment of the list that --explain has was not reached.
func notExplained(list string, moment int, why string) error {
	return misuse.Errorf("--explain %s: %s", strings.TrimSpace(strings.Split(list, ",")[moment]), why)
}
