package slurmopt

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"muster/internal/seeds"
	"muster/model"
)

// parseSubmit reads a line of `muster submit` as a shell hands it over.
func parseSubmit(line string) (*Options, error) {
	words, err := Words(line)
	if err != nil {
		return nil, err
	}
	argv := []string{Submit}
	for _, w := range words {
		argv = append(argv, w.Text)
	}
	return Parse(argv)
}

func constraint(text string) *model.Constraint {
	c, err := model.ParseConstraint(text)
	if err != nil {
		panic(err)
	}
	return c
}

func TestBatch(t *testing.T) {
	minute := time.Minute
	term := func(kind string, job uint64, task int64, delay time.Duration) Term {
		return Term{kind, job, task, delay}
	}
	for _, c := range []struct {
		line string
		want Batch
	}{
		{"", Batch{}},
		{"-o out-%j -e err -i in --open-mode=append -D /tmp", Batch{Output: "out-%j", Error: "err", Input: "in", Append: true, Directory: "/tmp"}},
		{"--open-mode=a --open-mode=t", Batch{}},
		{"--export=ALL", Batch{}},
		{"--export=NONE", Batch{Export: []string{"NONE"}}},
		{"--export=ALL,A=b", Batch{Export: []string{"ALL", "A=b"}}},
		{`--export='A="x,y",B'`, Batch{Export: []string{"A=x,y", "B"}}},
		{"-a 1-10:2%4", Batch{Array: &Array{Tasks: TasksOf([]uint32{1, 3, 5, 7, 9}), Limit: 4}}},
		{"--array=7,1-3,2", Batch{Array: &Array{Tasks: TasksOf([]uint32{1, 2, 3, 7})}}},
		{"-a 0%0", Batch{Array: &Array{Tasks: TasksOf([]uint32{0})}}},
		{"-d afterok:12:13,afterany:14", Batch{Dependency: &Dependency{Terms: []Term{
			term(AfterOK, 12, -1, 0), term(AfterOK, 13, -1, 0), term(AfterAny, 14, -1, 0)}}}},
		{"-d after:12+5?singleton", Batch{Dependency: &Dependency{Any: true, Terms: []Term{
			term(After, 12, -1, 5*minute), term(Singleton, 0, -1, 0)}}}},
		{"-d afternotok:12_3,aftercorr:4_*", Batch{Dependency: &Dependency{Terms: []Term{
			term(AfterNotOK, 12, 3, 0), term(AfterCorr, 4, -1, 0)}}}},
		{"-d 17", Batch{Dependency: &Dependency{Terms: []Term{term(AfterAny, 17, -1, 0)}}}},
		{"-b now+1hour -H --nice", Batch{Begin: Moment{Set: true, After: time.Hour}, Hold: true, Nice: 100}},
		{"--nice=-5 --deadline 2030-01-02", Batch{Nice: -5, Deadline: Moment{Set: true, Year: 2030, Month: 1, Day: 2}}},
		{"--comment='a b' --reservation=r", Batch{Comment: "a b", Reservation: "r"}},
		{"--signal=B:USR1@30", Batch{Signal: &Signal{Number: 10, Before: 30 * time.Second, Batch: true}}},
		{"--signal=SIGTERM", Batch{Signal: &Signal{Number: 15, Before: minute}}},
		{"-L a:2,b", Batch{Licenses: []License{{"a", 2}, {"b", 1}}}},
		{"-C a", Batch{Constraint: constraint("a")}},
		{"--constraint='[a|b]'", Batch{Constraint: constraint("[a|b]")}},
		{"--signal=2@0", Batch{Signal: &Signal{Number: 2}}},
	} {
		o, err := parseSubmit(c.line)
		if err != nil {
			t.Errorf("%s: %v", c.line, err)
			continue
		}
		if !reflect.DeepEqual(o.Batch, c.want) || len(o.Notes) > 0 {
			t.Errorf("%s\ngot  %+v, notes %q\nwant %+v", c.line, o.Batch, o.Notes, c.want)
		}
		checkSubmitFormat(t, o)
	}
	for line, want := range map[string]bool{"": false, "--requeue": true, "--requeue --no-requeue": false, "--no-requeue --requeue": true} {
		if o, err := parseSubmit(line); err != nil || o.Batch.Requeue != want {
			t.Errorf("%q: %+v, %v", line, o, err)
		}
	}
}

// TestSubmitOptions: the options of the command itself, and how a program differs
// from a script.
func TestSubmitOptions(t *testing.T) {
	for _, c := range []struct {
		line    string
		client  Client
		command []string
	}{
		{"-n2 job.sh -n 3", Client{}, []string{"job.sh", "-n", "3"}},
		{"-n2 -- a.out -n 3", Client{Program: true}, []string{"a.out", "-n", "3"}},
		{"--wrap 'date; id'", Client{Wrap: true}, []string{"sh", "-c", "date; id"}},
		{"--", Client{}, nil},
		{"-", Client{}, []string{"-"}},
		{"--pty -n1 bash -i", Client{PTY: true, Program: true}, []string{"bash", "-i"}},
		{"-WQ --parsable --test-only -v job", Client{Wait: true, Quiet: true, Parsable: true, TestOnly: true}, []string{"job"}},
		{"--head=h:7 --tls-dir d -h --json", Client{Head: "h:7", TLSDir: "d", Help: true, JSON: true}, nil},
	} {
		o, err := parseSubmit(c.line)
		if err != nil || o.Client != c.client || !slices.Equal(o.Command, c.command) {
			t.Errorf("%s: got %+v, %v", c.line, o, err)
			continue
		}
		checkSubmitFormat(t, o)
	}
	o, err := parseSubmit("--mail-type=END --mail-user=me -k job")
	want := []string{"--mail-type has no effect here", "--mail-user has no effect here", "--no-kill has no effect here"}
	if err != nil || !slices.Equal(o.Notes, want) {
		t.Errorf("got %+v, %v", o, err)
	}
	// A word of a simulated line stays a command.
	if o, err := ParseLine("submit -n 4"); err != nil || o.Tool != "" || !slices.Equal(o.Command, []string{"submit", "-n", "4"}) {
		t.Errorf("got %+v, %v", o, err)
	}
}

// TestParseCommand: the options of a command line that are sent to the head.
func TestParseCommand(t *testing.T) {
	argv := []string{Submit, "-WQn4", "-N", "2", "--gres", "gpu:1", "--nice", "--mail-type=END", "--head=h", "--wait", "--or=-n 64", "-H", "-J", "a b", "job.sh", "-n", "9"}
	want := []string{"--ntasks=4", "--nodes=2", "--gres=gpu:1", "--nice", "--or=-n 64", "--hold", "--job-name=a b"}
	all, got, err := ParseCommand(argv)
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("got %q, %v", got, err)
	}
	job, err := Parse(append([]string{Submit}, got...))
	if err != nil || !reflect.DeepEqual(all.Request, job.Request) || !reflect.DeepEqual(all.Batch, job.Batch) || all.Name != job.Name {
		t.Errorf("got %+v, %v\nwant %+v", job, err, all)
	}
}

func TestSubmitErrors(t *testing.T) {
	for line, want := range map[string]string{
		"-a 3-1":                       `--array: "3-1" runs backwards: write 1-3`,
		"-a 1:2":                       `--array: "1:2" is no task or range of tasks: write 1-10, 0-20:5 or 1,3,7`,
		"-a 1-3:0":                     `--array: "1-3:0" is no task or range of tasks: write 1-10, 0-20:5 or 1,3,7`,
		"-a ''":                        `--array: "" is no task or range of tasks: write 1-10, 0-20:5 or 1,3,7`,
		"-a 1%x":                       `--array: "1%x": behind % stands how many tasks run at a time, as in 1-10%4`,
		"-a 0-100000":                  `--array: "0-100000" has more than 100000 tasks: submit several arrays`,
		"-a 0-49999,0-50000":           `--array: "0-49999,0-50000" has more than 100000 tasks: submit several arrays`,
		"-a 4000001":                   `--array: "4000001": tasks have numbers up to 4000000`,
		"-d afterok":                   `--dependency: "" is no number of a job: write afterok:17 or, for a task of an array, afterok:17_3`,
		"-d afterok:0":                 `--dependency: "0" is no number of a job: write afterok:17 or, for a task of an array, afterok:17_3`,
		"-d afterok:5+3":               `--dependency: "5+3": only after:JOB+MINUTES waits for a while`,
		"-d after:5,after:6?after:7":   `--dependency: "after:5,after:6?after:7" mixes , and ?: either all of them are needed, or any`,
		"-d expand:5":                  `--dependency: "expand:5" is no dependency: write after:JOB, afterany:JOB, afterok:JOB, afternotok:JOB, aftercorr:JOB or singleton`,
		"-d singleton:5":               `--dependency: "singleton:5" is no dependency: write after:JOB, afterany:JOB, afterok:JOB, afternotok:JOB, aftercorr:JOB or singleton`,
		"-b soon":                      `--begin: "soon" is no time: write now+1hour, 16:30, tomorrow, 2026-11-30 or 2026-11-30T16:30`,
		"--signal=FOO":                 `--signal: "FOO" is no signal: write USR1, or a number from 1 to 64`,
		"--signal=1@99999":             `--signal: "1@99999": behind @ stand seconds, from 0 to 65535`,
		"--export=A,,B":                `--export: "" is no variable: write ALL, NONE, NAME or NAME=VALUE, separated by commas`,
		"--export=A,NONE":              `--export: NONE stands alone`,
		"--constraint=a&b|c":           `--constraint: "a&b|c": it has & and | side by side: say with parentheses what belongs together, as in a&(b|c)`,
		"-L 'a|b'":                     `--licenses: "a|b" is no licence: write NAME or NAME:COUNT, separated by commas`,
		"-L a:0":                       `--licenses: "a:0" is no licence: write NAME or NAME:COUNT, separated by commas`,
		"-L a,a:2":                     `--licenses: "a,a:2" names a twice`,
		"-C 'a*2'":                     `--constraint: "a*2": so many nodes of one kind and so many of another (*) are not supported: submit a job for each`,
		"-C 'a b'":                     `--constraint: "a b": "a b" is no feature: write letters, digits, and any of _ - . +`,
		"-C ''":                        `--constraint: "": "" is no feature: write letters, digits, and any of _ - . +`,
		"-C '(a'":                      `--constraint: "(a": a parenthesis is not closed`,
		"-C 'a)'":                      `--constraint: "a)": a parenthesis is closed that was not opened`,
		"-C '[a]|b'":                   `--constraint: "[a]|b": brackets stand around all of it, as in [a|b]`,
		"--run=5":                      `--run is for simulated jobs: give a time limit with -t`,
		"--dependencie=3":              `--dependencie is no option: did you mean --dependency?`,
		"--or='-d 5'":                  `--or: column 4: --dependency says nothing about a request: inside --or give -N, -n, -c, --gres, -t and their like`,
		"--wrap=date job.sh":           `"job.sh": --wrap has the command already, so there is none after the options`,
		"--open-mode=x":                `--open-mode: "x" is neither append nor truncate`,
		"--nice=x":                     `--nice: "x" is no whole number from -2147483645 to 2147483645`,
		"--frobnicate":                 `--frobnicate is no option that is known here: see muster submit --help`,
		"--clusters=a":                 `--clusters is not supported: there is one cluster`,
		"--time-min=4":                 `--time-min is not supported: give -t alone`,
		"-d " + tooManyTerms(MaxTerms): fmt.Sprintf("--dependency: it names more than %d jobs", MaxTerms),
	} {
		_, err := parseSubmit(line)
		if err == nil || err.Error() != want {
			t.Errorf("%.80s\ngot  %v\nwant %s", line, err, want)
		}
	}
	// Simulated lines refuse them as before.
	for _, line := range []string{"-a 1", "sbatch -d 5", "-b now", "-H", "--nice", "sbatch --test-only"} {
		if _, err := ParseLine(line); err == nil {
			t.Errorf("a simulated %s was taken", line)
		}
	}
}

func tooManyTerms(n int) string {
	text := "after"
	for id := range n + 1 {
		text += fmt.Sprint(":", id+1)
	}
	return text
}

func TestSubmitScripts(t *testing.T) {
	script := `#!/bin/bash
#MUSTER --mem=2G -a 1-3
#SBATCH --mem=1G -J slurm -d afterok:5
#SBATCH -o out --mail-type=ALL
echo
`
	o, err := ParseScript(script, []string{Submit, "-a", "7", "job.sh", "x"})
	if err != nil {
		t.Fatal(err)
	}
	if o.Tool != Submit || o.Request.Memory != 2<<30 || o.Name != "slurm" || o.Batch.Output != "out" || o.Batch.Array.Tasks.String() != "7" ||
		o.Batch.Dependency.String() != "afterok:5" || !slices.Equal(o.Command, []string{"job.sh", "x"}) {
		t.Errorf("got %+v", o)
	}
	// To sbatch #MUSTER is a comment.
	if o, err := ParseScript("#!x\n#MUSTER -n 0\n", nil); err != nil || o.Request.Cores != 1 {
		t.Errorf("got %+v, %v", o, err)
	}
	for text, want := range map[string]string{
		"#!x\n#MUSTER -N1 run\n":   `line 2, column 13: "run" is no option: a line that starts with #MUSTER has options alone`,
		"#!x\n#SBATCH -N1 run\n":   `line 2, column 13: "run" is no option: a line that starts with #SBATCH has options alone`,
		"#!x\n#MUSTER --head=x\n":  `line 2, column 9: --head is for the command line, not for a script`,
		"#!x\n\n#MUSTER -a 'x\n":   `line 3, column 12: a quote opens here and does not close`,
		"#!x\n#MUSTER -d after:\n": `line 2, column 12: --dependency: "" is no number of a job: write after:17 or, for a task of an array, after:17_3`,
	} {
		_, err := ParseScript(text, []string{Submit})
		if err == nil || err.Error() != want {
			t.Errorf("%q\ngot  %v\nwant %s", text, err, want)
		}
	}
}

func TestMoments(t *testing.T) {
	zone := time.FixedZone("X", 2*3600)
	now := time.Date(2027, 5, 10, 14, 30, 0, 0, zone)
	at := func(year, month, day, hour, minute, second int) time.Time {
		return time.Date(year, time.Month(month), day, hour, minute, second, 0, zone)
	}
	for text, want := range map[string]time.Time{
		"now":                  now,
		"now+60":               now.Add(time.Minute),
		"now+1hour":            now.Add(time.Hour),
		"now+2min":             now.Add(2 * time.Minute),
		"NOW+3 weeks":          now.Add(21 * 24 * time.Hour),
		"now+1d":               now.Add(24 * time.Hour),
		"16:00":                at(2027, 5, 10, 16, 0, 0),
		"14:30":                now,
		"9:05:07":              at(2027, 5, 11, 9, 5, 7),
		"4:15pm":               at(2027, 5, 10, 16, 15, 0),
		"12:00 AM":             at(2027, 5, 11, 0, 0, 0),
		"midnight":             at(2027, 5, 11, 0, 0, 0),
		"teatime":              at(2027, 5, 10, 16, 0, 0),
		"noon":                 at(2027, 5, 11, 12, 0, 0),
		"today":                at(2027, 5, 10, 0, 0, 0),
		"tomorrow":             at(2027, 5, 11, 0, 0, 0),
		"tomorrow 8:00":        at(2027, 5, 11, 8, 0, 0),
		"2026-01-02":           at(2026, 1, 2, 0, 0, 0),
		"2028-02-29T16:30":     at(2028, 2, 29, 16, 30, 0),
		"2028-02-29 16:30:01":  at(2028, 2, 29, 16, 30, 1),
		"0601":                 at(2027, 6, 1, 0, 0, 0),
		"0401":                 at(2028, 4, 1, 0, 0, 0),
		"0510":                 at(2027, 5, 10, 0, 0, 0),
		"0510T10:00":           at(2028, 5, 10, 10, 0, 0),
		"02/29":                at(2028, 2, 29, 0, 0, 0),
		"06/01/29":             at(2029, 6, 1, 0, 0, 0),
		"06.01.29":             at(2029, 6, 1, 0, 0, 0),
		"060129":               at(2029, 6, 1, 0, 0, 0),
		"06/01/2029T1:02:03pm": at(2029, 6, 1, 13, 2, 3),
	} {
		m, err := ParseMoment(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := m.Time(now); !got.Equal(want) {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
		if back, err := ParseMoment(m.String()); err != nil || back != m {
			t.Errorf("%s: written as %s, read as %+v, %v", text, m.String(), back, err)
		}
	}
	for _, text := range []string{"", "no", "now-5", "now+", "now+5x", "now+99999999999weeks", "24:00", "13:00pm", "0:30am", "1:2:3:4", "2027-2-30", "2027-02-29", "13/01",
		"99", "0230", "2027-01", "1969-01-01", "tomorrow ", "2027-01-01T", "2027-01-01Tx", "001:00", "1/2/3"} {
		if m, err := ParseMoment(text); err == nil && text != "tomorrow " {
			t.Errorf("%q was read as %+v", text, m)
		}
	}
	if none := (&Moment{}).Time(now); !none.IsZero() {
		t.Errorf("no moment is %s", none)
	}
}

// TestSubmitTable: Submit has every option of sbatch, spelt once.
func TestSubmitTable(t *testing.T) {
	long, short := map[string]bool{}, map[byte]bool{}
	for i := range submitTable {
		o := &submitTable[i]
		if long[o.long] || (o.short != 0 && short[o.short]) {
			t.Errorf("--%s or -%c is there twice", o.long, o.short)
		}
		long[o.long], short[o.short] = true, true
	}
	for i := range table {
		if o := &table[i]; o.of("sbatch") {
			s, err := findLong(Submit, o.long)
			if err != nil || s.arg != o.arg || s.short != o.short {
				t.Errorf("--%s: got %+v, %v", o.long, s, err)
			}
		}
	}
}

func checkSubmitFormat(t interface {
	Helper()
	Fatalf(string, ...any)
}, o *Options) {
	t.Helper()
	line, err := o.Format()
	if err != nil {
		t.Fatalf("%+v: %v", o, err)
	}
	back, err := parseSubmit(strings.TrimPrefix(line, Submit))
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	want := *o
	want.Notes = nil
	if !reflect.DeepEqual(*back, want) {
		t.Fatalf("%s\ngot  %+v\nwant %+v", line, *back, want)
	}
	if again, err := back.Format(); err != nil || again != line {
		t.Fatalf("got %s, %v, then %s", line, err, again)
	}
}

func TestSubmitFormatRoundTrips(t *testing.T) {
	text := rapid.SampledFrom([]string{"x", "a b", "it's", `"q"`, "-n", "%j"})
	pieces := map[string]*rapid.Generator[string]{
		"-N": rapid.SampledFrom([]string{"1", "3"}), "-n": rapid.SampledFrom([]string{"4", "7"}), "--gres": rapid.SampledFrom([]string{"gpu:2:5G", "rgpu:4:1G"}),
		"-o": text, "-e": text, "-i": text, "-D": text, "--comment": text, "--reservation": text, "--head": text, "--tls-dir": text,
		"--export":    rapid.SampledFrom([]string{"ALL", "NONE", "A,B=c", `ALL,A="x,'y"`, "A="}),
		"-a":          rapid.SampledFrom([]string{"1-10:2%4", "5,4,1-2", "0"}),
		"-d":          rapid.SampledFrom([]string{"afterok:1:2,after:3+7", "singleton", "afterany:3_4?aftercorr:5"}),
		"-b":          rapid.SampledFrom([]string{"now", "now+2hours", "16:00", "tomorrow", "tomorrow 7:00", "0301", "2029-01-01T4:05"}),
		"--deadline":  rapid.SampledFrom([]string{"now+1week", "2029-01-01"}),
		"--signal":    rapid.SampledFrom([]string{"USR1", "B:9@5"}),
		"--open-mode": rapid.SampledFrom([]string{"append", "truncate"}),
		"--or":        rapid.Just("-n64 -t 2:00:00"),
		"--gpu-class": rapid.SampledFrom([]string{"batch", "latency"}),
	}
	names := slices.Sorted(maps.Keys(pieces))
	seeds.Check(t, func(t *rapid.T) {
		argv := []string{Submit, "--gres=gpu:1:1G", "--gpu-beyond=" + rapid.SampledFrom([]string{"0", "all", "3G", "5"}).Draw(t, "beyond")}
		for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, 9, rapid.ID[string]).Draw(t, "options") {
			argv = append(argv, name, pieces[name].Draw(t, name))
		}
		for _, name := range []string{"-H", "--no-requeue", "--wait", "--parsable", "--nice=7"} {
			if rapid.Bool().Draw(t, name) {
				argv = append(argv, name)
			}
		}
		argv = append(argv, rapid.SampledFrom([][]string{nil, {"--", "-a", "b c"}, {"job.sh", "-n"}, {"--wrap=date; id"}}).Draw(t, "command")...)
		o, err := Parse(argv)
		if err != nil {
			t.Fatalf("%q: %v", argv, err)
		}
		checkSubmitFormat(t, o)
	})
}

func FuzzParseSubmit(f *testing.F) {
	for _, line := range []string{
		"-n2 job.sh -n 3", "-- a.out", "-a 1-10:2%4 -d afterok:12:13,afterany:14?singleton", "-d after:5+3?singleton -H --nice",
		`--export='A="x,y",B' -b now+1hour --deadline=2030-01-02T4:05pm`, "--signal=B:USR1@60 --no-requeue --comment 'a b'",
		"-o out-%A_%a --open-mode=append -D /x --mail-type=END --wait --parsable --head h:1", "-b 0229 -b teatime --wrap 'date; id'",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		o, err := parseSubmit(line)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Reason == "" {
				t.Fatalf("%q: %#v", line, err)
			}
			return
		}
		if o.Tool != Submit {
			t.Fatalf("%q: %+v", line, o)
		}
		checkSubmitFormat(t, o)
	})
}

func FuzzParseSubmitScript(f *testing.F) {
	f.Add("#!/bin/sh\n#SBATCH -N2 -a 1-3 # x\n#MUSTER --job-name='a b' -d singleton\necho\n#MUSTER -n3\n")
	f.Fuzz(func(t *testing.T, script string) {
		o, err := ParseScript(script, []string{Submit, "-n2"})
		if err == nil {
			checkSubmitFormat(t, o)
		}
	})
}

// What is private in a submission is not in the options that everybody may see.
func TestPublic(t *testing.T) {
	o, err := Parse([]string{
		Submit, "-n2", "--gres=gpu:1", "--time=5", "-J", "name", "-o", "private", "-e", "private", "-i", "private", "-D", "private", "--open-mode=append",
		"--export=A=private", "--comment=private", "--array=1-3", "--dependency=afterok:5", "--begin=now+60", "--deadline=now+600", "--hold",
		"--nice=3", "--requeue", "--reservation=r", "--signal=15@60", "--wait", "--", "private", "--token=private",
	})
	if err != nil {
		t.Fatal(err)
	}
	line, err := o.Public().Format()
	want := "submit -n 2 -c 1 --gres=gpu:1 --time=00:05:00 --job-name=name --array=1-3 --dependency=afterok:5 --begin=now+60 --deadline=now+600 --hold --nice=3 --requeue --reservation=r --signal=15@60"
	if err != nil || line != want {
		t.Errorf("%v\n%s, not\n%s", err, line, want)
	}
	if again, err := ParseSubmitted(strings.TrimPrefix(line, Submit)); err != nil || !reflect.DeepEqual(again.Batch, o.Public().Batch) {
		t.Errorf("read again it is %+v, %v", again, err)
	}
}

// What is said again and again costs what it costs once.
func TestRepeatedOptions(t *testing.T) {
	o, err := Parse(append([]string{Submit, "-d", "after" + strings.Repeat(":1", 50_000)}, slices.Repeat([]string{"--mail-type=ALL"}, 1000)...))
	if err != nil || len(o.Batch.Dependency.Terms) != 1 || len(o.Notes) != 1 {
		t.Errorf("%d terms, %d notes, %v", len(o.Batch.Dependency.Terms), len(o.Notes), err)
	}
	if _, err := ParseScript("#!/bin/sh\n"+strings.Repeat("#SBATCH --mail-type=ALL\n", 5000), []string{Submit}); err == nil || !strings.Contains(err.Error(), "65536 bytes") {
		t.Errorf("a long script: %v", err)
	}
}
