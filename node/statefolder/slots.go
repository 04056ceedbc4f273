package statefolder

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	"muster/internal/strictjson"
)

// Slots is a small document that is written often: before each grant, by the loop,
// which must not wait. The file has room for two copies, which are written in turn:
// whenever the daemon is killed, at least one of them is whole, and the newer whole one
// counts. Nothing is synchronised to the disk, because no client survives a loss of
// power.
type Slots struct {
	file   *os.File
	number uint64 // of the last document
	buffer bytes.Buffer
}

const (
	slotSize = 4096
	slotHead = 16 + 1 + 8 + 1 + 4 + 1 // number, sum, length

	// Room is how long a document may be.
	Room = slotSize - slotHead
)

// Slots opens a file of slots, and makes it if it is not there.
func (f *Folder) Slots(name string) (*Slots, error) {
	file, err := os.OpenFile(filepath.Join(f.Dir, name), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return &Slots{file: file}, nil
}

func (s *Slots) Close() {
	if s != nil {
		s.file.Close()
	}
}

// Write writes a document over the older of the two.
func (s *Slots) Write(document any) error {
	s.buffer.Reset()
	s.buffer.Write(make([]byte, slotHead))
	if err := json.NewEncoder(&s.buffer).Encode(document); err != nil {
		return err
	}
	text := s.buffer.Bytes()
	if len(text) > slotSize {
		return fmt.Errorf("a document of %d bytes, where %d have room", len(text), slotSize)
	}
	s.number++
	copy(text, fmt.Appendf(nil, "%016x %08x %04x\n", s.number, sumOf(s.number, text[slotHead:]), len(text)-slotHead))
	_, err := s.file.WriteAt(text, int64(s.number%2)*slotSize)
	return err
}

func sumOf(number uint64, text []byte) uint32 {
	return crc32.Update(crc32.ChecksumIEEE(fmt.Appendf(nil, "%d ", number)), crc32.IEEETable, text)
}

var errNoSlot = errors.New("nothing whole is written there")

// Read reads the newer document that is whole. Later writes get higher numbers.
func (s *Slots) Read(into any) error {
	all := make([]byte, 2*slotSize)
	n, err := s.file.ReadAt(all, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	var newest []byte
	for at := 0; at < n; at += slotSize {
		if number, text := readSlot(all[at:min(at+slotSize, n)]); text != nil && number > s.number {
			s.number, newest = number, text
		}
	}
	if newest == nil {
		return errNoSlot
	}
	return strictjson.Decode(newest, into)
}

// readSlot returns a document and its number; nil if it is not whole.
func readSlot(slot []byte) (uint64, []byte) {
	var number uint64
	var sum uint32
	var length int
	if len(slot) < slotHead {
		return 0, nil
	}
	if n, _ := fmt.Sscanf(string(slot[:slotHead]), "%x %x %x\n", &number, &sum, &length); n != 3 || length < 0 || slotHead+length > len(slot) {
		return 0, nil
	}
	text := slot[slotHead : slotHead+length]
	if sumOf(number, text) != sum {
		return 0, nil
	}
	return number, text
}
