package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"

	"muster/slurm"
	"muster/slurm/release"
)

// talk is a slurmrestd that gives prepared answers, and records the requests.
type talk struct {
	answers map[string]string // by path
	status  int
	asked   []string
}

func (k *talk) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	k.asked = append(k.asked, r.Method+" "+r.URL.String()+" "+string(body))
	if r.Header.Get("X-SLURM-USER-TOKEN") == "old" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if k.status != 0 {
		w.WriteHeader(k.status)
	}
	io.WriteString(w, k.answers[r.URL.Path])
}

// client is a client of a fake Slurm of some version.
func client(t *testing.T, version string, k *talk) (*Engine, error) {
	server := httptest.NewServer(k)
	t.Cleanup(server.Close)
	return New(context.Background(), Options{
		Address: server.URL, User: "root", Token: func(context.Context) (string, error) { return "token", nil },
		Command: func(ctx context.Context, name string, args ...string) *exec.Cmd {
			return exec.CommandContext(ctx, "printf", "SelectTypeParameters = CR_CORE_MEMORY\nSLURM_VERSION = "+version+"\n")
		},
	})
}

func mustClient(t *testing.T, version string, k *talk) *Engine {
	t.Helper()
	e, err := client(t, version, k)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// On a machine without Slurm's commands the error says so.
func TestNoScontrol(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := New(t.Context(), Options{}); err == nil || !strings.Contains(err.Error(), "scontrol is not in PATH: run this where Slurm's commands are") {
		t.Errorf("got %v", err)
	}
}

func TestUnknownReleaseIsRefused(t *testing.T) {
	if _, err := client(t, "25.11.2", &talk{}); err == nil || !strings.Contains(err.Error(), "Slurm 25.11 is not known here") {
		t.Errorf("got %v", err)
	}
	if _, err := client(t, "", &talk{}); err == nil || !strings.Contains(err.Error(), "does not tell Slurm's version") {
		t.Errorf("got %v", err)
	}
}

// A warning is a failure of which it is unknown how much was done; an error is a refusal.
func TestAnswersToPlacements(t *testing.T) {
	place := slurm.Place{Job: slurm.Ref{ID: 17}, Nodes: []string{"n2", "n5"}, CPUsPerNode: 2, Comment: "muster:req"}
	for _, c := range []struct {
		version, answer string
		unknown         bool
		want, asked     string
	}{
		{"26.05.5", `{"errors":[],"warnings":[]}`, false, "", `{"admin_comment":"muster:req","hold":false,"minimum_cpus_per_node":2,"nodes":"2","required_nodes":["n2","n5"]}`},
		{"22.05.8", `{"errors":[]}`, false, "", `{"comment":"muster:req","hold":false,"minimum_cpus_per_node":2,"nodelist":"n2,n5","nodes":"2"}`},
		{"24.11.5", `{"errors":[],"warnings":[{"description":"Ignoring unknown field \"nodelist\""}]}`, true, "warns, which counts as a refusal", ""},
		{"24.11.5", `{"errors":[{"description":"Invalid node name specified","error_number":2018}]}`, false, "Invalid node name specified (2018)", ""},
		{"24.11.5", `{"errors":[{"error":"Unable to contact slurm controller (connect failure)","error_number":1900}]}`, true, "Unable to contact", ""},
		{"24.11.5", ``, true, "the answer is no document", ""},
	} {
		k := &talk{answers: map[string]string{"/slurm/v0.0.42/job/17": c.answer, "/slurm/v0.0.38/job/17": c.answer}}
		err := mustClient(t, c.version, k).Place(context.Background(), place)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrUnknown) != c.unknown {
			t.Errorf("%s %s: got %v", c.version, c.answer, err)
		}
		if c.asked != "" && !strings.HasSuffix(k.asked[0], " "+c.asked) {
			t.Errorf("%s: asked %s", c.version, k.asked[0])
		}
	}
}

func TestTokenIsRenewed(t *testing.T) {
	k := &talk{answers: map[string]string{"/slurm/v0.0.42/job/17": `{}`}}
	e := mustClient(t, "26.05.5", k)
	tokens := []string{"old", "new"}
	e.o.Token = func(context.Context) (string, error) {
		next := tokens[0]
		tokens = tokens[1:]
		return next, nil
	}
	if err := e.Comment(context.Background(), slurm.Ref{ID: 17}, "x"); err != nil || len(k.asked) != 2 {
		t.Errorf("%v, asked %v", err, k.asked)
	}
}

func TestNobodyAnswers(t *testing.T) {
	e := mustClient(t, "26.05.5", &talk{})
	e.o.Address = "http://127.0.0.1:1"
	err := e.Place(context.Background(), slurm.Place{Job: slurm.Ref{ID: 17}, Nodes: []string{"n1"}})
	if err == nil || errors.Is(err, ErrUnknown) {
		t.Errorf("a request that reached nobody was not done: %v", err)
	}
}

const newJob = `{"jobs":[{"job_id":7,"name":"a","user_name":"ann","partition":"main","job_state":["RUNNING"],"priority":{"set":true,"infinite":false,"number":5},
"restart_cnt":1,"time_limit":{"set":true,"infinite":false,"number":5},"node_count":{"set":true,"infinite":false,"number":2},"max_nodes":{"set":false,"infinite":true,"number":0},"cpus":{"set":true,"infinite":false,"number":4},
"memory_per_node":{"set":true,"infinite":false,"number":100},"shared":["none"],"nodes":"n[2,5]","gres_detail":["gpu:a100:2(IDX:0-1),rgpu:1(CNT:1)","gpu:1(IDX:3)"],
"job_resources":{"nodes":{"allocation":[{"name":"n2","cpus":{"count":3},"memory":{"allocated":10}},{"name":"n5","cpus":{"count":1},"memory":{"allocated":10}}]}}}],
"last_update":{"set":true,"infinite":false,"number":99},"errors":[],"warnings":[]}`

const oldJob = `{"jobs":[{"job_id":7,"name":"a","user_name":"ann","partition":"main","job_state":"RUNNING","priority":5,
"restart_cnt":1,"time_limit":5,"node_count":2,"max_nodes":4294967294,"cpus":4,
"memory_per_node":100,"shared":"none","nodes":"n[2,5]","gres_detail":["gpu:a100:2(IDX:0-1),rgpu:1(CNT:1)","gpu:1(IDX:3)"],
"job_resources":{"nodes":"n[2,5]","allocated_nodes":[{"nodename":"n2","memory_allocated":10,"sockets":{"0":{"cores":{"0":"allocated","1":"allocated"}},"1":{"cores":{"0":"allocated"}}}},
{"nodename":"n5","memory_allocated":10,"sockets":{"0":{"cores":{"0":"allocated"}}}}]}}],"errors":[]}`

// Both encodings of a job mean the same.
func TestJobsAreRead(t *testing.T) {
	want := slurm.Job{ID: 7, Name: "a", User: "ann", Partition: "main", State: "RUNNING", Restarts: 1, TimeLimit: 5 * time.Minute, MinNodes: 2, CPUs: 4,
		MemoryPerNode: 100 << 20, Exclusive: true, Nodes: "n[2,5]",
		Uses: []slurm.Use{{Node: "n2", CPUs: 3, Memory: 10 << 20, GPUs: 3, Count: 2}, {Node: "n5", CPUs: 1, Memory: 10 << 20, GPUs: 8, Count: 1}}}
	for version, answer := range map[string]string{"26.05.5": newJob, "22.05.8": oldJob} {
		e := mustClient(t, version, &talk{answers: map[string]string{"/slurm/v0.0.42/jobs": answer, "/slurm/v0.0.38/jobs": answer}})
		l, err := e.Jobs(context.Background(), 0, map[string]int{"n2": 1})
		if err != nil || len(l.Jobs) != 1 || !reflect.DeepEqual(l.Jobs[0], want) {
			t.Errorf("%s: %v\n got %+v\nwant %+v", version, err, l.Jobs, want)
		}
	}
}

// An empty list counts only if Slurm says so: it would mean that all jobs have ended.
func TestEmptyListings(t *testing.T) {
	for _, c := range []struct {
		answer string
		same   bool
		fails  bool
	}{
		{`{"jobs":[],"warnings":[{"description":"Zero jobs to dump"}]}`, false, false},
		{`{"jobs":[],"errors":[],"warnings":[]}`, false, false},
		{`{"jobs":[],"warnings":[{"description":"No job changes since update_time[5]=x"}]}`, true, false},
		{`{"jobs":[],"warnings":[{"description":"something else"}]}`, false, true},
		{`{"jobs":[],"errors":[{"description":"Unable to query jobs","error_number":104}]}`, false, true},
		{``, false, true},
		{`{"jobs":{}}`, false, true},
	} {
		e := mustClient(t, "26.05.5", &talk{answers: map[string]string{"/slurm/v0.0.42/jobs": c.answer}})
		l, err := e.Jobs(context.Background(), 5, nil)
		if (err != nil) != c.fails || l.Same != c.same || len(l.Jobs) != 0 {
			t.Errorf("%s: %+v, %v", c.answer, l, err)
		}
	}
}

// FuzzJobs: whatever slurmrestd sends, parsing it terminates.
func FuzzJobs(f *testing.F) {
	f.Add(newJob)
	f.Add(oldJob)
	f.Fuzz(func(t *testing.T, text string) {
		var doc struct{ Jobs []jobDocument }
		if json.Unmarshal([]byte(text), &doc) != nil {
			return
		}
		for i := range doc.Jobs {
			j := doc.Jobs[i].job(nil)
			if j.CPUs < 0 || j.MinNodes < 0 || j.TimeLimit < 0 || j.MemoryPerNode < 0 {
				t.Errorf("%+v", j)
			}
		}
	})
}

func TestAllReleasesHaveWords(t *testing.T) {
	for _, r := range release.All() {
		if r.Words.NodeList == "" || !r.Serves(r.API) {
			t.Error(fmt.Sprint(r.Name, " cannot place"))
		}
	}
}

// Parsing costs the same for each job.
func BenchmarkRead(b *testing.B) {
	var one struct{ Jobs []json.RawMessage }
	if err := json.Unmarshal([]byte(newJob), &one); err != nil {
		b.Fatal(err)
	}
	for _, n := range []int{500, 2000} {
		text := []byte(`{"jobs":[` + strings.Repeat(string(one.Jobs[0])+",", n-1) + string(one.Jobs[0]) + `]}`)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for range b.N {
				var doc struct{ Jobs []jobDocument }
				if err := json.Unmarshal(text, &doc); err != nil || len(doc.Jobs) != n {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/job")
		})
	}
}
