package vmm

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"muster/internal/scripts"
)

// Scripts are text: a command, ----, its answer, and an empty line. The answer of a command is its
// error or its plan, and the directory after it. Record again only what you understand.
//
//	new CHUNK CHUNKS DEVICES [LIMIT]  begin; the arena starts at 0x1000
//	alloc NAME ADDR+SIZE              later a range may be NAME or NAME+FROM+SIZE
//	free NAME                         or an address
//	nest NAME NAME...
//	reach WORD...                     a word is NAME, NAME+FROM or a number
//	prepare DEV CAPACITY RANGE...     DEV is 0, 1, ...
//	bring DEV CAPACITY [RANGE...]     none: everything
//	launched DEV [RANGE...]           none: all that is mapped
//	written DEV RANGE
//	resident DEV [RANGE]              none: everything
//	evict DEV BYTES
//	read RANGE
//	write RANGE
//	fill RANGE WORD                   what is left to write is shown
//	filled DEV RANGE WORD
//	backup
//	trim
//	lost DEV
//	add DEV                           another device
//	usage
//	restore                           go on from a snapshot
func TestScripts(t *testing.T) {
	scripts.Run(t, func(t *testing.T, text string) string {
		w := &world{t: t, names: map[string]Range{}}
		return scripts.Answer(text, w.run)
	})
}

// world is what a script has made so far.
type world struct {
	t     *testing.T
	space *Space
	names map[string]Range
}

func (w *world) number(text string) uint64 {
	n, err := strconv.ParseUint(text, 0, 64)
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

func (w *world) rangeOf(text string) Range {
	parts := strings.Split(text, "+")
	named, ok := w.names[parts[0]]
	switch {
	case ok && len(parts) == 1:
		return named
	case ok && len(parts) == 3:
		return Range{named.Addr + w.number(parts[1]), w.number(parts[2])}
	case len(parts) == 2:
		return Range{w.number(parts[0]), w.number(parts[1])}
	}
	w.t.Fatalf("%q is no range", text)
	return Range{}
}

func (w *world) ranges(texts []string) []Range {
	var list []Range
	for _, text := range texts {
		list = append(list, w.rangeOf(text))
	}
	return list
}

func (w *world) addr(text string) uint64 {
	name, from, more := strings.Cut(text, "+")
	r, ok := w.names[name]
	if !ok {
		return w.number(text)
	}
	if more {
		return r.Addr + w.number(from)
	}
	return r.Addr
}

func (w *world) addrs(texts []string) []uint64 {
	var list []uint64
	for _, text := range texts {
		list = append(list, w.addr(text))
	}
	return list
}

// run performs a command. Each line of the answer ends with a newline.
func (w *world) run(words []string) string {
	dev := func() Place { return Device(int(w.number(words[1]))) }
	s := w.space
	var plan Plan
	var err error
	switch words[0] {
	case "new":
		c := Config{Chunk: w.number(words[1]), Devices: Devices(int(w.number(words[3])))}
		c.Arena = Range{0x1000, c.Chunk * w.number(words[2])}
		if len(words) > 4 {
			c.Limit = w.number(words[4])
		}
		if w.space, err = New(c); err != nil {
			w.t.Fatal(err)
		}
		s = w.space
	case "alloc":
		r := w.rangeOf(words[2])
		if err = s.Alloc(r); err == nil {
			w.names[words[1]] = r
		}
	case "free":
		plan, err = s.Free(w.addr(words[1]))
	case "nest":
		err = s.Nest(w.addr(words[1]), w.addrs(words[2:]))
	case "reach":
		return w.reach(words[1:])
	case "prepare":
		plan, err = s.Prepare(dev(), w.ranges(words[3:]), w.number(words[2]))
	case "bring":
		plan = s.Bring(dev(), w.ranges(words[3:]), w.number(words[2]))
	case "launched":
		s.Launched(dev(), w.ranges(words[2:]))
	case "written":
		s.Written(dev(), w.rangeOf(words[2]))
	case "resident":
		if len(words) == 2 {
			return fmt.Sprintln(s.AllResident(dev()))
		}
		return fmt.Sprintln(s.Resident(dev(), w.rangeOf(words[2])))
	case "evict":
		plan = s.Evict(dev(), w.number(words[2]))
	case "read":
		plan, err = s.HostRead(w.rangeOf(words[1]))
	case "write":
		plan, err = s.HostWrite(w.rangeOf(words[1]))
	case "fill":
		r := w.rangeOf(words[1])
		edges := s.Edges(r)
		if err = s.Fill(r, uint32(w.number(words[2]))); err == nil && len(edges) > 0 {
			return fmt.Sprintf("write %v\n%s", edges, picture(s))
		}
	case "filled":
		s.Filled(dev(), w.rangeOf(words[2]), uint32(w.number(words[3])))
	case "backup":
		plan = s.Backup()
	case "trim":
		plan = s.Trim()
	case "lost":
		return fmt.Sprintf("lost %v\n%s", s.Lost(dev()), picture(s))
	case "add":
		err = s.AddDevice(dev())
	case "usage":
		return fmt.Sprintf("%+v\n", s.Usage())
	case "restore":
		data, err := s.MarshalBinary()
		if err != nil {
			w.t.Fatal(err)
		}
		if err := s.UnmarshalBinary(data); err != nil {
			w.t.Fatal(err)
		}
	default:
		w.t.Fatalf("no command %q", words[0])
	}
	if err != nil {
		return fmt.Sprintf("error: %v\n", err)
	}
	answer := picture(s)
	if len(plan) > 0 {
		answer = plan.String() + "\n" + answer
	}
	return answer
}

func (w *world) reach(words []string) string {
	var params []byte
	for _, addr := range w.addrs(words) {
		params = appendWord(params, addr)
	}
	return fmt.Sprintf("%v\n", w.space.Reachable(params))
}

// picture shows each allocated chunk: a place that has memory for it by its letter, h or the
// device's number, with a star if that is valid; and the word that it is known to be filled with.
func picture(s *Space) string {
	var b strings.Builder
	b.WriteString("=")
	for i, c := range s.all() {
		fmt.Fprintf(&b, " %d:", i)
		for p := hostSlot; int(p) < len(s.tallies); p++ {
			if c.held&p.bit() == 0 {
				continue
			}
			if p == hostSlot {
				b.WriteByte('h')
			} else {
				fmt.Fprint(&b, int(p)-1)
			}
			if c.valid&p.bit() != 0 {
				b.WriteByte('*')
			}
		}
		if c.held == 0 {
			b.WriteByte('-')
		}
		if c.fill != 0 {
			fmt.Fprintf(&b, "(%#x)", c.fill.word())
		}
	}
	return b.String() + "\n"
}

func appendWord(params []byte, word uint64) []byte {
	return binary.LittleEndian.AppendUint64(params, word)
}
