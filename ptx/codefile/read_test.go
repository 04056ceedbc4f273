package codefile

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/need"
	"muster/ptx/fatbin"
)

// endless never ends, and counts what is read of it.
type endless struct {
	text string
	read int
}

func (e *endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = e.text[(e.read+i)%len(e.text)]
	}
	e.read += len(b)
	return len(b), nil
}

// What cannot be PTX is known by its first bytes, however long it is.
func TestEndlessFiles(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"zeros":  {"\x00", "stdin: this is no PTX text: it begins with 4,096 NUL bytes"},
		"binary": {"\x00\x01\xff", "stdin: this is neither PTX (it has bytes that are no text) nor a fat binary nor a program"},
	} {
		source := &endless{text: c.text}
		_, err := Read(source, "-")
		if err == nil || err.Error() != c.want {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
		if source.read > 1<<20 {
			t.Errorf("%s: %d bytes were read", name, source.read)
		}
	}
}

// What might be PTX is read up to a bound.
func TestBoundedFile(t *testing.T) {
	const limit = 10_000
	source := &endless{text: "// nothing\n"}
	f := Stream("stdin", source)
	if head, err := f.Peek(100); err != nil || len(head) != 100 {
		t.Fatalf("%d bytes, %v", len(head), err)
	}
	_, err := f.All(limit)
	var large *tooLarge
	if !errors.As(err, &large) || err.Error() != "stdin: it has more than 10,000 bytes, and no more are read" {
		t.Errorf("got %v", err)
	}
	if source.read > 2*limit {
		t.Errorf("%d bytes were read for %d", source.read, limit)
	}
	text := strings.Repeat("x", limit)
	f = Stream("stdin", strings.NewReader(text))
	if _, err := f.Peek(100); err != nil {
		t.Fatal(err)
	}
	if data, err := f.All(limit); err != nil || string(data) != text {
		t.Errorf("%d bytes of %d, %v", len(data), limit, err)
	}
}

// A file that says how large it is need not be read to be refused.
func TestLargeFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "large")
	for _, c := range []struct{ begin, want string }{
		{".version 8.0\n", "the file has 1,099,511,627,776 bytes, at most 268,435,456 bytes are read"},
		{"\x50\xed\x55\xba", "the file has 1,099,511,627,776 bytes, at most 4,294,967,296 bytes are read"},
	} {
		if err := os.WriteFile(path, []byte(strings.Repeat(c.begin, Head)), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, 1<<40); err != nil {
			need.Missing(t, need.System, err) // a file system without holes
		}
		if _, err := Read(nil, path); err == nil || !strings.HasSuffix(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

// Of a program only the GPU code is read, and zeros behind a text do not matter.
func TestReadParts(t *testing.T) {
	program := elfWith(elf.EM_X86_64, ".text", nil)
	for name, c := range map[string]struct {
		source io.Reader
		want   string
	}{
		"program": {bytes.NewReader(program), "stdin: the program holds no GPU code (it has no section .nv_fatbin)"},
		"padded":  {strings.NewReader(".version 8.0\n.target sm_90\n" + strings.Repeat("\x00", 2*Head)), ""},
		"zeros":   {strings.NewReader("\x00"), "stdin: this is no PTX text: it is 1 NUL byte and nothing else"},
		"blank":   {strings.NewReader(" \n"), "stdin: the file is empty"},
		"nothing": {strings.NewReader(""), "stdin: the file is empty"},
	} {
		images, err := Read(c.source, "-")
		switch {
		case c.want == "" && (err != nil || len(images) != 1):
			t.Errorf("%s: %v, %v", name, images, err)
		case c.want != "" && (err == nil || err.Error() != c.want):
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}

// A program of nvcc's is an ELF file with fat binaries in a section.
func TestImagesOfPrograms(t *testing.T) {
	fat, err := os.ReadFile("../fatbin/testdata/many.fatbin")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	images, err := Read(nil, write("program", elfWith(elf.EM_X86_64, ".nv_fatbin", fat)))
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, i := range images {
		kinds = append(kinds, i.Kind.String()+" "+i.Target)
	}
	if got, want := strings.Join(kinds, ", "), "ELF sm_75, PTX sm_80, ELF sm_90, PTX sm_120, ELF sm_120"; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	modules, err := Modules("program", images)
	if err != nil || len(modules) != 2 || modules[0].Image.Arch != 120 {
		t.Errorf("got %d modules, %v", len(modules), err)
	}

	images, err = Read(nil, write("cubin", elfWith(Machine, ".text.a", nil)))
	if err != nil || len(images) != 1 || images[0].Kind != fatbin.ELF {
		t.Errorf("cubin: got %v, %v", images, err)
	}
	if _, err = Read(nil, write("other", elfWith(elf.EM_X86_64, ".text", nil))); err == nil || !strings.Contains(err.Error(), "holds no GPU code") {
		t.Errorf("program without GPU code: %v", err)
	}
	if _, err = Read(nil, write("cut", elfWith(elf.EM_X86_64, ".nv_fatbin", fat)[:100])); err == nil {
		t.Error("half a program was read")
	}
	if _, err = Read(nil, write("damaged", elfWith(elf.EM_X86_64, ".nv_fatbin", fat[:len(fat)/2]))); err == nil {
		t.Error("a damaged fat binary was read")
	}
}

// elfWith makes an ELF file with one section.
func elfWith(machine elf.Machine, section string, content []byte) []byte {
	names := "\x00.shstrtab\x00" + section + "\x00"
	const head, row = 64, 64
	at := uint64(head)
	header := elf.Header64{
		Type: uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT), Ehsize: head,
		Shoff: at + uint64(len(names)+len(content)), Shentsize: row, Shnum: 3, Shstrndx: 1,
	}
	copy(header.Ident[:], elf.ELFMAG)
	header.Ident[elf.EI_CLASS], header.Ident[elf.EI_DATA], header.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
	var b bytes.Buffer
	put := func(v any) {
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			panic(err)
		}
	}
	put(header)
	b.WriteString(names)
	b.Write(content)
	put(elf.Section64{})
	put(elf.Section64{Name: 1, Type: uint32(elf.SHT_STRTAB), Off: at, Size: uint64(len(names))})
	put(elf.Section64{Name: 11, Type: uint32(elf.SHT_PROGBITS), Off: at + uint64(len(names)), Size: uint64(len(content))})
	return b.Bytes()
}
