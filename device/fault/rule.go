package fault

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/device"
	"muster/model"
)

// Rule says what goes wrong with which calls.
type Rule struct {
	Operation string // one of Operations
	// First and Last are the calls that it is for, counted from 1 over all
	// contexts of the device; Last is 0 for all that follow.
	First, Last uint64
	Do          Action
}

// Action is what happens. One of its fields is set.
type Action struct {
	Fail    string        // the call is refused at once, even where a real fault comes later: one of Failures
	Delay   time.Duration // the call, or the work that it submits, takes longer
	Corrupt bool          // a bit of what is copied is wrong
	Byte    uint64        // in which byte, counted round and round
}

// Operations are the calls that rules can be about.
var Operations = []string{
	"open", "map", "unmap", "load", "newstream", "newevent", "synchronise",
	"copyin", "copyout", "copy", "fill", "launch", "record", "wait", "call",
}

// failures are the ways to refuse a call. Those that are faults end the context.
var failures = map[string]error{
	"out-of-memory":   device.ErrOutOfMemory,
	"invalid-value":   device.ErrInvalidValue,
	"invalid-image":   device.ErrInvalidImage,
	"not-supported":   device.ErrNotSupported,
	"illegal-address": &device.Fault{Kind: device.IllegalAddress, Detail: "by rule"},
	"device-lost":     &device.Fault{Kind: device.DeviceLost, Detail: "by rule"},
}

// Failures returns the names of the ways to refuse a call, sorted.
func Failures() []string {
	var names []string
	for name := range failures {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Parse reads rules, one a line or several on one with commas between them:
//
//	copyin:3:fail=out-of-memory
//	launch:*:delay=10ms
//	copyout:2-4:corrupt
//	copyin:5-:corrupt=100
//
// A rule is an operation, which calls of it (* for all, N, N-M, or N- for all
// from the N-th on), and what happens. Empty lines and what follows a # are
// left out.
func Parse(text string) ([]Rule, error) {
	var rules []Rule
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		for _, one := range strings.Split(line, ",") {
			if one = strings.TrimSpace(one); one == "" {
				continue
			}
			r, err := parseRule(one)
			if err != nil {
				return nil, fmt.Errorf("line %d: rule %q: %w", i+1, one, err)
			}
			rules = append(rules, r)
		}
	}
	return rules, nil
}

func parseRule(text string) (Rule, error) {
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return Rule{}, fmt.Errorf("want operation:calls:action, as in copyin:3:fail=out-of-memory")
	}
	r := Rule{Operation: parts[0]}
	if !slices.Contains(Operations, r.Operation) {
		return Rule{}, unknown("operation", r.Operation, Operations)
	}
	var err error
	if r.First, r.Last, err = parseCalls(parts[1]); err != nil {
		return Rule{}, err
	}
	if r.Do, err = parseAction(parts[2]); err != nil {
		return Rule{}, err
	}
	if r.Do.Corrupt && r.Operation != "copyin" && r.Operation != "copyout" {
		return Rule{}, fmt.Errorf("only copyin and copyout can be corrupted")
	}
	return r, nil
}

func unknown(what, name string, all []string) error {
	hint := ""
	if near := model.Nearest(name, all); near != "" {
		hint = fmt.Sprintf(": did you mean %s?", near)
	}
	return fmt.Errorf("unknown %s %q%s (there are: %s)", what, name, hint, strings.Join(all, ", "))
}

func parseCalls(text string) (first, last uint64, err error) {
	if text == "*" {
		return 1, 0, nil
	}
	from, to, isRange := strings.Cut(text, "-")
	if first, err = parseCount(from); err != nil {
		return 0, 0, err
	}
	switch {
	case !isRange:
		return first, first, nil
	case to == "":
		return first, 0, nil
	}
	if last, err = parseCount(to); err != nil {
		return 0, 0, err
	}
	if last < first {
		return 0, 0, fmt.Errorf("calls %s: the last comes before the first", text)
	}
	return first, last, nil
}

func parseCount(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != text {
		return 0, fmt.Errorf("calls %q: give *, N, N-M or N-, counted from 1", text)
	}
	return n, nil
}

func parseAction(text string) (Action, error) {
	name, value, valued := strings.Cut(text, "=")
	switch {
	case name == "fail" && valued:
		if failures[value] == nil {
			return Action{}, unknown("failure", value, Failures())
		}
		return Action{Fail: value}, nil
	case name == "delay" && valued:
		d, err := time.ParseDuration(value)
		if err != nil || d <= 0 {
			return Action{}, fmt.Errorf("delay %q: give a time such as 10ms", value)
		}
		return Action{Delay: d}, nil
	case name == "corrupt" && !valued:
		return Action{Corrupt: true}, nil
	case name == "corrupt":
		n, err := strconv.ParseUint(value, 10, 63)
		if err != nil {
			return Action{}, fmt.Errorf("corrupt=%s: give the number of a byte", value)
		}
		return Action{Corrupt: true, Byte: n}, nil
	}
	return Action{}, fmt.Errorf("action %q: give fail=NAME, delay=TIME, corrupt or corrupt=BYTE", text)
}

// String returns the rule as Parse reads it.
func (r Rule) String() string {
	calls := fmt.Sprintf("%d-%d", r.First, r.Last)
	switch {
	case r.First == 1 && r.Last == 0:
		calls = "*"
	case r.Last == 0:
		calls = fmt.Sprintf("%d-", r.First)
	case r.First == r.Last:
		calls = fmt.Sprint(r.First)
	}
	return r.Operation + ":" + calls + ":" + r.Do.String()
}

// String returns the action as Parse reads it.
func (a Action) String() string {
	switch {
	case a.Fail != "":
		return "fail=" + a.Fail
	case a.Delay > 0:
		return "delay=" + a.Delay.String()
	case a.Byte > 0:
		return fmt.Sprintf("corrupt=%d", a.Byte)
	}
	return "corrupt"
}

// covers says whether the rule is for the n-th call of an operation.
func (r Rule) covers(operation string, n uint64) bool {
	return r.Operation == operation && n >= r.First && (r.Last == 0 || n <= r.Last)
}
