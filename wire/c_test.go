package wire

import (
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"muster/internal/build"
	"muster/internal/need"
)

// runC compiles a program against the C side and returns the lines it prints.
func runC(t *testing.T, main string) []string {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		need.Missing(t, need.Compiler, "no gcc")
	}
	if err := build.Generated(".."); err != nil {
		t.Fatal(err)
	}
	shim, err := filepath.Abs("../shim/lib/transport")
	if err != nil {
		t.Fatal(err)
	}
	source, program := filepath.Join(t.TempDir(), "main.c"), filepath.Join(t.TempDir(), "main")
	text := "#include <stdio.h>\n#include \"wire_gen.h\"\n" +
		"static void hex(const void *p, size_t n) { for (size_t i = 0; i < n; i++) printf(\"%02x\", ((const uint8_t *)p)[i]); printf(\"\\n\"); }\n" +
		"int main(void) {\n" + main + "\treturn 0;\n}\n"
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	compile := exec.Command("gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-fsanitize=undefined,address", "-I", shim, "-o", program, source)
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("the C side does not compile: %v\n%s", err, out)
	}
	out, err := exec.Command(program).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

func TestLayoutIsTheSameInC(t *testing.T) {
	want := []struct {
		c    string
		inGo uint64
	}{
		{"WIRE_MAGIC", Magic}, {"WIRE_VERSION", Version}, {"WIRE_SCHEMA", uint64(Schema)},
		{"WIRE_MAX_RECORD", MaxRecord}, {"WIRE_MAX_MESSAGE", MaxMessage}, {"WIRE_HEADER", HeaderSize}, {"WIRE_PAD", opPad},
		{"WIRE_SLOTS", slotCount}, {"WIRE_SLOTS_AT", slotsAt}, {"WIRE_RING_AT", ringAt}, {"WIRE_BOUNCE", BounceBuffer},
		{"WIRE_FREE", uint64(slotFree)}, {"WIRE_PENDING", uint64(slotPending)}, {"WIRE_DONE", uint64(slotDone)}, {"WIRE_SLEEPING", uint64(slotSleeping)},
		{"sizeof(struct wire_frame)", frameSize}, {"offsetof(struct wire_frame, size)", 0}, {"offsetof(struct wire_frame, op)", 4}, {"offsetof(struct wire_frame, zero)", 6},
		{"sizeof(struct wire_header)", HeaderSize}, {"offsetof(struct wire_header, size)", 0}, {"offsetof(struct wire_header, op)", 4},
		{"offsetof(struct wire_header, slot)", 6}, {"offsetof(struct wire_header, seq)", 8}, {"offsetof(struct wire_header, zero)", 12},
		{"offsetof(struct wire_header, data)", 16}, {"offsetof(struct wire_header, length)", 24}, {"offsetof(struct wire_header, release)", 32},
		{"sizeof(struct wire_slot)", slotSize}, {"offsetof(struct wire_slot, state)", slotState}, {"offsetof(struct wire_slot, result)", slotResult},
		{"offsetof(struct wire_slot, size)", slotLength}, {"offsetof(struct wire_slot, payload)", slotAnswer}, {"sizeof(((struct wire_slot *)0)->payload)", MaxReply},
		{"offsetof(struct wire_ring, magic)", atMagic}, {"offsetof(struct wire_ring, version)", atVersion}, {"offsetof(struct wire_ring, schema)", atSchema},
		{"offsetof(struct wire_ring, slots)", atSlots}, {"offsetof(struct wire_ring, ring_size)", atRingSize}, {"offsetof(struct wire_ring, arena_size)", atArenaSize},
		{"offsetof(struct wire_ring, staging_size)", atStaging}, {"offsetof(struct wire_ring, bounce_size)", atBounce},
		{"offsetof(struct wire_ring, tail)", atTail}, {"offsetof(struct wire_ring, client_waits)", atClientWaits}, {"offsetof(struct wire_ring, head)", atHead},
		{"offsetof(struct wire_ring, staging_head)", atStagingHead}, {"offsetof(struct wire_ring, worker_waits)", atWorkerWaits},
		{"offsetof(struct wire_ring, status)", atStatus}, {"offsetof(struct wire_ring, closed)", atClosed}, {"offsetof(struct wire_ring, print)", atPrint},
		{"offsetof(struct wire_ring, arena_at)", atArenaAt}, {"offsetof(struct wire_ring, guard)", atGuard},
		{"offsetof(struct wire_ring, reason)", atReason}, {"sizeof(((struct wire_ring *)0)->reason)", reasonSize},
		{"offsetof(struct wire_ring, notices_read)", atNoticesRead}, {"offsetof(struct wire_ring, notices_written)", atNoticesWritten},
		{"offsetof(struct wire_ring, notices)", atNotices}, {"sizeof(((struct wire_ring *)0)->notices)", noticesSize},
		{"sizeof(struct wire_ring) <= WIRE_SLOTS_AT", 1},
	}
	var main strings.Builder
	for _, w := range want {
		fmt.Fprintf(&main, "\tprintf(\"%%llu\\n\", (unsigned long long)(%s));\n", w.c)
	}
	got := runC(t, main.String())
	for i, w := range want {
		if got[i] != fmt.Sprint(w.inGo) {
			t.Errorf("%s is %s in C and %d in Go", w.c, got[i], w.inGo)
		}
	}
}

// cName turns GridX into grid_x and 2D into _2d.
func cName(name string) string {
	var b strings.Builder
	for i, r := range name {
		if i > 0 && r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
		}
		b.WriteRune(r)
	}
	return strings.ToLower(b.String())
}

// cInitialiser is a message's value in C.
func cInitialiser(m any) string {
	var b strings.Builder
	v := reflect.ValueOf(m).Elem()
	for i := range v.NumField() {
		fmt.Fprintf(&b, ".%s = ", cName(v.Type().Field(i).Name))
		switch f := v.Field(i).Interface().(type) {
		case string:
			fmt.Fprintf(&b, "{%s, %d}, ", cBytes([]byte(f)), len(f))
		case []byte:
			fmt.Fprintf(&b, "{%s, %d}, ", cBytes(f), len(f))
		case uint64:
			fmt.Fprintf(&b, "%dull, ", f)
		default:
			fmt.Fprintf(&b, "%v, ", f)
		}
	}
	return "{" + b.String() + "}"
}

func cBytes(b []byte) string {
	var out strings.Builder
	for _, c := range b {
		fmt.Fprintf(&out, "\\%03o", c)
	}
	return `"` + out.String() + `"`
}

func TestCEncodesAsGoDoes(t *testing.T) {
	var main strings.Builder
	main.WriteString("\tuint8_t buffer[1024];\n")
	for _, m := range allMessages() {
		value := "{0}"
		if reflect.TypeOf(m).Elem().NumField() > 0 {
			value = cInitialiser(fill(m))
		}
		fmt.Fprintf(&main, "\t{ struct wire_%[1]v m = %[2]s;\n\t  size_t n = (size_t)(wire_%[1]v_put(buffer, &m) - buffer);\n"+
			"\t  if (n != wire_%[1]v_size(&m)) printf(\"size \");\n\t  hex(buffer, n);\n"+
			"\t  printf(\"%%d\\n\", (int)WIRE_%[3]s); }\n", m.Op(), value, strings.ToUpper(m.Op().String()))
	}
	got := runC(t, main.String())
	for i, m := range allMessages() {
		want := fill(m)
		if got[2*i] != hex.EncodeToString(want.Append(nil)) {
			t.Errorf("%v is %s in C, and %x in Go", m.Op(), got[2*i], want.Append(nil))
			continue
		}
		b, _ := hex.DecodeString(got[2*i])
		decoded := reflect.New(reflect.TypeOf(m).Elem()).Interface().(Message)
		if err := decoded.Decode(b); err != nil || !reflect.DeepEqual(decoded, want) {
			t.Errorf("%v from C is %+v, %v", m.Op(), decoded, err)
		}
		if got[2*i+1] != fmt.Sprint(uint16(m.Op())) {
			t.Errorf("%v has number %s in C", m.Op(), got[2*i+1])
		}
	}
}

// The C side decodes what a client receives: records and replies.
func TestCDecodesWhatGoEncodes(t *testing.T) {
	received := map[string]body{}
	for _, m := range allMessages() {
		if m.Op().info().record {
			received[m.Op().String()] = fill(m)
		}
	}
	for name, r := range allReplies() {
		received[name+"_reply"] = fill(r)
	}
	var main strings.Builder
	for name, m := range received {
		b := m.Append(nil)
		fmt.Fprintf(&main, "\t{ static const uint8_t bytes[] = %s; struct wire_%s m; size_t ok = 0;\n", cBytes(b), name)
		// All of it, then each prefix of it, then one byte too many.
		fmt.Fprintf(&main, "\t  for (size_t n = 0; n <= %d; n++) {\n\t\tstruct wire_reader r = {bytes, bytes + n, false};\n\t\tif (wire_%s_get(&r, &m)) ok += n; }\n", len(b)+1, name)
		fmt.Fprintf(&main, "\t  if (ok != %d) printf(\"%s: accepted wrong lengths, or not the right one\\n\");\n", len(b), name)
		fmt.Fprintf(&main, "\t  struct wire_reader r = {bytes, bytes + %d, false};\n\t  wire_%s_get(&r, &m);\n", len(b), name)
		v := reflect.ValueOf(m).Elem()
		for i := range v.NumField() {
			field := cName(v.Type().Field(i).Name)
			same := fmt.Sprintf("m.%s == (%v)", field, v.Field(i).Interface())
			switch f := v.Field(i).Interface().(type) {
			case uint64:
				same = fmt.Sprintf("m.%s == %dull", field, f)
			case string:
				same = fmt.Sprintf("m.%[1]s.size == %[2]d && memcmp(m.%[1]s.data, %[3]s, %[2]d) == 0", field, len(f), cBytes([]byte(f)))
			case []byte:
				same = fmt.Sprintf("m.%[1]s.size == %[2]d && memcmp(m.%[1]s.data, %[3]s, %[2]d) == 0", field, len(f), cBytes(f))
			}
			fmt.Fprintf(&main, "\t  if (!(%s)) printf(\"%s.%s differs\\n\");\n", same, name, field)
		}
		main.WriteString("\t}\n")
	}
	main.WriteString("\tprintf(\"end\\n\");\n")
	if got := runC(t, main.String()); len(got) != 1 || got[0] != "end" {
		t.Error(strings.Join(got, "\n"))
	}
}

// What may be done after a fault is written once: both sides must read it alike.
func TestAfterFaultIsTheSameInC(t *testing.T) {
	var main strings.Builder
	for _, op := range Ops() {
		fmt.Fprintf(&main, "\tprintf(\"%%d\\n\", wire_after_fault(WIRE_%s));\n", strings.ToUpper(op.String()))
	}
	fmt.Fprintf(&main, "\tprintf(\"%%d\\n\", wire_after_fault((enum wire_op)9999));\n")
	lines := runC(t, main.String())
	for i, op := range append(Ops(), 9999) {
		if inC := lines[i] == "1"; inC != op.AfterFault() {
			t.Errorf("%v after a fault: %v in C, %v in Go", op, inC, op.AfterFault())
		}
	}
}
