package timeline

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// The libraries of programs with elements (IVM) note what an element asked its node for, in a text
// file in the folder for timelines, in C and in Go alike. Fields have tabs between them. The first
// line is about the element:
//
//	muster-elements  1  PID  ELEMENT  NODE  GPU (-1: none)  MONOTONIC  TIME OF DAY  BOOT  PROGRAM
//
// Each other line is a call: what it was (a proto.Op), its thread, when it began and ended, the
// result, three arguments, two numbers of the answer, and a name.

// Element is what is known of one element.
type Element struct {
	Pid, Number, Node, GPU int
	Opened, OpenedAt       int64 // when the file was: on CLOCK_MONOTONIC, and the time of day
	Boot, Program          string
	Calls                  []ElementCall
}

// ElementCall is one that an element made.
type ElementCall struct {
	Op         uint32
	Thread     int
	Begin, End int64
	Result     int
	Args       [3]uint64
	Answer     [2]uint64
	Name       string
}

const (
	elementsMark   = "muster-elements"
	elementsPrefix = "elements-"
)

// IsElement says whether a file of that name in a folder for timelines is an element's.
func IsElement(name string) bool { return strings.HasPrefix(name, elementsPrefix) }

// Elements writes what an element does. Nil writes nothing.
type Elements struct {
	file *os.File
	left int // calls that may still be written
}

// CreateElements makes the file of an element, if the environment says that there is to be a
// timeline, and the folder is there: a node of another machine may not have it.
func CreateElements(e Element) *Elements {
	folder := os.Getenv("MUSTER_TIMELINE")
	limit, err := strconv.Atoi(os.Getenv("MUSTER_TIMELINE_RECORDS"))
	if folder == "" || err != nil || limit < 1 {
		return nil
	}
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	file, err := os.OpenFile(filepath.Join(folder, fmt.Sprint(elementsPrefix, e.Pid, "-", e.Number)), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil
	}
	fmt.Fprintf(file, "%s\t1\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\n", elementsMark, e.Pid, e.Number, e.Node, e.GPU, e.Opened, e.OpenedAt, strings.TrimSpace(string(boot)), plain(e.Program))
	return &Elements{file, limit}
}

// Add writes a call. The caller must not call it at the same time from several goroutines.
func (w *Elements) Add(c ElementCall) {
	if w == nil || w.left == 0 {
		return
	}
	w.left--
	fmt.Fprintf(w.file, "%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n", c.Op, c.Thread, c.Begin, c.End, c.Result, c.Args[0], c.Args[1], c.Args[2], c.Answer[0], c.Answer[1], plain(c.Name))
}

// plain is a name without what would end a field.
func plain(name string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(name, "?"))
}

// ReadElementFile is ReadElement of a file of that name.
func ReadElementFile(path string) (*Element, error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return ReadElement(in)
}

// ReadElement reads an element's file. The process may have been killed while it wrote: what is
// damaged ends the file.
func ReadElement(in io.Reader) (*Element, error) {
	lines := bufio.NewScanner(in)
	if !lines.Scan() {
		return nil, ErrEmpty
	}
	words := strings.Split(lines.Text(), "\t")
	if len(words) != 10 || words[0] != elementsMark {
		return nil, ErrEmpty
	}
	if words[1] != "1" {
		return nil, fmt.Errorf("version %s of the records of elements, where 1 was due: use the library that came with this muster", words[1])
	}
	n, ok := integers(words[2:8])
	if !ok {
		return nil, ErrEmpty
	}
	e := &Element{Pid: int(n[0]), Number: int(n[1]), Node: int(n[2]), GPU: int(n[3]), Opened: n[4], OpenedAt: n[5], Boot: words[8], Program: words[9]}
	for lines.Scan() {
		words := strings.Split(lines.Text(), "\t")
		if len(words) != 11 {
			break
		}
		n, ok := integers(words[:10])
		if !ok || n[3] < n[2] {
			break
		}
		e.Calls = append(e.Calls, ElementCall{
			Op: uint32(n[0]), Thread: int(n[1]), Begin: n[2], End: n[3], Result: int(n[4]),
			Args: [3]uint64{uint64(n[5]), uint64(n[6]), uint64(n[7])}, Answer: [2]uint64{uint64(n[8]), uint64(n[9])}, Name: plain(words[10]),
		})
	}
	return e, nil
}

// integers reads numbers, which may have no sign and all 64 bits.
func integers(words []string) (n []int64, ok bool) {
	for _, w := range words {
		i, err := strconv.ParseInt(w, 10, 64)
		if err != nil {
			u, err := strconv.ParseUint(w, 10, 64)
			if err != nil {
				return nil, false
			}
			i = int64(u)
		}
		n = append(n, i)
	}
	return n, true
}
