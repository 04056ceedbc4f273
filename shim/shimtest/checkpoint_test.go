package shimtest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/node/checkpoint"
	"muster/vmm"
)

// opened reads a file with the reader in Go.
func opened(t *testing.T, path string) *checkpoint.File {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := checkpoint.Open(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestCheckpoints(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a while")
	}
	daemon := build(t, "fake", "", "test/fake.c")
	program := build(t, "checkpoint", "address,undefined", "test/checkpoint_test.c", theLibrary)
	t.Run("saved and restored", func(t *testing.T) { testRestarted(t, daemon, program) })
	t.Run("hostile", func(t *testing.T) { testHostileFiles(t, daemon, program) })
}

// A process saves its device memory, and another gets it back. The files are those that
// the worker writes and reads.
func testRestarted(t *testing.T, daemon, program string) {
	dir := filepath.Join(t.TempDir(), "a", "b") // is made
	where := "MUSTER_CHECKPOINTS=" + dir
	kept, stderr, err := runWith(t, where, program, fake(t, daemon, "serve"), "save")
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	f := opened(t, filepath.Join(dir, "run"))
	if f.Core != nil || len(f.Allocations) != 4 || f.About.ArenaBase != 0x600000000000 {
		t.Errorf("%+v", f)
	}
	if n := f.Bytes[checkpoint.Memory]; n < 2<<20 || n > 2<<20+400_000 {
		t.Errorf("%d bytes of memory were written: what is zero must cost nothing", n)
	}
	if info, err := os.Stat(filepath.Join(dir, "run")); err != nil || info.Mode().Perm() != 0o600 {
		t.Error("others can read it:", info.Mode(), err)
	}
	if _, stderr, err := runInput(t, where, kept, program, fake(t, daemon, "serve"), "restore"); err != nil {
		t.Errorf("%v\n%s", err, stderr)
	}
	_, stderr, err = runWith(t, where, program, fake(t, daemon, "serve"), "again")
	want := "muster: a checkpoint has 5242883 bytes at 0x600100000000, which are taken or not of this device: restore it before anything else is allocated\n"
	if err != nil || stderr != want {
		t.Errorf("%v, said %q\nwant %q", err, stderr, want)
	}
	if files, _ := filepath.Glob(dir + "/.*"); len(files) > 0 {
		t.Errorf("files were left: %v", files)
	}
	if _, stderr, err := runWith(t, "MUSTER_CHECKPOINTS=/proc/nowhere", program, fake(t, daemon, "serve"), "save"); err == nil || !strings.Contains(stderr, "the folder of checkpoints cannot be made: /proc/nowhere") {
		t.Errorf("%v, said %q", err, stderr)
	}
}

// workersFile is a file as a worker writes it.
func workersFile(t *testing.T) []byte {
	t.Helper()
	const base = 0x600000000000
	var out bytes.Buffer
	w := checkpoint.NewWriter(&out, checkpoint.About{Identity: "x", ArenaBase: base, ArenaSize: 1 << 30, Shared: &checkpoint.Shared{RingSize: 4096, ArenaSize: 4096}})
	w.Core([]byte("{}"))
	w.Allocations([]vmm.Range{{Addr: base + 512, Size: 1000}, {Addr: base + 4096, Size: 100_000}})
	w.Piece(checkpoint.Memory, base+512, bytes.Repeat([]byte{1}, 1000))
	w.Piece(checkpoint.Memory, base+4096+70_000, bytes.Repeat([]byte{2}, 5000))
	w.Piece(checkpoint.Ring, 100, []byte{1})
	w.Piece(checkpoint.Data, 100, []byte{1})
	if err := w.End(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// Whatever is in a file, the library says what is wrong with it or takes it, as the
// reader in Go does, and reads nothing beyond it.
func testHostileFiles(t *testing.T, daemon, program string) {
	dir := t.TempDir()
	good := workersFile(t)
	chance := rand.New(rand.NewPCG(1, 1))
	var want []string
	add := func(b []byte) {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("f", len(want))), b, 0o600); err != nil {
			t.Fatal(err)
		}
		result := "304"
		if _, err := checkpoint.Open(bytes.NewReader(b), int64(len(b))); err == nil {
			result = "0"
		} else if strings.Contains(err.Error(), "shared memory") || strings.Contains(err.Error(), "beyond the end") {
			result = "any" // the library does not look at that
		}
		want = append(want, result)
	}
	add(good)
	add(nil)
	for i := 1; i < 60; i++ {
		add(good[:len(good)*i/60])
	}
	for range 200 {
		bad := bytes.Clone(good)
		bad[chance.IntN(len(bad))] ^= 1 << chance.IntN(8)
		add(bad)
	}
	for range 400 { // with right checksums
		bad := bytes.Clone(good)
		places := recordsOf(bad)
		at := places[chance.IntN(len(places))]
		field := at + []int{0, 8, 16}[chance.IntN(3)]
		switch chance.IntN(3) {
		case 0:
			bad[field] ^= 1 << chance.IntN(4)
		case 1:
			bad[field+chance.IntN(8)%4] = byte(chance.IntN(256))
		default:
			binary.LittleEndian.PutUint32(bad[field:], chance.Uint32())
		}
		fixChecksums(bad)
		add(bad)
	}
	stdout, stderr, err := runWith(t, "MUSTER_CHECKPOINTS="+dir, program, fake(t, daemon, "serve"), "files")
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	got := strings.Fields(stdout)
	if len(got) != len(want) {
		t.Fatalf("%d of %d files were read", len(got), len(want))
	}
	for i := range got {
		// Allocations beyond the arena are the node's to refuse in Go, and the
		// library's here.
		if got[i] != want[i] && want[i] != "any" && !(want[i] == "304" && got[i] == "1") {
			t.Errorf("file %d: %s, where the reader in Go says %s", i, got[i], want[i])
		}
	}
}

const headSize, recordSize = 24, 24

// recordsOf lists where records begin.
func recordsOf(b []byte) (places []int) {
	for at := headSize; at+recordSize <= len(b); {
		places = append(places, at)
		size := binary.LittleEndian.Uint64(b[at+16:])
		if size > uint64(len(b)) {
			break
		}
		at += recordSize + int(size)
	}
	return places
}

func fixChecksums(b []byte) {
	table := crc32.MakeTable(crc32.Castagnoli)
	for _, at := range recordsOf(b) {
		size := binary.LittleEndian.Uint64(b[at+16:])
		if size > uint64(len(b)-at-recordSize) {
			return
		}
		head := append(bytes.Clone(b[at:at+4]), b[at+8:at+24]...)
		sum := crc32.Update(crc32.Checksum(head, table), table, b[at+recordSize:][:size])
		binary.LittleEndian.PutUint32(b[at+4:], sum)
	}
}
