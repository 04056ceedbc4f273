// Command gen generates the two sides of the protocol from their description: message types with
// strict decoders for Go, and encoders for C.
//
// It knows nothing of rings, sockets or what the messages mean.
package main

import (
	"flag"
	"fmt"
	"hash/fnv"
	"os"

	"muster/internal/wholefile"
)

func main() {
	in := flag.String("in", "messages.txt", "the description")
	goFile := flag.String("go", "messages_gen.go", "the Go side")
	cFile := flag.String("c", "../shim/lib/transport/wire_gen.h", "the C side")
	flag.Parse()
	if err := run(*in, *goFile, *cFile); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(in, goFile, cFile string) error {
	text, err := os.ReadFile(in)
	if err != nil {
		return err
	}
	d, err := parse(string(text))
	if err != nil {
		return fmt.Errorf("%s:%w", in, err)
	}
	goText, err := d.goSide()
	if err != nil {
		return err
	}
	if err := wholefile.Replace(goFile, goText, 0o644); err != nil {
		return err
	}
	return wholefile.Replace(cFile, d.cSide(), 0o644) // somebody may be compiling
}

// hash distinguishes two descriptions by what travels. What a side does with a message, such as
// fault-ok, is not part of it.
func (d *description) hash() uint32 {
	h := fnv.New32a()
	for _, m := range d.messages {
		fmt.Fprintln(h, m.kind, m.name, m.fields, m.in, m.out, m.reply)
	}
	return h.Sum32()
}
