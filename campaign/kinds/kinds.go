// Package kinds reads which kinds of something a campaign is to try, as its users write them.
package kinds

import (
	"fmt"
	"slices"
	"strings"

	"muster/model"
)

// Parse parses a comma-separated list of kinds, of faults or of content, say. If all begin with a minus, the
// result is all kinds but those; "" is all. hidden are kinds that must be named.
func Parse[K ~string](text, of string, all []K, hidden ...K) ([]K, error) {
	if text == "" {
		return all, nil
	}
	var with, without []K
	for word := range strings.SplitSeq(text, ",") {
		name, out := strings.CutPrefix(word, "-")
		switch k := K(name); {
		case !slices.Contains(all, k) && !slices.Contains(hidden, k):
			return nil, unknown(name, of, all)
		case out:
			without = append(without, k)
		default:
			with = append(with, k)
		}
	}
	switch {
	case len(without) == 0:
		return slices.Compact(with), nil
	case len(with) > 0:
		return nil, fmt.Errorf("kinds %q: name those to try, or those to leave out with a minus each", text)
	}
	return slices.DeleteFunc(slices.Clone(all), func(k K) bool { return slices.Contains(without, k) }), nil
}

func unknown[K ~string](name, of string, all []K) error {
	var names []string
	for _, k := range all {
		names = append(names, string(k))
	}
	hint := ""
	if near := model.Nearest(name, names); near != "" {
		hint = fmt.Sprintf(": did you mean %s?", near)
	}
	return fmt.Errorf("there is no kind of %s %q%s (there are: %s)", of, name, hint, strings.Join(names, ", "))
}
