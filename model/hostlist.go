package model

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// MaxNodeNames limits what a node list or a range may expand to, so that a typo causes an error and
// does not use up the memory.
const MaxNodeNames = 1_000_000

// maxNodeName is the maximum length of a DNS name.
const maxNodeName = 255

// maxNodeDigits limits the digits of a number in brackets, so that it fits into an int64.
const maxNodeDigits = 18

// ExpandNodes lists the names in a Slurm node list such as "n[0001-1024],gpu[1-3,7],login", in its
// order. A name may have several brackets; the last one varies fastest.
func ExpandNodes(list string) ([]string, error) {
	items, err := splitNodes(list)
	if err != nil {
		return nil, fmt.Errorf("node list %q: %w", shorten(list), err)
	}
	var names []string
	for _, item := range items {
		more, err := expandItem(item, MaxNodeNames-len(names))
		if err != nil {
			return nil, fmt.Errorf("node list %q: %w", shorten(list), err)
		}
		names = append(names, more...)
	}
	return names, nil
}

func shorten(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// splitNodes splits a list at the commas outside brackets.
func splitNodes(list string) ([]string, error) {
	var items []string
	start, inside := 0, false
	for i := 0; i <= len(list); i++ {
		switch {
		case i == len(list) || (list[i] == ',' && !inside):
			if i == start {
				return nil, errors.New("a name is missing: remove the extra comma, or name a node")
			}
			items = append(items, list[start:i])
			start = i + 1
		case list[i] == '[' && inside:
			return nil, errors.New("a bracket opens inside a bracket: write n[1-3,7]")
		case list[i] == ']' && !inside:
			return nil, errors.New("a bracket closes that was not opened: write n[1-3,7]")
		case list[i] == '[':
			inside = true
		case list[i] == ']':
			inside = false
		case list[i] <= ' ' || list[i] == 0x7f:
			return nil, errors.New("there is a space or control character in it: separate names by commas alone")
		}
	}
	if inside {
		return nil, errors.New("a bracket is not closed: write n[1-3,7]")
	}
	return items, nil
}

// expandItem expands one name with its brackets, to at most room names.
func expandItem(item string, room int) ([]string, error) {
	names := []string{""}
	for rest := item; rest != ""; {
		text, after, bracket := strings.Cut(rest, "[")
		ends := []string{text}
		rest = ""
		if bracket {
			inner, tail, _ := strings.Cut(after, "]")
			numbers, err := expandBracket(inner, room/len(names))
			if err != nil {
				return nil, err
			}
			for i, n := range numbers {
				numbers[i] = text + n
			}
			ends, rest = numbers, tail
		}
		if len(names)*len(ends) > room {
			return nil, errTooManyNodes
		}
		product := make([]string, 0, len(names)*len(ends))
		for _, name := range names {
			for _, end := range ends {
				if len(name)+len(end) > maxNodeName {
					return nil, fmt.Errorf("a name has more than %d characters", maxNodeName)
				}
				product = append(product, name+end)
			}
		}
		names = product
	}
	return names, nil
}

var errTooManyNodes = fmt.Errorf("it stands for more than %d names", MaxNodeNames)

// expandBracket lists the numbers of "1-3,007", and keeps leading zeros.
func expandBracket(inner string, room int) ([]string, error) {
	var numbers []string
	for _, span := range strings.Split(inner, ",") {
		first, last, isRange := strings.Cut(span, "-")
		if !isRange {
			last = first
		}
		lo, err := nodeNumber(first, span)
		if err != nil {
			return nil, err
		}
		hi, err := nodeNumber(last, span)
		if err != nil {
			return nil, err
		}
		switch {
		case lo > hi:
			return nil, fmt.Errorf("[%s] runs backwards: write [%s-%s]", span, last, first)
		case len(last) < len(first):
			return nil, fmt.Errorf("[%s] has fewer digits at its end than at its start: write as many zeros in both", span)
		case hi-lo >= int64(room-len(numbers)):
			return nil, errTooManyNodes
		}
		for n := lo; n <= hi; n++ {
			numbers = append(numbers, padNumber(n, len(first)))
		}
	}
	return numbers, nil
}

func nodeNumber(s, span string) (int64, error) {
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil || !isDigit(s[0]) || len(s) > maxNodeDigits {
		return 0, fmt.Errorf("[%s] is no range of numbers: write n[1-3,7]", shorten(span))
	}
	return int64(n), nil
}

func padNumber(n int64, width int) string {
	s := strconv.FormatInt(n, 10)
	if len(s) < width {
		s = strings.Repeat("0", width-len(s)) + s
	}
	return s
}

// CompressNodes writes names as a node list, with brackets where they shorten it without changing
// the order: ExpandNodes returns the same names.
func CompressNodes(names []string) string {
	var b strings.Builder
	for i := 0; i < len(names); {
		if i > 0 {
			b.WriteByte(',')
		}
		prefix, _ := splitName(names[i])
		var spans []string
		for i < len(names) {
			p, number := splitName(names[i])
			if p != prefix || number == "" {
				break
			}
			last := number
			for i++; i < len(names); i++ {
				next := successor(last, len(number))
				if next == "" || names[i] != prefix+next {
					break
				}
				last = next
			}
			if last == number {
				spans = append(spans, number)
			} else {
				spans = append(spans, number+"-"+last)
			}
		}
		switch {
		case len(spans) == 0:
			b.WriteString(prefix)
			i++
		case len(spans) == 1 && !strings.Contains(spans[0], "-"):
			b.WriteString(prefix + spans[0])
		default:
			b.WriteString(prefix + "[" + strings.Join(spans, ",") + "]")
		}
	}
	return b.String()
}

// splitName separates the number at the end of a name.
func splitName(name string) (prefix, number string) {
	i := len(name)
	for i > 0 && isDigit(name[i-1]) && len(name)-i < maxNodeDigits {
		i--
	}
	return name[:i], name[i:]
}

// CompareNodes orders names as people count: n2 before n10.
func CompareNodes(a, b string) int {
	prefix, number := splitName(a)
	other, second := splitName(b)
	if prefix != other {
		return strings.Compare(prefix, other)
	}
	number, second = strings.TrimLeft(number, "0"), strings.TrimLeft(second, "0")
	return cmp.Or(cmp.Compare(len(number), len(second)), strings.Compare(number, second), strings.Compare(a, b))
}

// successor is the next number, padded to width, or "" if it has too many digits.
func successor(number string, width int) string {
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return ""
	}
	next := padNumber(n+1, width)
	if len(next) > maxNodeDigits {
		return ""
	}
	return next
}

const rangeHelp = "write it as 7, 1,2,5, 1..7 or 450..480:10"

// ParseRange parses whole numbers: single values, ranges that include both ends ("450..480"),
// ranges with a step ("450..480:10"), and lists of these.
func ParseRange(s string) ([]int, error) {
	var values []int
	seen := map[int]bool{}
	for _, item := range strings.Split(s, ",") {
		first, last, step, err := parseSpan(strings.TrimSpace(item))
		if err != nil {
			return nil, fmt.Errorf("range %q: %w: %s", shorten(s), err, rangeHelp)
		}
		if (last-first)/step >= MaxNodeNames-len(values) {
			return nil, fmt.Errorf("range %q: it has more than %d values", shorten(s), MaxNodeNames)
		}
		for n := first; ; n += step {
			if seen[n] {
				return nil, fmt.Errorf("range %q: %d is in it twice", shorten(s), n)
			}
			seen[n] = true
			values = append(values, n)
			if last-n < step { // n + step might overflow
				break
			}
		}
	}
	return values, nil
}

func parseSpan(item string) (first, last, step int, err error) {
	from, to, isRange := strings.Cut(item, "..")
	by := "1"
	if isRange {
		if t, s, hasStep := strings.Cut(to, ":"); hasStep {
			to, by = t, s
		}
	} else {
		to = from
	}
	for _, f := range []struct {
		text string
		into *int
	}{{from, &first}, {to, &last}, {by, &step}} {
		if f.text == "" || !isDigit(f.text[0]) {
			return 0, 0, 0, fmt.Errorf("%q is no whole number", f.text)
		}
		if *f.into, err = strconv.Atoi(f.text); err != nil {
			return 0, 0, 0, fmt.Errorf("%q is no whole number", f.text)
		}
	}
	switch {
	case step == 0:
		return 0, 0, 0, errors.New("a step of 0 leads nowhere")
	case first > last:
		return 0, 0, 0, fmt.Errorf("it runs backwards from %d to %d", first, last)
	}
	return first, last, step, nil
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
