package fault

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"muster/device"
	"muster/model"
)

// Rule says which calls fail, and how.
type Rule struct {
	Operation string // one of Operations, or Any
	// First and Last are the first and the last call that the rule applies to, counted
	// from 1 over all contexts of the device; Last 0 means no end. Both are 0 if one of
	// the files below decides instead.
	First, Last uint64
	// While is the path of a file. The rule applies to calls made while the file exists.
	// All processes that model one device see the same file.
	While string
	// Take is the path of a file. The rule applies to one call, the one that takes the file
	// away by renaming it: the new name has a dot and the number of the process appended.
	// A rename succeeds only once, so of several processes one is hit.
	Take string
	// Shared is the path of a file. When a context faults, the rule makes all contexts fault
	// that are open then, in all processes that use the Multi-Process Service
	// (device.MPSVariable). See fate.
	Shared string
	Do     Action
}

// Any, as the Operation of a rule with While or Shared, stands for every call of a context and of
// its streams, events and modules, also those without a name in Operations.
const Any = "any"

// Action is the effect of a rule. Fail, Delay or Corrupt is set.
type Action struct {
	Fail    string        // the call is refused at once, even where a real fault comes later: one of Failures
	Delay   time.Duration // the call, or the work that it submits, takes longer
	Corrupt bool          // one bit of the copied data is flipped
	Byte    uint64        // index of the byte with that bit, modulo the length of the copy
}

// Operations are the calls that rules can apply to.
var Operations = []string{
	"open", "map", "unmap", "load", "newstream", "newevent", "newtexture", "synchronise",
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
	return slices.Sorted(maps.Keys(failures))
}

// Parse reads rules, one per line, or several on a line separated by commas:
//
//	copyin:3:fail=out-of-memory
//	launch:*:delay=10ms
//	copyout:2-4:corrupt
//	copyin:5-:corrupt=100
//	any:while=/run/faults/lost:fail=device-lost
//	launch:take=/run/faults/launch:fail=device-lost
//	any:shared=/run/faults/fate:fail=illegal-address
//
// A rule has an operation, the calls of it that it applies to, and an action. Calls
// are * for all, N, N-M, N- for all from the N-th on, while=FILE for those made
// while a file exists, take=FILE for the one that takes the file away, or
// shared=FILE for those of contexts that were open when one of them faulted, which is
// how faults spread under NVIDIA's Multi-Process Service. FILE is an absolute path
// without white space and without the separators of rules. Empty lines are ignored, and
// so is the text from a # to the end of its line.
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
	if !slices.Contains(Operations, r.Operation) && r.Operation != Any {
		return Rule{}, unknown("operation", r.Operation, append(slices.Clone(Operations), Any))
	}
	var err error
	if err = r.parseWhich(parts[1]); err != nil {
		return Rule{}, err
	}
	if r.Do, err = parseAction(parts[2]); err != nil {
		return Rule{}, err
	}
	if r.Do.Corrupt && r.Operation != "copyin" && r.Operation != "copyout" {
		return Rule{}, fmt.Errorf("only copyin and copyout can be corrupted")
	}
	if r.Operation == Any && (r.While == "" && r.Shared == "" || r.Do.Fail == "") {
		return Rule{}, fmt.Errorf("a rule for any operation is any:while=FILE:fail=NAME or any:shared=FILE:fail=NAME")
	}
	if r.Shared != "" && r.Operation != Any {
		return Rule{}, fmt.Errorf("a fate is shared by any operation: any:shared=FILE:fail=NAME")
	}
	return r, nil
}

// parseWhich reads the calls that the rule applies to.
func (r *Rule) parseWhich(text string) (err error) {
	name, file, named := strings.Cut(text, "=")
	switch {
	case named && name == "while":
		r.While, err = file, checkFile(file)
	case named && name == "take":
		r.Take, err = file, checkFile(file)
	case named && name == "shared":
		r.Shared, err = file, checkFile(file)
	default:
		r.First, r.Last, err = parseCalls(text)
	}
	return err
}

// checkFile refuses paths that Rule.String and Parse would not reproduce.
func checkFile(name string) error {
	if !filepath.IsAbs(name) || filepath.Clean(name) != name || len(name) > maxFile || strings.ContainsFunc(name, unprintable) {
		return fmt.Errorf("file %q: give an absolute path without white space, as /run/faults/lost", name)
	}
	return nil
}

// maxFile is the longest path that the system accepts.
const maxFile = 4095

func unprintable(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }

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
		return 0, fmt.Errorf("calls %q: give *, N, N-M or N-, counted from 1, while=FILE, take=FILE or shared=FILE", text)
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
	case r.While != "":
		calls = "while=" + r.While
	case r.Take != "":
		calls = "take=" + r.Take
	case r.Shared != "":
		calls = "shared=" + r.Shared
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

// covers says whether the rule applies to the n-th call of an operation. For a rule with
// Take, asking has the side effect: it takes the file if it exists.
func (r Rule) covers(operation string, n uint64) bool {
	switch {
	case r.Operation != operation && r.Operation != Any, r.Shared != "": // contexts check shared files themselves (fate)
		return false
	case r.While != "":
		_, err := os.Lstat(r.While)
		return err == nil
	case r.Take != "":
		return os.Rename(r.Take, fmt.Sprintf("%s.%d", r.Take, os.Getpid())) == nil
	}
	return n >= r.First && (r.Last == 0 || n <= r.Last)
}
