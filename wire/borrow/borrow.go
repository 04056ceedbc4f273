// Package borrow is what nodes say to each other about borrowing virtual GPUs: a question and an
// answer, in turns, each a line of JSON that is parsed strictly. The package comment of
// node/offload says what they mean.
//
// The package knows neither connections nor nodes.
package borrow

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"muster/internal/strictjson"
)

// Protocol names the conversation in the negotiation of TLS.
const Protocol = "muster-borrow/1"

// Version changes with every change that an older side would misread.
const Version = 4

// Limits of the values in a message.
const (
	MaxLine  = 8 << 10 // bytes, the end of the line included
	MaxHolds = 64      // tickets that a node holds of another
	MaxLoads = 16      // devices of which a lender says how busy they are
	maxSlots = 1 << 20
	maxName  = 253 // a host's name
	maxID    = 100
	maxWhy   = 500
	maxEach  = 24 * time.Hour
	maxSpeed = 1e6 // more than any device has, relative to others
)

// Question is what a borrower sends.
type Question struct {
	Version int      `json:"version"`
	Node    string   `json:"node"`            // the node that asks
	Slots   int      `json:"slots"`           // how many it wants
	Apart   bool     `json:"apart,omitempty"` // on a device that no other client uses
	Speed   float64  `json:"speed,omitempty"` // which must be as fast as this, and is given back when the lender's own clients use it; 0: any
	Holds   []string `json:"holds,omitempty"` // tickets that it has
}

// Answer is what a lender sends.
type Answer struct {
	Version int      `json:"version"`
	Node    string   `json:"node"` // the node that answers
	Slots   int      `json:"slots"`
	Free    int      `json:"free"` // slots that it would lend
	Waiting int      `json:"waiting"`
	Idle    int      `json:"idle"`              // devices without any client that it would lend
	Fastest float64  `json:"fastest,omitempty"` // the speed of its fastest device, if it lends
	Unused  float64  `json:"unused,omitempty"`  // the speed of the fastest of the idle ones
	Ticket  *Ticket  `json:"ticket,omitempty"`
	Recalls []string `json:"recalls,omitempty"` // tickets
	Loads   []Load   `json:"loads,omitempty"`   // of devices that the borrower has tickets for
	Error   string   `json:"error,omitempty"`   // why there is no answer; then nothing else counts
}

// Ticket is the right to use slots of a device. Its ID is a secret of the two nodes.
type Ticket struct {
	ID     string  `json:"id"`
	Device int     `json:"device"`
	Slots  int     `json:"slots"`
	Speed  float64 `json:"speed"`
}

// Load is how busy a device is with the work of others than the borrower's programs.
type Load struct {
	Device int           `json:"device"`
	Calls  int           `json:"calls"` // programs that had work there lately, in thousandths
	Each   time.Duration `json:"each"`  // that one of their kernels takes
}

// Encode writes a question or an answer, with the end of its line.
func Encode(m any) ([]byte, error) {
	line, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	if line = append(line, '\n'); len(line) > MaxLine {
		return nil, fmt.Errorf("a message of %d bytes to another node: it may have %d", len(line), MaxLine)
	}
	return line, nil
}

// ReadQuestion parses a question.
func ReadQuestion(line []byte) (q Question, err error) {
	if err := read(line, &q); err != nil {
		return Question{}, err
	}
	if err := firstOf(checkName(q.Node), checkCount("slots", q.Slots), checkSpeed("speed", q.Speed), q.checkApart(), checkIDs("holds", q.Holds)); err != nil {
		return Question{}, err
	}
	return q, nil
}

// ReadAnswer parses an answer. An answer with an error is returned as that error.
func ReadAnswer(line []byte) (a Answer, err error) {
	if err := read(line, &a); err != nil {
		return Answer{}, err
	}
	if a.Error != "" {
		return Answer{}, fmt.Errorf("it refuses: %s", printable(a.Error))
	}
	err = firstOf(checkName(a.Node), checkCount("slots", a.Slots), checkCount("free", a.Free), checkCount("waiting", a.Waiting), checkCount("idle", a.Idle), checkIDs("recalls", a.Recalls), checkSpeed("fastest", a.Fastest), a.checkUnused(), checkLoads(a.Loads), a.Ticket.check())
	if err != nil {
		return Answer{}, err
	}
	return a, nil
}

// read parses a line, which must be of this version.
func read(line []byte, into any) error {
	if len(line) > MaxLine {
		return fmt.Errorf("a message of %d bytes: it may have %d", len(line), MaxLine)
	}
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(line, &head); err != nil {
		return errors.New("this is not what nodes say to each other")
	}
	if head.Version != Version {
		return fmt.Errorf("it speaks version %d of what nodes say to each other, and version %d is spoken here: use the same version of Muster on both", head.Version, Version)
	}
	return strictjson.Decode(line, into)
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *Ticket) check() error {
	if t == nil {
		return nil
	}
	if !(t.Speed > 0) || math.IsInf(t.Speed, 0) {
		return fmt.Errorf("a ticket for a device of speed %g", t.Speed)
	}
	return firstOf(checkIDs("ticket", []string{t.ID}), checkCount("device", t.Device), checkCount("slots of a ticket", t.Slots))
}

// checkApart refuses the wish for a fast device that others may be using.
func (q Question) checkApart() error {
	if q.Speed > 0 && !q.Apart {
		return errors.New("a device of some speed is asked for, but not one that no other client uses")
	}
	return nil
}

// checkUnused refuses an idle device that is none of those that the lender has.
func (a Answer) checkUnused() error {
	if a.Unused > a.Fastest || a.Unused > 0 && a.Idle == 0 {
		return fmt.Errorf("an idle device of speed %g, of %d idle ones and the fastest of speed %g", a.Unused, a.Idle, a.Fastest)
	}
	return checkSpeed("unused", a.Unused)
}

func checkSpeed(what string, v float64) error {
	if !(v >= 0 && v <= maxSpeed) {
		return fmt.Errorf("%s is %g: it can be 0 to %g", what, v, maxSpeed)
	}
	return nil
}

func checkLoads(all []Load) error {
	if len(all) > MaxLoads {
		return fmt.Errorf("%d devices are said to be busy: it can be up to %d", len(all), MaxLoads)
	}
	for _, l := range all {
		if l.Each < 0 || l.Each > maxEach {
			return fmt.Errorf("kernels of %v on device %d", l.Each, l.Device)
		}
		if err := firstOf(checkCount("device", l.Device), checkCount("calls", l.Calls)); err != nil {
			return err
		}
	}
	return nil
}

func checkCount(what string, n int) error {
	if n < 0 || n > maxSlots {
		return fmt.Errorf("%s is %d: it can be 0 to %d", what, n, maxSlots)
	}
	return nil
}

func checkName(name string) error {
	if name == "" || len(name) > maxName || printable(name) != name {
		return fmt.Errorf("%q is no name of a node", printable(name))
	}
	return nil
}

func checkIDs(what string, ids []string) error {
	if len(ids) > MaxHolds {
		return fmt.Errorf("%s has %d tickets: a node holds at most %d of another", what, len(ids), MaxHolds)
	}
	for _, id := range ids {
		if id == "" || len(id) > maxID || printable(id) != id {
			return fmt.Errorf("%s has what is no ticket", what)
		}
	}
	return nil
}

// printable replaces characters of another node's text that could control a terminal or break lines
// of a log.
func printable(text string) string {
	out := make([]rune, 0, min(len(text), maxWhy))
	for _, r := range text {
		if len(out) == maxWhy {
			break
		}
		if r < ' ' || r > '~' {
			r = '?'
		}
		out = append(out, r)
	}
	return string(out)
}
