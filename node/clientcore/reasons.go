package clientcore

import (
	"fmt"
	"slices"
	"strings"

	"muster/internal/units"
	"muster/wire"
)

// A result is a number, and many reasons share one. What the user needs to know beyond it goes out
// as a Tell, before the result. Each reason is told once until a reset, however often a program
// tries again.

// maxTold is how many reasons are remembered; more are not told.
const maxTold = 32

// explain tells the user why a message could not be done, if the result alone does not.
func (c *Core) explain(err error) {
	result := resultOf(err)
	if !c.needsWords(result) {
		return
	}
	text := firstLine(err.Error())
	key := text
	if result == outOfMemory {
		key = withoutFigures(text)
	}
	if slices.Contains(c.Told, key) || len(c.Told) >= maxTold {
		return
	}
	c.Told = append(c.Told, key)
	c.emit(Op{Kind: Tell, Text: text})
}

// needsWords says whether a result needs an explanation: it has many reasons, or it is returned by
// a later call than the one that failed.
func (c *Core) needsWords(r Result) bool {
	switch r {
	case outOfMemory, invalidImage, noBinary, invalidPTX, ptxVersion, invalidSource, notSupported, unknownError:
		return true
	case notReady, asserted:
		return false
	}
	return c.Current.Slot < 0
}

// firstLine returns the first line of a text, with a note if there are more.
func firstLine(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(lines) == 1 {
		return lines[0]
	}
	return fmt.Sprintf("%s (the first of %d lines)", lines[0], len(lines))
}

// withoutFigures leaves out the words that differ each time the same limit is hit: numbers, and
// their units.
func withoutFigures(text string) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "bytes"}
	words := slices.DeleteFunc(strings.Fields(text), func(word string) bool {
		return strings.ContainsAny(word, "0123456789") || slices.Contains(units, strings.Trim(word, ",:;()"))
	})
	return strings.Join(words, " ")
}

func sizeOf(bytes uint64) string { return units.BriefSize(bytes) }

// allocation adds to an error which allocation it is about.
func allocation(bytes uint64, err error) error {
	return fmt.Errorf("an allocation of %s: %w", sizeOf(bytes), err)
}

// beyondLimit is the error of an allocation that the client's own limit does not allow.
func (c *Core) beyondLimit() error {
	has := c.space.Usage().Allocated
	text := fmt.Sprintf("the program sees %s of device memory and has allocated %s of it", sizeOf(c.config.Limit), sizeOf(has))
	if c.config.LimitBy != "" {
		text += ": " + c.config.LimitBy
	}
	return &Failure{Result: outOfMemory, Text: text}
}

// noPlace is the error of an allocation for which the program's library has found no addresses.
func (c *Core) noPlace(bytes uint64) error {
	if limit := c.config.Limit; limit > 0 && bytes > limit-c.space.Usage().Allocated {
		return c.beyondLimit()
	}
	return &Failure{Result: outOfMemory, Text: "no row of free addresses is so long: the program's other allocations lie between; free some of them"}
}

// deviceGone is the daemon's reason when all devices that a client may use are lost.
const deviceGone = "no device"

// noDevice is the error of a message that needs more of a device than any has.
func (c *Core) noDevice(bytes uint64) error {
	var largest uint64
	for _, d := range c.config.Devices {
		largest = max(largest, d.Memory-min(d.Memory, d.ContextCost))
	}
	text := fmt.Sprintf("%s of device memory are needed at a time, more than any device of the node has for a program (the largest has %s): use smaller allocations, or a node with a larger device",
		sizeOf(bytes), sizeOf(largest))
	if c.Lease.Denied == deviceGone {
		text = "no device is left on the node that this program may use: start the program again"
	}
	return &Failure{Result: resultOfTooSmall, Text: text}
}

// noRoom says that a message needs more of the client's device than others leave.
func (c *Core) noRoom(bytes uint64) error {
	return &Failure{Result: outOfMemory, Text: fmt.Sprintf("%s of device memory are needed at a time, and other programs leave %s", sizeOf(bytes), sizeOf(c.Lease.Memory))}
}

// errNoneReturns is the error of a message for which memory would have to move, while host functions
// keep it where it is. Work that no device can have may be done on the host copies, but not if this is
// the reason: it would have to wait for the functions, too.
var errNoneReturns = &Failure{Result: outOfMemory, Text: fmt.Sprintf("there is no room on the device, and none can be made, since no host function of the program (cuLaunchHostFunc) has returned, and no word that it waits for was written, for %v: let them return, or use less memory until they have", functionPatience)}

// Refusal is why an image was not loaded.
type Refusal struct {
	Module uint32
	Log    string
}

const (
	maxRefusals = 8       // that are kept for module_log
	maxLog      = 8 << 10 // bytes of each
)

// refusedLoad keeps the log of a load or a link that failed, for module_log.
func (c *Core) refusedLoad(m *Message, why error) {
	var load wire.ModuleLoad
	var link wire.ModuleLink
	module := uint32(0)
	switch {
	case m.Header.Op == wire.OpModuleLoad && load.Decode(m.Body) == nil:
		module = load.Module
	case m.Header.Op == wire.OpModuleLink && link.Decode(m.Body) == nil:
		module = link.Module
	default:
		return
	}
	all := append(c.Modules.Refusals, Refusal{Module: module, Log: logOf(why)})
	c.Modules.Refusals = slices.Clone(all[max(0, len(all)-maxRefusals):])
}

// logOf writes an error in the form of a compiler's log.
func logOf(why error) string {
	var b strings.Builder
	for line := range strings.Lines(why.Error()) {
		b.WriteString("error: " + strings.TrimSuffix(line, "\n") + "\n")
	}
	if b.Len() <= maxLog {
		return b.String()
	}
	whole := b.String()[:maxLog]
	return whole[:strings.LastIndexByte(whole, '\n')+1]
}

func (c *Core) moduleLog(m *Message, d *wire.ModuleLog) (bool, error) {
	log := ""
	for _, r := range c.Modules.Refusals {
		if r.Module == d.Module {
			log = r.Log
		}
	}
	log = log[:min(uint64(len(log)), m.Header.Length)]
	c.write(m, []byte(log))
	c.reply(m.Header.Slot, success, (&wire.ModuleLogReply{Size: uint32(len(log))}).Append(nil))
	return true, nil
}
