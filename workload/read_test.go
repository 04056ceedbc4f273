package workload

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"muster/model"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// read reads a text as if it were a file.
func read(t *testing.T, name, text string, opt ReadOptions) (*Workload, *ReadReport) {
	t.Helper()
	wl, report, err := Read(strings.NewReader(text), name, opt)
	if err != nil {
		t.Fatal(err)
	}
	return wl, report
}

func TestRealLogs(t *testing.T) {
	for _, c := range []struct {
		file   string
		format Format
		jobs   int
		notes  int
		start  string
	}{
		{"hpc2n-seth-2002-first300.swf.gz", SWF, 294, 1, "2002-07-28T07:04:05Z"},
		{"nasa-ipsc-1993-first200.swf.gz", SWF, 200, 0, "1993-10-01T07:00:03Z"},
		{"cerit-wagap-2013-first100.alea.swf.gz", SWF, 100, 0, "2012-12-31T23:22:27Z"},
		{"openb-gpuspec10-first200.csv.gz", Openb, 200, 1, ""},
		{"openb-multigpu20-first50.csv.gz", Openb, 50, 1, ""},
		{"philly-first200.csv.gz", Philly, 200, 0, "2017-09-29T07:58:32Z"},
	} {
		t.Run(c.file, func(t *testing.T) {
			wl, report, err := ReadFile(filepath.Join("testdata", c.file), ReadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			start := ""
			if !wl.Start.IsZero() {
				start = wl.Start.Format(time.RFC3339)
			}
			if report.Format != c.format || len(wl.Jobs) != c.jobs || len(report.Notes) != c.notes || start != c.start {
				t.Errorf("got %s, %d jobs, start %q, notes %q", report.Format, len(wl.Jobs), start, report.Notes)
			}
			checkInvariants(t, wl)
			checkRoundTrips(t, wl)
		})
	}
}

// checkInvariants holds for every workload that Read returns.
func checkInvariants(t *testing.T, wl *Workload) {
	t.Helper()
	for i := range wl.Jobs {
		if err := wl.Jobs[i].Validate(); err != nil {
			t.Fatal(err)
		}
		if i > 0 && wl.Jobs[i].Submit < wl.Jobs[i-1].Submit {
			t.Fatalf("job %d is submitted before job %d", i, i-1)
		}
	}
	if wl.Jobs[0].Submit != 0 {
		t.Fatalf("the first job is submitted at %v", wl.Jobs[0].Submit)
	}
}

// checkRoundTrips writes a workload in both formats and expects the same back.
func checkRoundTrips(t *testing.T, wl *Workload) {
	t.Helper()
	for _, f := range []Format{SWF, CSV} {
		var out bytes.Buffer
		if err := Write(&out, wl, f); err != nil {
			if f == SWF && strings.Contains(err.Error(), "alternative") {
				continue
			}
			t.Fatal(err)
		}
		back, report, err := Read(bytes.NewReader(out.Bytes()), "again."+string(f), ReadOptions{})
		if err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		if len(report.Notes) > 0 || report.Jobs != len(wl.Jobs) {
			t.Fatalf("%s: %d jobs of %d, notes %q", f, report.Jobs, len(wl.Jobs), report.Notes)
		}
		if start := wl.Start; !back.Start.Equal(start) && (f != SWF || !back.Start.Equal(start.Truncate(time.Second))) { // SWF has whole seconds
			t.Errorf("%s: start %v, was %v", f, back.Start, wl.Start)
		}
		for i := range wl.Jobs {
			if !reflect.DeepEqual(back.Jobs[i], wl.Jobs[i]) {
				t.Fatalf("%s: job %d came back as\n%s\nwas\n%s", f, i, dump(back.Jobs[i]), dump(wl.Jobs[i]))
			}
		}
		var again bytes.Buffer
		if err := Write(&again, back, f); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(dropHeader(out.Bytes()), dropHeader(again.Bytes())) {
			t.Errorf("%s: the second writing differs from the first", f)
		}
	}
}

func dropHeader(text []byte) []byte {
	for len(text) > 0 && (text[0] == ';' || text[0] == '#') {
		_, text, _ = bytes.Cut(text, []byte("\n"))
	}
	return text
}

func dump(v any) string {
	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		panic(err)
	}
	return string(text)
}

// TestGolden fixes what the readers make of the samples, value by value.
func TestGolden(t *testing.T) {
	for _, name := range []string{"sample.sacct", "sample.pbs", "sample.csv", "sample.submit"} {
		t.Run(name, func(t *testing.T) {
			wl, report, err := ReadFile(filepath.Join("testdata", name), ReadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			checkInvariants(t, wl)
			checkRoundTrips(t, wl)
			var out bytes.Buffer
			if err := Write(&out, wl, CSV); err != nil {
				t.Fatal(err)
			}
			out.WriteString("\n" + dump(report) + "\n")
			golden := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(golden, out.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(out.Bytes(), want) {
				t.Errorf("got\n%s\nwant\n%s", out.Bytes(), want)
			}
		})
	}
}

func swfLine(fields string) string {
	given := strings.Fields(fields)
	for len(given) < swfFields {
		given = append(given, "-1")
	}
	return strings.Join(given, " ") + "\n"
}

func TestSWFFields(t *testing.T) {
	text := "; UnixStartTime: 1000000000\n; MaxNodes: 4\n" +
		"\t7 100 20 552.25 8 551.5 1000 16 3600 2048 0 3 4 5 6 2 1 9\n"
	wl, _ := read(t, "x.swf", text, ReadOptions{})
	want := model.Job{
		ID: "7", User: "3", Group: "4", Queue: "6",
		Run: 552250 * time.Millisecond, WallTime: time.Hour,
		Request: model.Request{Cores: 16, MemoryPerCore: 2 << 20},
		Logged: &model.Logged{
			Wait: 20 * time.Second, CPUTime: 551500 * time.Millisecond, UsedMemory: 1000 << 10,
			Status: model.StatusFailed, Executable: "5", Partition: "2", Preceding: "1", ThinkTime: 9 * time.Second,
		},
	}
	if !reflect.DeepEqual(wl.Jobs[0], want) {
		t.Errorf("got %s", dump(wl.Jobs[0]))
	}
	if wl.Start.Unix() != 1_000_000_100 {
		t.Errorf("start %v: the first submission is at 100 s", wl.Start)
	}
	if !reflect.DeepEqual(wl.Header, []string{"UnixStartTime: 1000000000", "MaxNodes: 4"}) {
		t.Errorf("header %q", wl.Header)
	}
}

func TestSWFOptions(t *testing.T) {
	text := swfLine("1 0 -1 10 20") + swfLine("2 5 3 10 3")
	wl, _ := read(t, "x.swf", text, ReadOptions{CoresPerNode: 8})
	if r := wl.Jobs[0].Request; r.Nodes != 3 || r.Cores != 20 {
		t.Errorf("20 cores of 8 a node: %+v", r)
	}
	if wl.Jobs[0].Logged != nil {
		t.Error("a log that says nothing more gives no Logged")
	}
	wl, _ = read(t, "x.swf", text, ReadOptions{SkipLogged: true})
	if wl.Jobs[0].Request.Nodes != 0 || wl.Jobs[1].Logged != nil {
		t.Errorf("got %s", dump(wl.Jobs))
	}
}

func TestSWFLeavesOutWhatNeverRan(t *testing.T) {
	text := swfLine("1 0 -1 -1 4 -1 -1 4 -1 -1 5") + // cancelled
		swfLine("2 1 -1 0 4 -1 -1 4 -1 -1 5") + // cancelled, with a run time of 0
		swfLine("3 2 -1 10 -1 -1 -1 0") + // no processors
		swfLine("4 3 -1 10 4 -1 -1 4 -1 -1 2") + // a piece
		swfLine("5 4 -1 0 4") + // runs for no time, which is fine
		swfLine("6 5 -1 10 4 -1 -1 4 -1 -1 5") // cancelled while it ran
	wl, report := read(t, "x.swf", text, ReadOptions{})
	if len(wl.Jobs) != 2 || wl.Jobs[0].ID != "5" || wl.Jobs[1].ID != "6" {
		t.Errorf("kept %s", dump(wl.Jobs))
	}
	if len(report.Notes) != 4 || report.Bad != 0 {
		t.Errorf("bad %d, notes %q", report.Bad, report.Notes)
	}
}

func TestAbsoluteSubmitTimes(t *testing.T) {
	wl, _ := read(t, "x.swf", swfLine("1 1356996147 0 5 1")+swfLine("2 1356996149 0 5 1"), ReadOptions{})
	if wl.Start.Unix() != 1356996147 || wl.Jobs[1].Submit != 2*time.Second {
		t.Errorf("start %v, second job at %v", wl.Start, wl.Jobs[1].Submit)
	}
}

func TestAlea(t *testing.T) {
	wl, _, err := ReadFile("testdata/cerit-wagap-2013-first100.alea.swf.gz", ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	j := wl.Jobs[1]
	if j.Queue != "q_2w" || j.Request.Nodes != 1 || j.Request.CoresPerNode != 12 || j.Request.Memory != 91268055040 {
		t.Errorf("got %s", dump(j))
	}
}

func TestUnsortedLogsAreSortedStably(t *testing.T) {
	var text strings.Builder
	text.WriteString("id,submit,run,cores\n")
	for _, row := range []string{"a,30,1,1", "b,10,1,1", "c,30,1,1", "d,10,1,1", "e,20,1,1"} {
		text.WriteString(row + "\n")
	}
	wl, _ := read(t, "x.csv", text.String(), ReadOptions{})
	var ids strings.Builder
	for i := range wl.Jobs {
		ids.WriteString(wl.Jobs[i].ID)
	}
	if ids.String() != "bdeac" || wl.Jobs[4].Submit != 20*time.Second {
		t.Errorf("order %s, last at %v", ids.String(), wl.Jobs[4].Submit)
	}
}

func TestBadLines(t *testing.T) {
	good := swfLine("1 0 -1 10 4")
	sacctHead := "JobID|Submit|ElapsedRaw|NNodes|Timelimit|ReqMem|AllocTRES|State\n"
	for _, c := range []struct {
		name, file, text string
		line, column     int
		reason           string
	}{
		{"swf short", "x.swf", good + "2 5 3\n", 2, 6, "3 fields"},
		{"swf word", "x.swf", good + swfLine("2 5 ten 10 4"), 2, 5, `"ten" is not a number`},
		{"swf trailing letter", "x.swf", swfLine("2 5 1 10s 4"), 1, 7, `run time: "10s"`},
		{"swf endless number", "x.swf", swfLine("2 5 1 9999999999999999999 4"), 1, 7, "too long"},
		{"swf long time", "x.swf", swfLine("2 5 1 999999999999 4"), 1, 7, "longer than any log"},
		{"swf no submit", "x.swf", swfLine("2 -1 1 5 4"), 1, 3, "submit time must be known"},
		{"swf many processors", "x.swf", swfLine("2 1 1 5 99999999999"), 1, 9, "more than any machine"},
		{"swf no such muster column", "x.swf", "; MusterColumns: gpu\n" + good, 1, 1, `did you mean "gpus"`},
		{"swf missing muster column", "x.swf", "; MusterColumns: gpus nodes\n" + strings.TrimSpace(good) + " 3\n", 2, 53, "the header promises 20"},
		{"swf wrong muster column", "x.swf", "; MusterColumns: nodes gpus\n" + strings.TrimSpace(good) + " 3 many\n", 2, 54, `gpus: "many"`},
		{"csv unknown column", "x.csv", "submit,run,node\n0,1,1\n", 1, 12, `did you mean "nodes"`},
		{"csv twice", "x.csv", "run,cores,run\n0,1,1\n", 1, 11, "twice"},
		{"csv no run", "x.csv", "submit,cores\n0,1\n", 1, 1, `"run" is missing`},
		{"csv cells", "x.csv", "run,cores\n1,2\n1,2,3\n", 3, 6, "3 cells"},
		{"csv quote", "x.csv", "run,cores,user\n1,2,\"us1\n", 2, 5, "does not close"},
		{"csv after quote", "x.csv", "run,cores,user\n1,2,\"us1\"x\n", 2, 10, "comma is missing"},
		{"csv size", "x.csv", "run,nodes,memory\n1,2,lots\n", 2, 5, "memory"},
		{"csv negative", "x.csv", "run,cores\n-1,2\n", 2, 1, "negative"},
		{"csv nothing asked", "x.csv", "run,cores\n1,\n", 2, 1, "no nodes and no cores"},
		{"csv flag", "x.csv", "run,nodes,exclusive\n1,1,perhaps\n", 2, 5, "neither yes nor no"},
		{"csv mixed submits", "x.csv", "submit,run,cores\n0,1,1\n2024-03-01 08:00:00,1,1\n", 3, 1, "one of them throughout"},
		{"csv stray alternative", "x.csv", "id,run,cores,alternative\na,1,1,\nb,,2,1\n", 3, 6, "must follow"},
		{"csv bad alternative", "x.csv", "id,run,cores,alternative\na,1,1,\na,,,1\n", 3, 5, "no nodes and no cores"},
		{"sacct column", "x.sacct", "JobID|Start|End|NNodes\n1|2|3|4\n", 1, 1, "Submit is missing: export the log with sacct -a"},
		{"sacct values", "x.sacct", sacctHead + "1|2024-03-01T08:00:00|60\n", 2, 25, "3 values"},
		{"sacct time", "x.sacct", sacctHead + "1|yesterday|60|1||||COMPLETED\n", 2, 3, "is not a time"},
		{"sacct no submit", "x.sacct", sacctHead + "1|Unknown|60|1||||COMPLETED\n", 2, 3, "submit time is not known"},
		{"sacct memory", "x.sacct", sacctHead + "1|2024-03-01T08:00:00|60|1||much||COMPLETED\n", 2, 29, "ReqMem"},
		{"sacct limit", "x.sacct", sacctHead + "1|2024-03-01T08:00:00|60|1|soon|||COMPLETED\n", 2, 28, "time limit"},
		{"sacct tres", "x.sacct", sacctHead + "1|2024-03-01T08:00:00|60|1|||gres/gpu=x|COMPLETED\n", 2, 30, "gres/gpu=x"},
		{"pbs record", "x.pbs", "hello\n", 1, 1, "no accounting record"},
		{"pbs short", "x.pbs", "04/01/2013 00:00:01;E\n", 1, 22, "cut short"},
		{"pbs submit", "x.pbs", "04/01/2013 00:00:01;E;1;start=5 end=6\n", 1, 25, "when was the job submitted"},
		{"pbs nodes", "x.pbs", "04/01/2013 00:00:01;E;1;ctime=5 start=5 end=6 Resource_List.nodes=2:ppn=x\n", 1, 25, "ppn"},
		{"openb column", "x.csv", "name,cpu_milli,num_gpu\na,1,1\n", 1, 1, `"memory_mib" is missing`},
		{"openb number", "x.csv", "name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,some,1,1,1\n", 2, 3, "cpu_milli"},
		{"submit alone", "x.submit", "# a\n0\n", 2, 2, "the run time and options"},
		{"submit time", "x.submit", "0 1 -n1\n soon 165 -n4\n", 2, 2, "submission: time"},
		{"submit run", "x.submit", "0 1m2 -n4\n", 1, 3, "run time: time"},
		{"submit option", "x.submit", "0 165 -n4 --gress=gpu:1\n", 1, 11, "did you mean --gres?"},
		{"submit value", "x.submit", "0 165  -N x\n", 1, 11, `"x" is no whole number`},
		{"submit quote", "x.submit", "0 165 -J 'x\n", 1, 10, "does not close"},
		{"submit no dash", "x.submit", "0 165 -n4 c1\n", 1, 7, `"c1" is no option: write a dash`},
		{"submit exclude", "x.submit", "0 165 -n4 -x n1\n", 1, 7, "needs a cluster"},
		{"submit run twice", "x.submit", "0 165 -n4 --run=3\n", 1, 7, "second word"},
		{"philly time", "x.csv", "timestamp,duration,num_gpus\nnever,1,1\n", 2, 1, "timestamp"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := Read(strings.NewReader(c.text), c.file, ReadOptions{})
			var bad *LineError
			if !errors.As(err, &bad) {
				t.Fatalf("got %v, want a LineError", err)
			}
			if bad.File != c.file || bad.Line != c.line || bad.Column != c.column || !strings.Contains(bad.Reason, c.reason) {
				t.Errorf("got %v, want %s:%d:%d: ...%s...", bad, c.file, c.line, c.column, c.reason)
			}
		})
	}
}

func TestSkipBad(t *testing.T) {
	var text strings.Builder
	for i := range 15 {
		text.WriteString("nonsense\n")
		if i%5 == 0 {
			text.WriteString(swfLine("1 0 -1 10 4"))
		}
	}
	wl, report := read(t, "x.swf", text.String(), ReadOptions{SkipBad: true})
	if len(wl.Jobs) != 3 || report.Bad != 15 || len(report.FirstBad) != maxFirstBad || report.FirstBad[1].Line != 3 {
		t.Errorf("%d jobs, report %+v", len(wl.Jobs), report)
	}
}

func compress(t *testing.T, text string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestUnreadableFiles: what cannot be read whole is an error even when bad lines
// are skipped.
func TestUnreadableFiles(t *testing.T) {
	zipped := compress(t, strings.Repeat(swfLine("1 0 -1 10 4"), 1000))
	damaged := bytes.Clone(zipped)
	damaged[len(damaged)-6] ^= 1 // in the checksum
	for _, c := range []struct {
		name string
		data []byte
		want string
	}{
		{"empty", nil, "the file is empty"},
		{"comments only", []byte("; nothing\n\n"), "no job"},
		{"all left out", []byte(swfLine("1 0 -1 -1 4")), "1 job without a run time"},
		{"all bad", []byte("; x\n1 2 3\n"), "1 bad line, the first is line 2"},
		{"truncated", zipped[:len(zipped)-12], "truncated"},
		{"truncated in the trailer", zipped[:len(zipped)-3], "truncated"},
		{"truncated in the header", zipped[:5], "truncated"},
		{"damaged", damaged, "damaged"},
		{"endless line", bytes.Repeat([]byte{'1', ' '}, maxLine), "longer than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := Read(bytes.NewReader(c.data), "x.swf", ReadOptions{SkipBad: true})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want ...%s...", err, c.want)
			}
		})
	}
	if _, _, err := ReadFile("testdata/there-is-none.swf", ReadOptions{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v for a file that is not there", err)
	}
}

func TestGuess(t *testing.T) {
	for _, c := range []struct {
		head, name string
		want       Format
	}{
		{"; Version: 2.2\n", "log", SWF},
		{"\n  1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8\n", "log", SWF},
		{"User|JobID|State\n", "log.txt", Sacct},
		{"04/01/2013 00:00:01;E;1;\n", "20130401", PBS},
		{"\xef\xbb\xbfname,cpu_milli,memory_mib\n", "pods.csv", Openb},
		{"timestamp,duration,num_gpus,gpu_time,cluster\n", "p.csv", Philly},
		{"run,cores\n", "x", CSV},
		{"# mine\nrun,cores\n", "x", CSV},
		{"run\n", "jobs.CSV.gz", CSV},
		{"# a b c d e f g h i j k l m n o p q r s\nrun,cores\n", "x.csv", CSV},
		{"x\n", "a.swf", SWF},
		{"0 165 -n4\n", "x", Submit},
		{"0 1:30:00 sbatch -n4 job.sh\n", "x.txt", Submit},
		{"0 1 -N 1 -n 1 -c 1 -t 1 -J a -p b -A c -o d -e e\n", "x", Submit},
		{"# mine\n0 165 -n4\n", "jobs.submit.gz", Submit},
	} {
		if got, err := guess([]byte(c.head), c.name); err != nil || got != c.want {
			t.Errorf("%q in %s: got %q, %v", c.head, c.name, got, err)
		}
	}
	if _, err := guess([]byte("hello\n"), "x.txt"); err == nil || !strings.Contains(err.Error(), "swf, sacct, pbs, openb, philly, csv") {
		t.Errorf("got %v, want the formats there are", err)
	}
	if _, _, err := Read(strings.NewReader("x"), "x", ReadOptions{Format: "xml"}); err == nil {
		t.Error("a format that is not there was taken")
	}
}

func TestWriteSWFKeepsTheHeader(t *testing.T) {
	text := "; Version: 2\n; Computer: Seth\n;   a second line\n;\n; MaxJobs: 999\n" + swfLine("1 0 -1 10 4")
	wl, _ := read(t, "x.swf", text, ReadOptions{})
	var out bytes.Buffer
	if err := Write(&out, wl, SWF); err != nil {
		t.Fatal(err)
	}
	want := "; Version: 2\n; Computer: Seth\n;   a second line\n;\n; MaxJobs: 1\n; MaxRecords: 1\n1 0 -1 10 4 -1 -1 4 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

// TestEverythingRoundTrips has jobs with every field set, and awkward texts.
func TestEverythingRoundTrips(t *testing.T) {
	full := model.Job{
		ID: "a b", User: "-", Group: "50%", Queue: "q,\"x\"", Submit: 0, Run: 1500 * time.Millisecond, WallTime: time.Hour + 1,
		Priority: -3, Intensity: 0.1,
		Request: model.Request{
			Nodes: 3, Cores: 10, CoresPerNode: 4, Processes: 7, Memory: 1001, MemoryPerCore: 3, GPUs: 2, GPUMemory: 5,
			GPUType: "k 20", Remote: &model.RemoteGPUs{Count: 2, Memory: 9, Shared: true}, Contiguous: true, Exclusive: true,
			NodeList: []string{"n1", "n2", "m9"},
		},
		Traffic: model.Traffic{NetBytes: 1, NetConns: 2, GPUBytes: 3, GPUConns: 4},
		Logged: &model.Logged{
			Wait: 0, CPUTime: 1, UsedMemory: 17, Status: model.StatusTimeout, Executable: "run me", Partition: "#1",
			Preceding: "x", ThinkTime: 3 * time.Second,
		},
	}
	plain := model.Job{ID: "7", Submit: time.Second, Request: model.Request{Cores: 1}}
	stopped := model.Job{ID: "#8", Submit: time.Second, Request: model.Request{Nodes: 2},
		Logged: &model.Logged{Wait: -1, CPUTime: -1, UsedMemory: -1, Status: model.StatusCancelled, Preceding: "7"}}
	remote := model.Job{ID: "9", Submit: 2 * time.Second, Run: time.Second, User: "12",
		Request: model.Request{Cores: 6, CoresPerProcess: 3, MemoryPerCore: 4096, Remote: &model.RemoteGPUs{Count: 1}}}
	wl := &Workload{Name: "all", Start: time.Unix(1_700_000_000, 0).UTC(), Jobs: []model.Job{full, plain, stopped, remote}}
	checkInvariants(t, wl)
	checkRoundTrips(t, wl)

	wl.Jobs[1].Alternatives = []model.Request{{Nodes: 1, GPUs: 1}, {Cores: 9, CoresPerProcess: 3, Run: 1500 * time.Millisecond, WallTime: time.Minute}}
	checkRoundTrips(t, wl)
	wl.Jobs[2].Request.WallTime = 1
	if err := Write(new(bytes.Buffer), wl, CSV); err == nil || !strings.Contains(err.Error(), "put it into the job") {
		t.Errorf("got %v: a first request has no times of its own", err)
	}
	wl.Jobs[2].Request.WallTime = 0
	if err := Write(new(bytes.Buffer), wl, SWF); err == nil || !strings.Contains(err.Error(), "write csv") {
		t.Errorf("got %v: SWF cannot hold alternatives", err)
	}
	wl.Jobs[0].User = "a\nb"
	if err := Write(new(bytes.Buffer), wl, CSV); err == nil {
		t.Error("a line break was written into a cell")
	}
	if err := Write(new(bytes.Buffer), wl, PBS); err == nil {
		t.Error("PBS logs cannot be written")
	}
}

// TestSWFNumbersNames: other programs must find numbers in all 18 fields.
func TestSWFNumbersNames(t *testing.T) {
	wl, _ := read(t, "x.csv", "id,submit,run,nodes,gpus,user,queue\nx,0,1,2,1,us1,4\ny,0,1,2,1,us2,5\nz,1,1,2,1,us1,4\n", ReadOptions{})
	var out bytes.Buffer
	if err := Write(&out, wl, SWF); err != nil {
		t.Fatal(err)
	}
	want := `; Version: 2.2
; MaxJobs: 3
; MaxRecords: 3
; MusterColumns: id nodes cores gpus user
1 0 -1 1 2 -1 -1 2 -1 -1 -1 1 -1 -1 4 -1 -1 -1 x 2 - 1 us1
2 0 -1 1 2 -1 -1 2 -1 -1 -1 2 -1 -1 5 -1 -1 -1 y 2 - 1 us2
3 1 -1 1 2 -1 -1 2 -1 -1 -1 1 -1 -1 4 -1 -1 -1 z 2 - 1 us1
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestCSVDates(t *testing.T) {
	wl, _ := read(t, "x.csv", "submit,run,cores\n2024-03-01 08:00:10,1,1\n2024-03-01 08:00:00,1,1\n", ReadOptions{})
	if wl.Start.Format(time.RFC3339) != "2024-03-01T08:00:00Z" || wl.Jobs[1].Submit != 10*time.Second || wl.Jobs[1].ID != "1" {
		t.Errorf("start %v, %s", wl.Start, dump(wl.Jobs))
	}
}

func TestPhillyNodes(t *testing.T) {
	text := "timestamp,duration,num_gpus\n2017-10-09 07:01:55,66.0,1\n2017-10-09 07:01:55,66.0,12\n2017-10-09 07:01:55,66.0,0\n"
	wl, _ := read(t, "x.csv", text, ReadOptions{})
	for i, want := range []model.Request{
		{Nodes: 1, CoresPerNode: 1, GPUs: 1}, {Nodes: 2, CoresPerNode: 6, GPUs: 6}, {Nodes: 1, CoresPerNode: 1},
	} {
		if !reflect.DeepEqual(wl.Jobs[i].Request, want) {
			t.Errorf("row %d: got %+v", i+1, wl.Jobs[i].Request)
		}
	}
	wl, _ = read(t, "x.csv", text, ReadOptions{GPUsPerNode: 4})
	if r := wl.Jobs[1].Request; r.Nodes != 3 || r.GPUs != 4 {
		t.Errorf("12 GPUs on nodes of 4: got %+v", r)
	}
}

func TestOpenb(t *testing.T) {
	text := "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n" +
		"a,1500,1024,1,460,T4|V100|T4,LS,Failed,100,200,110\n" +
		"b,8000,2048,2,1000,,BE,Pending,120,220,\n"
	wl, report := read(t, "pods.csv", text, ReadOptions{})
	share := model.Request{Nodes: 1, Cores: 2, Memory: 1 << 30, GPUs: 1, GPUMemory: 460 << 20, GPUType: "T4"}
	other := share
	other.GPUType = "V100"
	a, b := wl.Jobs[0], wl.Jobs[1]
	if a.Intensity != 0.46 || b.Intensity != 0 {
		t.Errorf("intensities %v and %v: shares are shares of computing", a.Intensity, b.Intensity)
	}
	if !reflect.DeepEqual(a.Request, share) || !reflect.DeepEqual(a.Alternatives, []model.Request{other}) {
		t.Errorf("got %s", dump(a))
	}
	if a.Run != 90*time.Second || a.Logged.Wait != 10*time.Second || a.Logged.Status != model.StatusFailed {
		t.Errorf("got %s", dump(a))
	}
	if b.Submit != 20*time.Second || b.Run != 100*time.Second || b.Request.GPUMemory != 0 || len(report.Notes) != 1 {
		t.Errorf("got %s, notes %q", dump(b), report.Notes)
	}
}

func TestSacctColumns(t *testing.T) {
	for _, c := range []struct {
		name, text string
		opt        ReadOptions
		want       model.Request
		wall       time.Duration
	}{
		{"trailing bars and minutes", "Submit|JobID|Start|End|NCPUS|TimelimitRaw|\n1700000000|1|1700000010|1700000070|4|90|\n",
			ReadOptions{}, model.Request{Cores: 4}, 90 * time.Minute},
		{"cores put on nodes", "JobID|Submit|Elapsed|NCPUS|ReqMem|Timelimit\n1|2024-03-01T08:00:00|00:01:00|20|30G|1-00:00:00\n",
			ReadOptions{CoresPerNode: 8}, model.Request{Nodes: 3, Cores: 20, Memory: 10 << 30}, 24 * time.Hour},
		{"memory of spread cores", "JobID|Submit|Elapsed|NCPUS|ReqMem|TimelimitRaw\n1|2024-03-01T08:00:00Z|01:00|20|30Gn|Partition_Limit\n",
			ReadOptions{}, model.Request{Cores: 20, MemoryPerCore: 3 << 29}, 0},
		{"resources only", "JobID|Submit|ElapsedRaw|ReqTRES\n1|2024-03-01T08:00:00+0100|60|cpu=8,node=2,gres/gpu:v100=1,gres/gpu:a100=2\n",
			ReadOptions{}, model.Request{Nodes: 2, Cores: 8, GPUs: 2}, 0},
		{"GPUs without nodes", "JobID|Submit|ElapsedRaw|NCPUS|AllocTRES\n1|2024-03-01T08:00:00|60|1K|gres/gpu=2\n",
			ReadOptions{}, model.Request{Nodes: 1, Cores: 1024, GPUs: 2}, 0},
		{"remote GPUs", "JobID|Submit|ElapsedRaw|NNodes|NCPUS|AllocTRES\n1|2024-03-01T08:00:00|60|2|4|cpu=4,node=2,gres/gpu=2,gres/rgpu=3\n",
			ReadOptions{}, model.Request{Nodes: 2, Cores: 4, GPUs: 1, Remote: &model.RemoteGPUs{Count: 3}}, 0},
		{"shares of remote GPUs", "JobID|Submit|ElapsedRaw|NNodes|NCPUS|AllocTRES\n1|2024-03-01T08:00:00|60|1|4|cpu=4,node=1,gres/rgpu=3,gres/rgpumem=1536M\n",
			ReadOptions{}, model.Request{Nodes: 1, Cores: 4, Remote: &model.RemoteGPUs{Count: 3, Memory: 3 << 29, Shared: true}}, 0},
		{"shares of local GPUs", "JobID|Submit|ElapsedRaw|NNodes|NCPUS|AllocTRES\n1|2024-03-01T08:00:00|60|2|4|cpu=4,node=2,gres/gpu=4,gres/gpumem=50M\n",
			ReadOptions{}, model.Request{Nodes: 2, Cores: 4, GPUs: 2, GPUMemory: 50 << 20}, 0},
		{"shares of no local GPUs", "JobID|Submit|ElapsedRaw|NNodes|NCPUS|AllocTRES\n1|2024-03-01T08:00:00|60|2|4|cpu=4,node=2,gres/gpumem=50M\n",
			ReadOptions{}, model.Request{Nodes: 2, Cores: 4}, 0},
		{"fractions and megabytes", "JobID|Submit|ElapsedRaw|NNodes|ReqMem\n1|2024-03-01T08:00:00|60|1|3.5Gc\n",
			ReadOptions{}, model.Request{Nodes: 1, MemoryPerCore: 7 << 29}, 0},
		{"memory without a unit", "JobID|Submit|ElapsedRaw|NNodes|ReqMem\n1|2024-03-01T08:00:00|60|1|4000n\n",
			ReadOptions{}, model.Request{Nodes: 1, Memory: 4000 << 20}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			wl, report := read(t, "x.txt", c.text, c.opt)
			j := wl.Jobs[0]
			if report.Format != Sacct || !reflect.DeepEqual(j.Request, c.want) || j.WallTime != c.wall || j.Run != time.Minute {
				t.Errorf("got %s", dump(j))
			}
		})
	}
}
