package fatbin

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func read(t testing.TB, name string) []byte {
	t.Helper()
	image, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func open(t testing.TB, image []byte) []Entry {
	t.Helper()
	entries, err := Open(image)
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// The .txt beside each image is what cuobjdump says of it: a block of lines an
// entry, in order, and the sums of what it extracts.
func TestOpenFindsWhatCuobjdumpFinds(t *testing.T) {
	images, err := filepath.Glob("testdata/*.fatbin")
	if err != nil || len(images) == 0 {
		t.Fatalf("%d images, %v", len(images), err)
	}
	for _, image := range images {
		name := strings.TrimSuffix(filepath.Base(image), ".fatbin")
		t.Run(name, func(t *testing.T) {
			listed, sums := parseCuobjdump(string(read(t, name+".txt")))
			var gotListed, gotSums []string
			for _, e := range open(t, read(t, name+".fatbin")) {
				gotListed = append(gotListed, describe(e))
				if e.Data != nil {
					gotSums = append(gotSums, fmt.Sprintf("%s %s %x", e.Kind, e.Target(), sha256.Sum256(e.Data)))
				}
			}
			same(t, "entries", listed, gotListed)
			slices.Sort(sums)
			slices.Sort(gotSums)
			same(t, "contents", sums, gotSums)
		})
	}
}

func describe(e Entry) string {
	return fmt.Sprintf("%s %s version %d.%d compressed %v name %q options %q",
		e.Kind, e.Target(), e.Major, e.Minor, e.Compressed, e.Name, strings.TrimSpace(e.Options))
}

func parseCuobjdump(listing string) (entries, sums []string) {
	var e *Entry
	flush := func() {
		if e != nil {
			entries = append(entries, describe(*e))
		}
	}
	for line := range strings.Lines(listing) {
		line = strings.TrimSpace(line)
		key, value, _ := strings.Cut(line, " = ")
		switch key {
		case "Fatbin ptx code:", "Fatbin elf code:", "Fatbin nvvm code:":
			flush()
			e = &Entry{Kind: map[string]Kind{"ptx": PTX, "elf": ELF, "nvvm": NVVM}[strings.Fields(key)[1]]}
		case "arch":
			fmt.Sscanf(value, "sm_%d%s", &e.Arch, &e.Variant)
		case "code version":
			fmt.Sscanf(value, "[%d,%d]", &e.Major, &e.Minor)
		case "compressed":
			e.Compressed = true
		case "identifier":
			e.Name = value
		case "ptxasOptions", "nvvmOptions":
			e.Options = value
		}
		if rest, ok := strings.CutPrefix(line, "sum: "); ok {
			sums = append(sums, parseSum(rest))
		}
	}
	flush()
	return entries, sums
}

// parseSum reads "d00c…  many.1.sm_75.cubin".
func parseSum(line string) string {
	fields := strings.Fields(line)
	parts := strings.Split(fields[1], ".")
	kind := map[string]Kind{"ptx": PTX, "cubin": ELF}[parts[len(parts)-1]]
	return fmt.Sprintf("%s %s %s", kind, parts[len(parts)-2], fields[0])
}

func same(t *testing.T, what string, want, got []string) {
	t.Helper()
	if !slices.Equal(want, got) {
		t.Errorf("%s:\nwant\n  %s\ngot\n  %s", what, strings.Join(want, "\n  "), strings.Join(got, "\n  "))
	}
}

// All compression modes store the same PTX.
func TestCompressionModesAgree(t *testing.T) {
	var first []byte
	methods := map[compression]bool{}
	for _, mode := range []string{"none", "speed", "balance", "size"} {
		for _, e := range open(t, read(t, "mode-"+mode+".fatbin")) {
			if e.Kind != PTX {
				continue
			}
			methods[e.method] = true
			if first == nil {
				first = e.Data
			}
			if !bytes.Equal(e.Data, first) || !bytes.Contains(e.Data, []byte(".entry vecadd(")) {
				t.Errorf("mode %s: other PTX:\n%s", mode, e.Data)
			}
		}
	}
	if len(methods) != 3 {
		t.Errorf("methods %v: want plain, LZ4 and zstd", methods)
	}
}

func TestListLoadsNothingCompressed(t *testing.T) {
	entries, err := List(read(t, "many.fatbin"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range entries {
		e := &entries[i]
		if e.Compressed != (e.Data == nil) {
			t.Errorf("entry %d: compressed %v, %d bytes of data", i, e.Compressed, len(e.Data))
		}
		if err := e.Load(); err != nil || len(e.Data) == 0 {
			t.Errorf("entry %d: %v, %d bytes after Load", i, err, len(e.Data))
		}
	}
}

func TestOtherKindsAreListedOnly(t *testing.T) {
	entries := open(t, read(t, "lto.fatbin"))
	e := entries[len(entries)-1]
	if e.Kind != NVVM || e.Data != nil {
		t.Fatalf("%s with %d bytes", e.Kind, len(e.Data))
	}
	wantError(t, e.Load(), "NVVM for sm_90 cannot be read")
}

func TestSeveralInOneImage(t *testing.T) {
	a, b := read(t, "ptx.fatbin"), read(t, "elf.fatbin")
	for _, zeros := range []int{0, 1, 8, 100} {
		image := slices.Concat(a, make([]byte, zeros), b, make([]byte, zeros))
		entries := open(t, image)
		if len(entries) != 2 || entries[0].Kind != PTX || entries[1].Kind != ELF {
			t.Errorf("%d zeros between: %d entries", zeros, len(entries))
		}
	}
	_, err := Open(slices.Concat(a, []byte("and then something else")))
	wantError(t, err, "at byte 784 begins with 0x20646e61 and is no fat binary")
}

func TestRecognise(t *testing.T) {
	image := read(t, "ptx.fatbin")
	for _, c := range []struct {
		image []byte
		want  bool
	}{
		{image, true},
		{image[:4], true}, // Open says what is wrong with it
		{image[:3], false},
		{nil, false},
		{[]byte("//\n.version 9.0"), false},
		{[]byte("\x7fELF\x02\x01\x01\x00"), false},
	} {
		if got := Recognise(c.image); got != c.want {
			t.Errorf("%.8q: %v", c.image, got)
		}
	}
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	zstdImage := read(t, "ptx.fatbin")
	lz4Image := read(t, "mode-speed.fatbin")
	const entryAt = headerSize
	lz4At := headerSize + entryHeaderSize + int(order.Uint64(lz4Image[entryAt+8:])) // the PTX after the ELF
	// put sets bytes of an image, given in hexadecimal.
	put := func(image []byte, at int, digits string) []byte {
		b, err := hex.DecodeString(digits)
		if err != nil {
			t.Fatal(err)
		}
		image = slices.Clone(image)
		copy(image[at:], b)
		return image
	}
	for _, c := range []struct {
		name  string
		image []byte
		want  string
	}{
		{"nothing", nil, "0 bytes are too few"},
		{"PTX", []byte(".version 9.0"), "no fat binary: it begins with 0x7265762e"},
		{"wrapper", put(zstdImage, 0, "b1436246"), "pass what it points to"},
		{"old", put(zstdImage, 0, "015ae51e"), "compile the program again"},
		{"version", put(zstdImage, 4, "0200"), "version 2 at byte 0: only version 1"},
		{"small header", put(zstdImage, 6, "0800"), "a header of 8 bytes"},
		{"large header", put(zstdImage, 6, "ffff"), "a header of 65535 bytes"},
		{"cut short", zstdImage[:500], "768 bytes of entries, the image only 484: it is cut short"},
		{"huge", put(zstdImage, 8, "ffffffffffffffff"), "cut short"},
		{"half an entry", put(zstdImage[:entryAt+20], 8, "1400000000000000"), "entry 0 at byte 16: 20 bytes are too few"},
		{"small entry header", put(zstdImage, entryAt+4, "3f000000"), "a header of 63 bytes"},
		{"large entry header", put(zstdImage, entryAt+4, "ffffffff"), "a header of 4294967295 bytes, and 768 bytes are left"},
		{"large content", put(zstdImage, entryAt+8, "b102000000000000"), "689 bytes of content, and only 688 are left"},
		{"huge content", put(zstdImage, entryAt+8, "ffffffffffffffff"), "only 688 are left"},
		{"compressed size", put(zstdImage, entryAt+16, "ffff0000"), "65535 compressed bytes in 688"},
		{"name", put(zstdImage, entryAt+32, "00000000ffffffff"), "its name: bytes 0 to 4294967295 of a header of 80"},
		{"options record", put(zstdImage, entryAt+20, "49000000"), "its options are at byte 73 of a header of 80"},
		{"options", put(zstdImage, entryAt+64, "ffffffffffffffff"), "its options: bytes 4294967295 to 8589934590"},
		{"two compressions", put(zstdImage, entryAt+40, "11a0"), "flags 0xa011 name two compressions"},
		{"over the limit", put(zstdImage, entryAt+56, "0000000001"), "over 1073741824 bytes in all"},
		{"more than can be", put(zstdImage, entryAt+56, "00000040"), "declares 1073741824 bytes, more than 688 bytes of zstd can hold"},
		{"zstd too long", put(zstdImage, entryAt+56, "00000001"), "comes to 2774 bytes, not 16777216"},
		{"zstd too short", put(zstdImage, entryAt+56, "10000000"), "compressed with zstd, is damaged"},
		{"no zstd", put(zstdImage, entryAt+80, "00000000"), "compressed with zstd, is damaged"},
		{"LZ4 more than can be", put(lz4Image, lz4At+56, "00001000"), "more than 1029 bytes of LZ4 can hold"},
		{"LZ4 too short", put(lz4Image, lz4At+56, "10000000"), "compressed with LZ4, is damaged"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Open(c.image)
			wantError(t, err, c.want)
		})
	}
}

func wantError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want one of fatbin with %q", err, want)
	}
}

func TestEveryCutIsAnError(t *testing.T) {
	image := read(t, "ptx.fatbin")
	for n := range image {
		if _, err := Open(image[:n]); err == nil {
			t.Errorf("the first %d of %d bytes are accepted", n, len(image))
		}
	}
}

// Damage in one byte may go unnoticed, but is never a panic and never more
// memory than the size declares.
func TestEveryDamagedByteIsSurvived(t *testing.T) {
	for _, name := range []string{"ptx.fatbin", "mode-size.fatbin", "lto.fatbin"} {
		image := read(t, name)
		for i := range image {
			for _, flip := range []byte{1, 0x80, 0xff} {
				image[i] ^= flip
				if entries, err := Open(image); err == nil {
					checkSound(t, image, entries)
				}
				image[i] ^= flip
			}
		}
	}
}

func checkSound(t *testing.T, image []byte, entries []Entry) {
	for i, e := range entries {
		if (e.Data == nil) == e.readable() {
			t.Errorf("entry %d: %s with data %v", i, e.Kind, e.Data != nil)
		}
		if e.Compressed && e.readable() && uint64(len(e.Data)) > e.size {
			t.Errorf("entry %d: %d bytes, declared %d", i, len(e.Data), e.size)
		}
		if !e.Compressed && len(e.Data) > len(image) {
			t.Errorf("entry %d: %d plain bytes in an image of %d", i, len(e.Data), len(image))
		}
	}
}

// A frame may declare any window; only the content's size costs memory.
func TestLargeWindowCostsNoMemory(t *testing.T) {
	// No size, a window of 1 GiB, and one block that repeats a byte 100 times.
	frame := []byte("\x28\xb5\x2f\xfd\x00\xa0\x23\x03\x00x")
	expand := func() {
		if got, err := expandZstd(frame, 100); err != nil || string(got) != strings.Repeat("x", 100) {
			t.Fatalf("%q, %v", got, err)
		}
	}
	expand() // makes the decoder
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	expand()
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 {
		t.Errorf("%d bytes of memory for a content of 100", used)
	}
}

// Run it with -fuzzminimizetime 10x: images are long, and minimising them takes
// all the time.
func FuzzOpen(f *testing.F) {
	images, err := filepath.Glob("testdata/*.fatbin")
	if err != nil || len(images) == 0 {
		f.Fatalf("%d images, %v", len(images), err)
	}
	for _, name := range images {
		f.Add(read(f, filepath.Base(name)))
	}
	f.Fuzz(func(t *testing.T, image []byte) {
		entries, err := Open(image)
		if err != nil {
			return
		}
		checkSound(t, image, entries)
	})
}
