package main

import (
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
		_, err := readImages(source, "-")
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
	f := &boundedFile{name: "stdin", r: source, size: -1}
	if head, err := f.peek(100); err != nil || len(head) != 100 {
		t.Fatalf("%d bytes, %v", len(head), err)
	}
	_, err := f.all(limit)
	var large *tooLarge
	if !errors.As(err, &large) || err.Error() != "stdin: it has more than 10,000 bytes, and no more are read" {
		t.Errorf("got %v", err)
	}
	if source.read > 2*limit {
		t.Errorf("%d bytes were read for %d", source.read, limit)
	}
	text := strings.Repeat("x", limit)
	f = &boundedFile{name: "stdin", r: strings.NewReader(text), size: -1}
	if _, err := f.peek(100); err != nil {
		t.Fatal(err)
	}
	if data, err := f.all(limit); err != nil || string(data) != text {
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
		if err := os.WriteFile(path, []byte(strings.Repeat(c.begin, textHead)), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, 1<<40); err != nil {
			t.Skip(err) // a file system without holes
		}
		if _, err := readImages(nil, path); err == nil || !strings.HasSuffix(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
	_, err := parseKernelArguments([]string{"u8[]=@" + path})
	if err == nil || !strings.Contains(err.Error(), "the file has 1,099,511,627,776 bytes, at most 17,179,869,184 bytes are read") {
		t.Errorf("got %v", err)
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
		"padded":  {strings.NewReader(".version 8.0\n.target sm_90\n" + strings.Repeat("\x00", 2*textHead)), ""},
		"zeros":   {strings.NewReader("\x00"), "stdin: this is no PTX text: it is 1 NUL byte and nothing else"},
		"blank":   {strings.NewReader(" \n"), "stdin: the file is empty"},
		"nothing": {strings.NewReader(""), "stdin: the file is empty"},
	} {
		images, err := readImages(c.source, "-")
		switch {
		case c.want == "" && (err != nil || len(images) != 1):
			t.Errorf("%s: %v, %v", name, images, err)
		case c.want != "" && (err == nil || err.Error() != c.want):
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}
