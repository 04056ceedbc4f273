package workload

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"muster/internal/proportion"
)

// oneJob is a log of each format with one job, and its last line.
var oneJob = map[Format]string{
	SWF:    "1 0 5 552 4 -1 10 4 60 100 1 2 3 4 5 6 -1 -1\n",
	Sacct:  "JobID|Submit|ElapsedRaw|NNodes|NCPUS\n7|2024-01-01T00:00:00|60|1|4\n",
	PBS:    "04/01/2013 00:10:12;E;1.h;user=a ctime=1364774400 Resource_List.nodes=4:ppn=8 resources_used.walltime=00:10:00\n",
	Openb:  "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1000,1,0,0\n",
	Philly: "timestamp,duration,num_gpus\n2017-10-09 07:01:55,66,1\n",
	CSV:    "id,run,nodes\na,10,1\n",
	Submit: "0 165 -n4\n",
}

// repeater gives a text again and again, without end.
type repeater struct {
	text string
	at   int
}

func (r *repeater) Read(p []byte) (n int, err error) {
	for n < len(p) {
		m := copy(p[n:], r.text[r.at:])
		n += m
		r.at = (r.at + m) % len(r.text)
	}
	return n, nil
}

// gzipped packs a text that is repeated up to a size.
func gzipped(t testing.TB, text string, size int64) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(w, &repeater{text: text}, size); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// wantLine reads a log, skipping what is bad, and expects an error at a line; 0
// is any.
func wantLine(t *testing.T, r io.Reader, format Format, line int, reason string) {
	t.Helper()
	_, _, err := Read(r, "f", ReadOptions{Format: format, SkipBad: true})
	var at *LineError
	if !errors.As(err, &at) || line > 0 && at.Line != line || at.File != "f" || !strings.Contains(at.Reason, reason) {
		t.Errorf("%s: got %v\nwant f:%d: %s", format, err, line, reason)
	}
}

func TestCommentsAreBounded(t *testing.T) {
	for format, mark := range map[Format]string{SWF: ";", CSV: "#", Submit: "#"} {
		many := strings.Repeat(mark+" a\n", maxHeaderLines)
		if wl, _, err := Read(strings.NewReader(many+oneJob[format]), "f", ReadOptions{Format: format}); err != nil || len(wl.Header) != maxHeaderLines {
			t.Errorf("%s: %v", format, err)
		}
		wantLine(t, &repeater{text: mark + " a\n"}, format, maxHeaderLines+1, "there are more than 65536 comment lines")
		long := mark + " " + strings.Repeat("a", 1<<19) + "\n"
		wantLine(t, &repeater{text: long}, format, 9, "the comment lines up to here have more than 4MiB")
	}
}

// A few kilobytes that were made to fill all memory cost an error that names a
// line, and little memory.
func TestGzipBombs(t *testing.T) {
	const most = freelyUnpacks + 1<<20
	for _, c := range []struct {
		name, text string
		size       int64
		reason     string
	}{
		{"a line without end", "a", 2 * maxLine, "the line is longer than 1048576 bytes"},
		{"comments", "; " + strings.Repeat("x", 10_000) + "\n", 2 * maxHeaderBytes, "have more than 4MiB"},
		{"bad lines", strings.Repeat("x", 100_000) + "\n", most, "the gzip data unpacks to more than 200 times its size, which no job log does"},
		{"jobs that are left out", strings.Repeat(" ", 100_000) + "1 0 -1 -1 4 -1 -1 4 -1 -1 5 1 1 1 1 1 -1 -1\n", most, "the gzip data unpacks to more than 200 times its size"},
	} {
		if testing.Short() && c.size == most {
			continue // much to pack
		}
		packed := gzipped(t, c.text, c.size)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		wantLine(t, bytes.NewReader(packed), SWF, 0, c.reason)
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 32<<20 {
			t.Errorf("%s: %d bytes took %d", c.name, len(packed), used)
		}
	}
	// What is short may repeat itself.
	if _, _, err := Read(bytes.NewReader(gzipped(t, oneJob[SWF], int64(1000*len(oneJob[SWF])))), "f", ReadOptions{Format: SWF}); err != nil {
		t.Error(err)
	}
}

func TestTextIsBounded(t *testing.T) {
	src, err := openLines(strings.NewReader("\n\n"), "f")
	if err != nil {
		t.Fatal(err)
	}
	src.bytes = maxText - 1
	if _, err := src.next(); err != nil {
		t.Error(err)
	}
	if _, err := src.next(); err == nil || err.Error() != "f:2:1: the log has more than 64GiB up to here: split it" {
		t.Errorf("got %v", err)
	}
}

func TestColumnsAreBounded(t *testing.T) {
	wide := strings.Repeat("a,", maxColumns) + "a\n"
	for _, format := range []Format{CSV, Openb, Philly} {
		wantLine(t, strings.NewReader(wide), format, 1, "the header names 1025 columns: at most 1024 are read")
	}
	wantLine(t, strings.NewReader(strings.ReplaceAll(wide, ",", "|")), Sacct, 1, "the header names 1025 columns: at most 1024 are read")
	wantLine(t, strings.NewReader("; MusterColumns: nodes node_list node_list\n"), SWF, 1, `MusterColumns: the column "node_list" is there twice`)
}

// The memory that a log occupies is counted, in every format.
func TestMemoryIsBounded(t *testing.T) {
	for format, text := range oneJob {
		b := newBatch("f", format, ReadOptions{SkipBad: true})
		b.kept = maxKept - 100
		dec, err := newDecoder(format, b)
		if err != nil {
			t.Fatal(err)
		}
		src, err := openLines(strings.NewReader(text), "f")
		if err != nil {
			t.Fatal(err)
		}
		err = b.read(src, dec)
		want := fmt.Sprintf("f:%d:1: the jobs up to here take more than 4GiB of memory: split the log", strings.Count(text, "\n"))
		if err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", format, err, want)
		}
	}
}

// Short texts that expand to much count with their expanded size.
func TestCostsOfJobs(t *testing.T) {
	for _, c := range []struct {
		format Format
		text   string
		least  int64
	}{
		{CSV, "id,run,nodes,node_list\na,10,1,\"n[1-100000]\"\n", 100_000 * 18},
		{CSV, "id,run,nodes,alternative\na,10,1,\na,10,1,1\na,10,1,2\n", sizeOfJob + 2*sizeOfRequest},
		{CSV, "id,run,nodes,user\na,10,1," + strings.Repeat("u", 10_000) + "\n", 10_000},
		{SWF, "; MusterColumns: nodes node_list\n1 0 5 552 4 -1 10 4 60 100 1 2 3 4 5 6 -1 -1 1 n[1-100000]\n", 100_000 * 18},
		{Submit, "0 165 -w n[1-100000]\n", 100_000 * 18},
		{Submit, "0 165 -n1 --or='-w n[1-100000]' --or='-w n[1-100000]'\n", 2 * 100_000 * 18},
		{Openb, "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\np,1000,1,1,1000," + manyTypes(10_000) + "\n", 10_000 * sizeOfRequest},
	} {
		b := newBatch("f", c.format, ReadOptions{})
		dec, _ := newDecoder(c.format, b)
		src, err := openLines(strings.NewReader(c.text), "f")
		if err == nil {
			err = b.read(src, dec)
		}
		if err != nil || b.kept < c.least {
			t.Errorf("%.60s: %d bytes are counted, %v", c.text, b.kept, err)
		}
	}
}

func manyTypes(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint("t", i)
	}
	return strings.Join(names, "|")
}

// The limit applies to all node lists of a line together, so that a line of a megabyte cannot
// expand to terabytes.
func TestNodeListsOfALine(t *testing.T) {
	list := " -w n[1-600000]"
	wantBad := func(line string) {
		t.Helper()
		_, _, err := Read(strings.NewReader(line+"\n"), "f", ReadOptions{Format: Submit})
		if err == nil || !strings.Contains(err.Error(), "all lists of nodes together have more than 1000000 names") {
			t.Errorf("got %v", err)
		}
	}
	wantBad("0 1 -n1" + strings.Repeat(list, 1000))
	wantBad("0 1 -n1" + strings.Repeat(" --or='"+list+"'", 1000))
}

// A claim in the header costs nothing until jobs back it.
func TestClaimedJobs(t *testing.T) {
	text := "; MaxJobs: 100000000\n" + strings.Repeat(oneJob[SWF], 5000)
	wl, _, err := Read(strings.NewReader(text), "f", ReadOptions{Format: SWF})
	if err != nil || cap(wl.Jobs) > 10*5000 {
		t.Errorf("room for %d jobs, %v", cap(wl.Jobs), err)
	}
}

func TestReasonsAreShort(t *testing.T) {
	long := strings.Repeat("x", 1<<19)
	for format, text := range map[Format]string{
		CSV:    "id,run\na," + long + "\n",
		Sacct:  "JobID|Submit|ElapsedRaw|NNodes\n7|2024-01-01T00:00:00|60|" + long + "\n",
		Submit: "0 165 --gres=" + long + "\n",
	} {
		_, _, err := Read(strings.NewReader(text), "f", ReadOptions{Format: format})
		if err == nil || len(err.Error()) > 600 {
			t.Errorf("%s: an error of %d bytes", format, len(fmt.Sprint(err)))
		}
	}
}

// Notes that all differ are not kept one by one.
func TestNotesAreBounded(t *testing.T) {
	var b strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&b, "0 1 -N1-%d\n", i+2)
	}
	_, report, err := Read(strings.NewReader(b.String()), "f", ReadOptions{Format: Submit})
	if err != nil || len(report.Notes) != maxNotes || report.Notes[maxNotes-1] != "951 jobs with notes of other kinds" {
		t.Errorf("%d notes, the last is %q, %v", len(report.Notes), report.Notes[len(report.Notes)-1], err)
	}
}

func TestReadFileRefusesWhatIsNone(t *testing.T) {
	folder := t.TempDir()
	if _, _, err := ReadFile(folder, ReadOptions{}); err == nil || err.Error() != folder+" is a folder: name a file in it" {
		t.Errorf("got %v", err)
	}
	_, _, err := ReadFile("/dev/zero", ReadOptions{Format: SWF})
	if want := "/dev/zero:1:1: the line is longer than 1048576 bytes: this is no job log"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// The time for a line is proportional to its length, in each format. An implementation that copies
// each word with all before it would take more than two hundred times as long for sixteen times the
// words.
func TestLinesTakeTimeInProportion(t *testing.T) {
	for name, line := range map[string]func(n int) (Format, string){
		"words of a value": func(n int) (Format, string) {
			return PBS, strings.TrimSuffix(oneJob[PBS], "\n") + " a=b" + strings.Repeat(" x", n) + "\n"
		},
		"values": func(n int) (Format, string) {
			return PBS, strings.TrimSuffix(oneJob[PBS], "\n") + strings.Repeat(" a=\"b", n) + "\n"
		},
		"options": func(n int) (Format, string) { return Submit, "0 1 -n1" + strings.Repeat(" -c1", n) + "\n" },
		"cells":   func(n int) (Format, string) { return CSV, "id,run,nodes\na,10" + strings.Repeat(",1", n) + "\n" },
		"types": func(n int) (Format, string) {
			return Openb, "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\np,1000,1,1,1000," + manyTypes(n) + "\n"
		},
	} {
		read := func(n int) func() {
			format, text := line(n)
			return func() { _, _, _ = Read(strings.NewReader(text), "f", ReadOptions{Format: format}) }
		}
		const n = 6000
		proportion.Hold(t, name, 150, read(n), read(16*n))
	}
}
