package workload

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// fuzz feeds a decoder anything. It must not panic or hang, what it returns must
// hold together, and a workload that it reads must survive being written.
func fuzz(f *testing.F, format Format, samples ...string) {
	for _, name := range samples {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		wl, report, err := Read(bytes.NewReader(data), "fuzz", ReadOptions{Format: format, SkipBad: true})
		if err != nil {
			return
		}
		if report.Jobs != len(wl.Jobs) || report.Bad < len(report.FirstBad) {
			t.Fatalf("the report does not add up: %+v", report)
		}
		checkInvariants(t, wl)
		checkRoundTrips(t, wl)
	})
}

// Seeds are plain text: gzip would hide the structure from the fuzzer.

func FuzzSWF(f *testing.F) {
	f.Add([]byte("; UnixStartTime: 1000000000\n; MaxJobs: 3\n" + swfLine("1 0 5 552.21 4 -1 10 4 60 100 1 2 3 4 5 6 0 1")))
	f.Add([]byte("; MusterColumns: id nodes cores gpus user\n" + "1 0 -1 1 2 -1 -1 2 -1 -1 -1 1 -1 -1 4 -1 -1 -1 x%20y 2 - 1 us1\n"))
	f.Add([]byte("1 1356996695 71 9 12 1 1024 12 1209600 91268055040 1 101 1 1 -1 1 1 1 {1129,1129} q_2w 1:ppn=12\n"))
	fuzz(f, SWF)
}

func FuzzSacct(f *testing.F) { fuzz(f, Sacct, "sample.sacct") }

func FuzzPBS(f *testing.F) {
	f.Add([]byte("00/00/0000 00:00:00;E;;Resource_List.select=ncpus=0A Resource_List.place=pack"))
	fuzz(f, PBS, "sample.pbs")
}

func FuzzCSV(f *testing.F) { fuzz(f, CSV, "sample.csv") }

func FuzzOpenb(f *testing.F) {
	f.Add([]byte("name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n" +
		"a,1500,1024,1,460,T4|V100,LS,Failed,100,200,110\nb,8000,2048,2,1000,,BE,Pending,120,220,\n"))
	fuzz(f, Openb)
}

func FuzzPhilly(f *testing.F) {
	f.Add([]byte("timestamp,duration,num_gpus\n0,,"))
	f.Add([]byte("timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,12,66.0,11cb48\n"))
	fuzz(f, Philly)
}

func FuzzSubmit(f *testing.F) { fuzz(f, Submit, "sample.submit") }
