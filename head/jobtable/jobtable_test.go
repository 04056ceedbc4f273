package jobtable_test

import (
	"strings"
	"testing"

	"muster/head/jobtable"
	"muster/model"
	"muster/wire/api"
)

func jobs() []api.Job {
	task := func(n uint32) *uint32 { return &n }
	return []api.Job{
		{ID: 17, Name: "train|a\x1b[2J", User: "ann", State: api.Running, Elapsed: 3723, NumNodes: 2, Nodes: []string{"n1", "n2"}, Cores: 4, Memory: 8 << 30},
		{ID: 19, ArrayJob: 18, ArrayTask: task(1), Name: "sweep", User: "bob", State: api.Pending, Reason: "Resources", NumNodes: 1},
		{ID: 20, ArrayJob: 18, ArrayTask: task(2), Name: "sweep", User: "bob", State: api.Pending, Reason: "Resources", NumNodes: 1},
	}
}

func write(t *testing.T, f *jobtable.Format, err error, everyTask bool, room int) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := f.Write(&b, jobtable.Lines(jobs(), everyTask), true, room); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Waiting tasks of an array are one line, unless every task is wanted; what a user wrote cannot steer the terminal.
func TestSqueue(t *testing.T) {
	f, err := jobtable.ParseFields("jobid,name,statecompact,timeused,reasonlist")
	want := "JOBID     NAME         ST  TIME     NODELIST(REASON)\n" +
		"17        train|a\uFFFD[2J  R   1:02:03  n[1-2]\n" +
		"18_[1-2]  sweep        PD  0:00     (Resources)\n"
	if got := write(t, f, err, false, 0); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got := write(t, f, err, true, 0); strings.Count(got, "\n") != 4 || !strings.Contains(got, "18_2 ") {
		t.Errorf("every task:\n%s", got)
	}
	f, err = jobtable.ParseFormat("%.6i|%3j %T")
	if got, want := write(t, f, err, true, 0), " JOBID|NAM STATE\n    17|tra RUNNING\n  18_1|swe PENDING\n  18_2|swe PENDING\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestSacct(t *testing.T) {
	s, err := jobtable.ParseSacct("JobID,JobName%5,ReqMem,AllocTRES")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := s.WriteParsable(&b, jobs()[:1], true); err != nil {
		t.Fatal(err)
	}
	if want := "JobID|JobName|ReqMem|AllocTRES\n17|train_a\x1b[2J|8G|\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
	if row := s.Table(jobs()[:1]).Rows[0]; row[1] != "trai…" {
		t.Errorf("got %q", row)
	}
}

func TestWrongFormats(t *testing.T) {
	_, letter := jobtable.ParseFormat("%!")
	_, width := jobtable.ParseFields("name:x")
	_, field := jobtable.ParseFields("jobidd")
	_, sacct := jobtable.ParseSacct("Jobname%0")
	_, state := jobtable.ParseStates("RUNING")
	for want, err := range map[string]error{"not known here": letter, "a width from 1 to 999, as in": width, "did you mean jobid?": field, "behind % stands": sacct, "did you mean RUNNING?": state} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Of a job that was moved it is shown where it was.
func TestWhereAJobWas(t *testing.T) {
	var out strings.Builder
	j := api.Job{ID: 1, State: api.Running, Nodes: []string{"n3"}, Before: []string{"n1", "n2"}, Parts: []api.Part{{Node: "n3", Cores: 1}}}
	j.Preempted = []api.Preemption{{By: "4", ByUser: "bob", How: "requeue", Reason: "it makes way for job 4: class high may stop class low", Attempt: 2, Nodes: []string{"n2"}}}
	want := ", attempt 2 on n2 (requeue): it makes way for job 4: class high may stop class low, of user bob\n"
	if err := jobtable.WriteJob(&out, &j); err != nil || !strings.Contains(out.String(), "before on  n1, n2\n") || !strings.Contains(out.String(), want) {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// How busy the GPUs of an ended job were stands beside what was measured, and of one that moved it is not known.
func TestMeasured(t *testing.T) {
	j := api.Job{State: api.Completed, Elapsed: 100, GPUs: 2, Measured: &model.Measured{GPU: 50}}
	for _, c := range []struct {
		change func()
		want   string
	}{
		{func() {}, "0:50 on GPUs (25 % of the time) in 0 kernels"},
		{func() { j.Before = []string{"n1"} }, "0:50 on GPUs in 0 kernels"},
		{func() { j.Before, j.State = nil, api.Running }, "0:50 on GPUs in 0 kernels"},
	} {
		c.change()
		var b strings.Builder
		if err := jobtable.WriteJob(&b, &j); err != nil || !strings.Contains(b.String(), c.want) {
			t.Errorf("%v, %s is not in\n%s", err, c.want, b.String())
		}
	}
}
