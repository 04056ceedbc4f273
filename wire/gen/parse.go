package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// description is the content of messages.txt.
type description struct{ messages []message }

type message struct {
	kind    string // record, async, call
	name    string
	fields  []field
	in      bool
	out     bool
	amount  amount // how much of the data given is of use; without a field, all
	faultOK bool
	reply   []field
}

// amount is a number times a field of the reply.
type amount struct {
	times int
	field string
}

type field struct{ typ, name string }

// fixed has the types of fixed size, and their sizes.
var fixed = map[string]int{"u32": 4, "u64": 8, "i32": 4, "f64": 8}

var line = regexp.MustCompile(`^(record|async|call)\s+([a-z][a-z0-9_]*)\s*\{([^}]*)\}(?:\s+(in|out|out\((?:([1-9][0-9]{0,3})\*)?([a-z][a-z0-9_]*)\)))?(?:\s+(fault-ok))?\s*(?:->\s*\{([^}]*)\})?$`)

func parse(text string) (*description, error) {
	d := &description{}
	seen := map[string]bool{}
	for i, l := range strings.Split(text, "\n") {
		l, _, _ = strings.Cut(l, "#")
		if l = strings.TrimSpace(l); l == "" {
			continue
		}
		part := line.FindStringSubmatch(l)
		if part == nil {
			return nil, fmt.Errorf("%d: not understood: %s", i+1, l)
		}
		m := message{kind: part[1], name: part[2], in: part[4] == "in", out: strings.HasPrefix(part[4], "out"), faultOK: part[7] != ""}
		if seen[m.name] {
			return nil, fmt.Errorf("%d: there is a %s already", i+1, m.name)
		}
		seen[m.name] = true
		if isCall := strings.Contains(l, "->"); isCall != (m.kind == "call") {
			return nil, fmt.Errorf("%d: a call, and only a call, has a reply: %s", i+1, m.name)
		}
		var err error
		if m.fields, err = parseFields(part[3]); err != nil {
			return nil, fmt.Errorf("%d: %w", i+1, err)
		}
		if m.reply, err = parseFields(part[8]); err != nil {
			return nil, fmt.Errorf("%d: %w", i+1, err)
		}
		if err := m.setAmount(part[5], part[6]); err != nil {
			return nil, fmt.Errorf("%d: %w", i+1, err)
		}
		if m.kind == "record" && (m.in || m.out || m.faultOK) {
			return nil, fmt.Errorf("%d: a record has neither data nor faults: %s", i+1, m.name)
		}
		d.messages = append(d.messages, m)
	}
	return d, nil
}

// setAmount notes how many bytes of data a reply reports. The product must fit into 64 bits.
func (m *message) setAmount(times, name string) error {
	if name == "" {
		return nil
	}
	m.amount = amount{1, name}
	want := []string{"u32", "u64"}
	if times != "" {
		m.amount.times, _ = strconv.Atoi(times) // at most four digits
		want = want[:1]
	}
	for _, f := range m.reply {
		if f.name == name && slices.Contains(want, f.typ) {
			return nil
		}
	}
	return fmt.Errorf("the reply of %s has no field %s of type %s", m.name, name, strings.Join(want, " or "))
}

func parseFields(text string) ([]field, error) {
	var all []field
	for _, f := range strings.Split(text, ";") {
		words := strings.Fields(f)
		if len(words) == 0 {
			continue
		}
		if len(words) != 2 || (fixed[words[0]] == 0 && words[0] != "text" && words[0] != "bytes") {
			return nil, fmt.Errorf("not a field: %q", strings.TrimSpace(f))
		}
		all = append(all, field{words[0], words[1]})
	}
	return all, nil
}
