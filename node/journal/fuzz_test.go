package journal

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// Whatever the bytes are, they are read or refused: nothing beyond the areas is
// touched, and what is read lies within.
func FuzzRead(f *testing.F) {
	j := testJournal(f, area, limit, "base", "of", "three")
	e := j.Append(1, []byte("one"))
	attach(j, e, "data")
	j.Mark(e, Done)
	j.Tell(e, []byte("fact"))
	j.Note(Note{Cookie: 5, Slot: 2, Seq: 9})
	j.Refuse(j.Append(2, []byte("two")), 3)
	f.Add(bytes.Clone(j.mem[headSize+area:]), uint8(1))
	commit(f, j, "next")
	j.Append(3, nil)
	f.Add(bytes.Clone(j.mem[headSize:headSize+area]), uint8(2))
	f.Add([]byte{}, uint8(0))
	empty := make([]byte, areaHead+32) // a record of no bytes
	binary.LittleEndian.PutUint64(empty[atBaseSize:], 8)
	binary.LittleEndian.PutUint64(empty[atLogSize:], 16)
	f.Add(empty, uint8(0))
	f.Fuzz(func(t *testing.T, inUse []byte, epoch uint8) {
		mem := make([]byte, headSize+2*area, headSize+2*area+8)
		le := binary.LittleEndian
		le.PutUint32(mem[atMagic:], magic)
		le.PutUint32(mem[atVersion:], version)
		le.PutUint64(mem[atArea:], area)
		le.PutUint64(mem[atEpoch:], uint64(epoch))
		mem[atValid] = 1
		copy(mem[headSize+int(epoch)%2*area:][:area], inUse)
		was := bytes.Clone(mem)
		j, err := open(mem, limit)
		if err != nil {
			return
		}
		if sections, err := j.Base(); err == nil {
			total := 8 + 8*len(sections)
			for _, s := range sections {
				total += len(s)
				if cap(s) != len(s) {
					t.Error("a section can grow into the next")
				}
			}
			if total > area {
				t.Errorf("%d bytes in an area of %d", total, area)
			}
		}
		records := 0
		for r, err := range j.Log() {
			if err != nil {
				break
			}
			if records++; r.Message != nil && len(r.Message.Bytes)+len(r.Message.Data) > 2*area {
				t.Errorf("a message of %d and %d bytes", len(r.Message.Bytes), len(r.Message.Data))
			}
		}
		if records > area/8 {
			t.Errorf("%d records in %d bytes", records, area)
		}
		if !bytes.Equal(mem, was) {
			t.Error("reading has changed it")
		}
		// It can be gone on with.
		j.Note(Note{Cookie: 1})
		j.Mark(j.Append(1, []byte("message")), Done)
		if err := j.Commit([]byte("base")); err != nil {
			t.Fatal(err)
		}
		reads(t, j, `base ["base"]`)
	})
}
