package model

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Constraint says which features the nodes of a job must have, as sbatch --constraint: a word, a&b, a|b, with
// parentheses where both stand side by side. [a|b] wants the same one of the words on all nodes.
type Constraint struct {
	// Any are the ways to satisfy it, in the order of the text: all the words of one.
	Any [][]string
	// Same says that all nodes must satisfy the same way.
	Same bool
	text string
}

// The bounds of a constraint.
const (
	maxConstraint = 1024 // bytes
	maxWays       = 256
	maxWords      = 1024 // in all the ways together: many jobs may have such a constraint
)

// CheckFeature refuses what is no name of a feature.
func CheckFeature(name string) error {
	if name == "" || len(name) > 64 || strings.IndexFunc(name, func(r rune) bool { return !featureRune(r) }) >= 0 {
		return fmt.Errorf("%.70q is no feature: write letters, digits, and any of _ - . +", name)
	}
	return nil
}

func featureRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-.+", r)
}

// ParseConstraint reads a constraint.
func ParseConstraint(text string) (*Constraint, error) {
	if len(text) > maxConstraint {
		return nil, fmt.Errorf("a constraint of %d bytes: give at most %d", len(text), maxConstraint)
	}
	c := &Constraint{text: text}
	inner := text
	if strings.HasPrefix(inner, "[") && strings.HasSuffix(inner, "]") {
		inner, c.Same = inner[1:len(inner)-1], true
	}
	switch {
	case strings.Contains(inner, "*"):
		return nil, fmt.Errorf("%q: so many nodes of one kind and so many of another (*) are not supported: submit a job for each", text)
	case strings.ContainsAny(inner, "[]"):
		return nil, fmt.Errorf("%q: brackets stand around all of it, as in [a|b]", text)
	}
	p := constraintParser{rest: inner}
	var err error
	if c.Any, err = p.ways(0); err == nil && p.rest != "" {
		err = errors.New("a parenthesis is closed that was not opened")
	}
	if err != nil {
		return nil, fmt.Errorf("%.100q: %w", text, err)
	}
	return c, nil
}

type constraintParser struct{ rest string }

// ways reads terms that are all joined by & or all by |.
func (p *constraintParser) ways(depth int) ([][]string, error) {
	if depth > 16 {
		return nil, errors.New("its parentheses are nested too deeply")
	}
	ways, err := p.term(depth)
	by := byte(0)
	for err == nil && p.rest != "" && p.rest[0] != ')' {
		op := p.rest[0]
		if op != '&' && op != '|' {
			return nil, fmt.Errorf("%.20q stands where & or | is needed", p.rest)
		}
		if by != 0 && by != op {
			return nil, errors.New("it has & and | side by side: say with parentheses what belongs together, as in a&(b|c)")
		}
		by = op
		p.rest = p.rest[1:]
		var more [][]string
		if more, err = p.term(depth); err != nil {
			return nil, err
		}
		if op == '|' {
			ways = append(ways, more...)
		} else {
			switch {
			case len(ways)*len(more) > maxWays:
				return nil, fmt.Errorf("it can be satisfied in more than %d ways", maxWays)
			case wordsOf(ways)*len(more)+wordsOf(more)*len(ways) > maxWords:
				return nil, fmt.Errorf("its ways have more than %d words together: write it shorter", maxWords)
			}
			var both [][]string
			for _, a := range ways {
				for _, b := range more {
					both = append(both, slices.Concat(a, b))
				}
			}
			ways = both
		}
	}
	return ways, err
}

func wordsOf(ways [][]string) (n int) {
	for _, way := range ways {
		n += len(way)
	}
	return n
}

func (p *constraintParser) term(depth int) ([][]string, error) {
	if strings.HasPrefix(p.rest, "(") {
		p.rest = p.rest[1:]
		ways, err := p.ways(depth + 1)
		if err == nil && !strings.HasPrefix(p.rest, ")") {
			err = errors.New("a parenthesis is not closed")
		}
		if err != nil {
			return nil, err
		}
		p.rest = p.rest[1:]
		return ways, nil
	}
	end := strings.IndexAny(p.rest, "&|()")
	if end < 0 {
		end = len(p.rest)
	}
	word := p.rest[:end]
	p.rest = p.rest[end:]
	if err := CheckFeature(word); err != nil {
		return nil, err
	}
	return [][]string{{word}}, nil
}

// String is the constraint as it was written.
func (c *Constraint) String() string {
	if c == nil {
		return ""
	}
	return c.text
}

// Allows says whether a node with these features satisfies it; nil allows every node.
func (c *Constraint) Allows(features []string) bool {
	return c == nil || slices.ContainsFunc(c.Any, func(way []string) bool {
		return !slices.ContainsFunc(way, func(word string) bool { return !slices.Contains(features, word) })
	})
}

// Unknown is the first feature that it names and that is not among those known; "" if there is none.
func (c *Constraint) Unknown(known func(string) bool) string {
	if c != nil {
		for _, way := range c.Any {
			for _, word := range way {
				if !known(word) {
					return word
				}
			}
		}
	}
	return ""
}
