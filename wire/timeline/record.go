package timeline

import (
	"bytes"
	"encoding/binary"
	"hash/fnv"
	"strings"
)

// Size is how long a record is.
const Size = 64

// Kind says what a record is about.
type Kind uint16

// Kinds. The library in the program makes the first three, workers the others; both make names.
const (
	Call       Kind = 1 + iota // of a function of the library
	Name                       // what a number stands for
	Clock                      // Bytes is the node's clock at a time between Begin and End of the program's
	Kernel                     // on the device
	CopyIn                     // to the device
	CopyOut                    // from the device
	CopyWithin                 // on the device
	Fill                       // on the device
	OnHost                     // a copy or fill that was done in the host's copy of the memory
	Wait                       // for a device
	SwapIn                     // of the client's memory to the device
	SwapOut                    // of the client's memory to the host
	Exchange                   // both
	Open                       // a context, with the program's modules in it
	Load                       // a module
	Rebuild                    // of the client in another worker
	Others                     // another client had the device; Name is its program
	Device                     // Name is that of the device
	Keep                       // a copy of the client's memory to the host, from which it is rebuilt if its worker dies
	Transfer                   // of the client's memory from one device to another; Name says which, Last is where it went
	kinds
)

// FromProgram is the source of records that concern none of the program's devices.
const FromProgram = 0xffff

// NoDevice is the device of what happened on no device.
const NoDevice = 0xffffffff

// Record is a span of time.
type Record struct {
	Mark       uint64 // 1 + how many came before it in its region
	Begin, End int64
	Bytes      uint64
	Name       uint32
	Row        uint32 // of a call its thread, of work on a device its stream
	Kind       Kind
	Source     uint16 // which of the program's devices
	First      uint32 // the number of the message; of a call, of the first that it sent
	Last       uint32 // of a call, of the last message that it sent; else the node's device
	Waited     uint32 // of a call; see Waits
	Kernel     uint32 // of a launch: the hash of the kernel's name
	Result     uint32 // of a call
}

// What a call may wait for.
const (
	ForNothing = iota
	ForAnswer  // an answer of the node
	ForRing    // room for messages
	ForStaging // room for data
	ForOthers  // other threads of the program
)

// Waits returns how long a call waited, and what it waited for most.
func (r *Record) Waits() (nanoseconds int64, what int) {
	return int64(r.Waited>>3) * 1000, int(r.Waited & 7)
}

// Append adds a record's bytes.
func (r *Record) Append(b []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint64(b, r.Mark)
	b = le.AppendUint64(b, uint64(r.Begin))
	b = le.AppendUint64(b, uint64(r.End))
	b = le.AppendUint64(b, r.Bytes)
	b = le.AppendUint32(b, r.Name)
	b = le.AppendUint32(b, r.Row)
	b = le.AppendUint16(b, uint16(r.Kind))
	b = le.AppendUint16(b, r.Source)
	for _, v := range []uint32{r.First, r.Last, r.Waited, r.Kernel, r.Result} {
		b = le.AppendUint32(b, v)
	}
	return b
}

// decode decodes a record that is no name.
func decode(b []byte) Record {
	le := binary.LittleEndian
	return Record{
		Mark: le.Uint64(b), Begin: int64(le.Uint64(b[8:])), End: int64(le.Uint64(b[16:])), Bytes: le.Uint64(b[24:]),
		Name: le.Uint32(b[32:]), Row: le.Uint32(b[36:]), Kind: Kind(le.Uint16(b[40:])), Source: le.Uint16(b[42:]),
		First: le.Uint32(b[44:]), Last: le.Uint32(b[48:]), Waited: le.Uint32(b[52:]), Kernel: le.Uint32(b[56:]), Result: le.Uint32(b[60:]),
	}
}

// Records decodes consecutive records. It skips names, and what is no record.
func Records(b []byte) []Record {
	records := make([]Record, 0, len(b)/Size)
	for ; len(b) >= Size; b = b[Size:] {
		if r := decode(b); r.Kind > 0 && r.Kind < kinds && r.Kind != Name && r.End >= r.Begin {
			records = append(records, r)
		}
	}
	return records
}

// Hash is the number of a name.
func Hash(name string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(name))
	return h.Sum32()
}

// maxName is how many bytes of a name are recorded.
const maxName = 1024

// Parts of a name's text in a record.
const (
	firstText, firstSize = 16, 24
	moreText, moreSize   = 44, 20
)

// AppendName appends the records of a name.
func AppendName(b []byte, number uint32, name string) []byte {
	name = name[:min(len(name), maxName)]
	for part := uint32(0); name != ""; part++ {
		var r [Size]byte
		binary.LittleEndian.PutUint32(r[8:], number)
		binary.LittleEndian.PutUint32(r[12:], part)
		name = name[copy(r[firstText:firstText+firstSize], name):]
		binary.LittleEndian.PutUint16(r[40:], uint16(Name))
		name = name[copy(r[moreText:moreText+moreSize], name):]
		b = append(b, r[:]...)
	}
	return b
}

// nameKey is the number of a name, and whether it is that of a function.
type nameKey struct {
	function bool
	number   uint32
}

// Names assembles the names that are among records: those of the library's functions, and all
// others.
func Names(b []byte) (functions, others map[uint32]string) {
	parts := map[nameKey]map[uint32]string{}
	for ; len(b) >= Size; b = b[Size:] {
		if Kind(binary.LittleEndian.Uint16(b[40:])) != Name {
			continue
		}
		key, part, text := namePart(b)
		if parts[key] == nil {
			parts[key] = map[uint32]string{}
		}
		parts[key][part] = text
	}
	functions, others = map[uint32]string{}, map[uint32]string{}
	for key, all := range parts {
		var name strings.Builder
		for i := range uint32(len(all)) {
			name.WriteString(all[i])
		}
		of := others
		if key.function {
			of = functions
		}
		of[key.number] = strings.ToValidUTF8(name.String(), "?")
	}
	return functions, others
}

// namePart reads a part of a name.
func namePart(b []byte) (key nameKey, part uint32, text string) {
	le := binary.LittleEndian
	all := append(bytes.Clone(b[firstText:firstText+firstSize]), b[moreText:moreText+moreSize]...)
	return nameKey{le.Uint16(b[42:]) == FromProgram, le.Uint32(b[8:])}, le.Uint32(b[12:]), string(bytes.TrimRight(all, "\x00"))
}
