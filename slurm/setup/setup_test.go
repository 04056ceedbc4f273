package setup_test

import (
	"bytes"
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/need"
	"muster/slurm/emulate"
	"muster/slurm/emulate/emulatetest"
	"muster/slurm/release"
	"muster/slurm/setup"
	"muster/slurm/spank"
)

// snapshot is everything in a folder, with modes.
func snapshot(t *testing.T, folder string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			all[path] = "a folder"
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		all[path] = info.Mode().String() + "\n" + string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func same(t *testing.T, when string, got, want map[string]string) {
	t.Helper()
	for path, text := range want {
		if got[path] != text {
			t.Errorf("%s: %s is\n%q\nand was\n%q", when, path, got[path], text)
		}
	}
	for path := range got {
		if _, ok := want[path]; !ok {
			t.Errorf("%s: %s is new", when, path)
		}
	}
}

// builtPlugin is a file that setup takes for the plug-in of this source.
func builtPlugin(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), spank.Library)
	if err := os.WriteFile(path, []byte(spank.Stamp(release.Newest())), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func write(t *testing.T, folder string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
}

func apply(t *testing.T, make func(setup.Options) (*setup.Plan, error), o setup.Options) *setup.Plan {
	t.Helper()
	plan, err := make(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	return plan
}

// Whatever files exist: after setup a second one finds nothing to do, what people wrote is still
// there, and after --remove every byte is as it was.
func TestSetupIsUndone(t *testing.T) {
	const user = "SlurmUser=root\n"
	for name, files := range map[string]map[string]string{
		"nothing":    {"slurm.conf": user},
		"empty":      {"slurm.conf": user, "plugstack.conf": "", "job_submit.lua": "", "gres.conf": ""},
		"no newline": {"slurm.conf": "ClusterName=a", "plugstack.conf": "optional x.so", "job_submit.lua": "function slurm_job_submit() return 0 end"},
		"return": {"slurm.conf": "JobSubmitPlugins=lua\nLicenses=rgpu:4,matlab:1\nInclude more.conf\n", "more.conf": "AuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key=/nonexistent\n",
			"plugstack.conf": "include plugstack.conf.d/*\n", "job_submit.lua": "function slurm_job_submit() return 0 end\nreturn slurm.SUCCESS\n-- the end\n"},
		"return without newline": {"slurm.conf": "\n\n", "job_submit.lua": "x = 1\nreturn slurm.SUCCESS"},
		"gres":                   {"slurm.conf": "GresTypes=gpu,rgpu\nNodeName=n[1-4] Gres=rgpu:8 CPUs=4\n", "gres.conf": "Name=gpu File=/dev/nvidia0\n"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, files)
			units := filepath.Join(dir, "units")
			if err := os.Mkdir(units, 0o755); err != nil {
				t.Fatal(err)
			}
			before := snapshot(t, dir)
			o := setup.Options{Conf: dir, Release: release.Newest(), Library: builtPlugin(t), Muster: "/usr/bin/muster", GPUs: 4, REST: true, Units: units}
			plan := apply(t, setup.Make, o)
			if len(plan.Changes) == 0 {
				t.Fatal("nothing was done")
			}
			for file, text := range files {
				if now, err := os.ReadFile(filepath.Join(dir, file)); err != nil || !containsLines(string(now), text) {
					t.Errorf("%s lost lines of people: %s, %v", file, now, err)
				}
			}
			if again, err := setup.Make(o); err != nil || len(again.Changes) != 0 {
				t.Errorf("a second setup: %v", err)
				for _, c := range again.Changes {
					t.Error(c.Diff())
				}
			}
			apply(t, setup.Unmake, o)
			same(t, "after --remove", snapshot(t, dir), before)
			if again, err := setup.Unmake(o); err != nil || len(again.Changes) != 0 {
				t.Errorf("a second --remove: %v, %v", again, err)
			}
		})
	}
}

func containsLines(text, lines string) bool {
	for line := range strings.Lines(lines) {
		if !strings.Contains(text, strings.TrimSuffix(line, "\n")) {
			return false
		}
	}
	return true
}

// What people wrote is not changed; they are told what to write.
func TestPeoplesWordsStay(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"slurm.conf": "# ours\nJobSubmitPlugins=all_partitions\nLicenses=matlab:2\n"})
	plan, err := setup.Make(setup.Options{Conf: dir, Release: release.Newest(), Muster: "/usr/bin/muster", GPUs: 4})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		dir + "/slurm.conf:2: write JobSubmitPlugins=all_partitions,lua, so that slurmctld runs job_submit.lua",
		dir + "/slurm.conf:3: write Licenses=matlab:2,rgpu:4, so that jobs take a licence for each whole GPU",
	}
	if strings.Join(plan.Left, "\n") != strings.Join(want, "\n") {
		t.Errorf("left to people: %q", plan.Left)
	}
	write(t, dir, map[string]string{"muster.lua": "-- mine\n"})
	if _, err := setup.Make(setup.Options{Conf: dir, Release: release.Newest()}); err == nil || !strings.Contains(err.Error(), "is not Muster's") {
		t.Errorf("a muster.lua of somebody else: %v", err)
	}
	write(t, dir, map[string]string{"muster.lua": "-- Muster's part of job_submit.lua", "plugstack.conf": "# BEGIN muster: written by muster slurm setup, which takes it out with --remove\n"})
	if _, err := setup.Make(setup.Options{Conf: dir, Release: release.Newest()}); err == nil || !strings.Contains(err.Error(), "has no end") {
		t.Errorf("a block without an end: %v", err)
	}
}

// A file that changes between the plan and its application is left alone.
func TestPlanIsNotStale(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"slurm.conf": "ClusterName=a\n"})
	o := setup.Options{Conf: dir, Release: release.Newest(), Muster: "/usr/bin/muster", Library: builtPlugin(t)}
	plan, err := setup.Make(o)
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, map[string]string{"slurm.conf": "ClusterName=b\n"})
	if err := plan.Apply(t.Context()); err == nil || !strings.Contains(err.Error(), "changed by somebody else") {
		t.Errorf("got %v", err)
	}
	if text, _ := os.ReadFile(filepath.Join(dir, "slurm.conf")); string(text) != "ClusterName=b\n" {
		t.Errorf("slurm.conf is %q", text)
	}
}

func TestDiff(t *testing.T) {
	c := setup.Change{Path: "/etc/slurm/plugstack.conf", What: "an example", Before: []byte("a\nb\nc\nd\n"), After: []byte("a\nb\nc\nd\nnew\n")}
	want := "# an example\n--- /etc/slurm/plugstack.conf\n+++ /etc/slurm/plugstack.conf\n@@ -2,3 +2,4 @@\n b\n c\n d\n+new\n"
	if got := c.Diff(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	c = setup.Change{Path: "x", What: "new", After: []byte("a\n")}
	if got, want := c.Diff(), "# new\n--- /dev/null\n+++ x\n@@ -0,0 +1,1 @@\n+a\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// FuzzSetup: a block can be added to any text and removed without a trace.
func FuzzSetup(f *testing.F) {
	for _, text := range []string{"", "a", "a\n", "return x", "a\nreturn x\n-- c\n", "\r\n", "# END muster\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		dir := t.TempDir()
		write(t, dir, map[string]string{"slurm.conf": "", "job_submit.lua": text, "plugstack.conf": text})
		before := snapshot(t, dir)
		o := setup.Options{Conf: dir, Release: release.Newest(), Muster: "/usr/bin/muster", Library: builtPlugin(t)}
		plan, err := setup.Make(o)
		if err != nil {
			return
		}
		if err := plan.Apply(t.Context()); err != nil {
			t.Fatal(err)
		}
		apply(t, setup.Unmake, o)
		same(t, "after --remove", snapshot(t, dir), before)
	})
}

// A real Slurm of each release is set up, works, is found healthy, and is as before after --remove.
func TestRealSlurm(t *testing.T) {
	for _, r := range release.All() {
		t.Run(r.Name, func(t *testing.T) {
			emulatetest.Need(t, r)
			t.Parallel()
			c := emulatetest.Start(t, emulate.Options{Release: r, Nodes: 1, NoREST: true})
			if _, err := user.Lookup(c.User); err != nil {
				need.Missing(t, need.Mount, "root who may not mount runs the cluster in a user namespace, whose users are not this machine's:", err)
			}
			run := func(name string, args ...string) (string, error) {
				if name == "muster" {
					return "8 of 8 nodes up", nil // there is no driver
				}
				out, err := c.Command(name, args...).CombinedOutput()
				return string(out), err
			}
			// SlurmUser has this number inside the cluster.
			o := setup.Options{Conf: c.Folder, Release: r, Include: c.Tree.Include(), Muster: os.Args[0], GPUs: 4, REST: true}
			before := confFiles(t, c.Folder)
			if findings := setup.Doctor(o, run); !wrong(findings) {
				t.Errorf("a Slurm that was not set up is healthy: %v", findings)
			}
			plan := apply(t, setup.Make, o)
			if len(plan.Left) > 0 {
				t.Errorf("left: %q", plan.Left)
			}
			if err := c.Restart("slurmctld"); err != nil {
				t.Fatal(err)
			}
			if findings := setup.Doctor(o, run); wrong(findings) {
				t.Errorf("the doctor finds: %+v", findings)
			}
			if out, err := run("sbatch", "--rgpu=x", "--wrap", "true"); err == nil || !strings.Contains(out, "write how many GPUs") {
				t.Errorf("a bad request: %v: %s", err, out)
			}
			out, err := run("sbatch", "--parsable", "--rgpu=1", "-o", "/dev/null", "--wrap", "true")
			if err != nil {
				t.Fatal(out)
			}
			if out, _ = run("scontrol", "show", "job", strings.TrimSpace(out)); !strings.Contains(out, "omment=muster:req rgpu=1") || !strings.Contains(out, "JobHeldUser") {
				t.Errorf("the job is %s", out)
			}
			apply(t, setup.Unmake, o)
			same(t, "after --remove", confFiles(t, c.Folder), before)
			if err := c.Restart("slurmctld"); err != nil {
				t.Fatal(err)
			}
			if out, err := run("sbatch", "--rgpu=1", "--wrap", "true"); err == nil {
				t.Errorf("after --remove there is still --rgpu: %s", out)
			}
		})
	}
}

// The doctor names what is wrong with a setup that was broken, and what to do.
func TestDoctorFinds(t *testing.T) {
	healthy := map[string]string{
		"scontrol --version": "slurm 26.05.5\n", "scontrol ping": "Slurmctld(primary) at here is UP\n", "scontrol show config": "JobSubmitPlugins = lua\n",
		"scontrol show license rgpu": "LicenseName=rgpu\n    Total=4 Used=0\n", "sbatch --help": "  --rgpu=N[:MEM]\n", "muster slurm status": "8 of 8 nodes up\n",
	}
	for name, x := range map[string]struct {
		// files are written over those of a good set-up, "-" removes one; answers are other ones of commands, "-" makes one fail.
		files, answers map[string]string
		change         func(*setup.Options)
		want, remedy   string
	}{
		"nothing":          {},
		"no slurm.conf":    {files: map[string]string{"slurm.conf": "-"}, want: "Slurm's configuration: ", remedy: ""},
		"no plug-in line":  {files: map[string]string{"plugstack.conf": "# nothing\n"}, want: "plugstack.conf is not as it should be: Slurm's commands and nodes load the plug-in", remedy: "muster slurm setup --conf "},
		"no script":        {files: map[string]string{"muster.lua": "-"}, want: "muster.lua is not as it should be", remedy: "muster slurm setup"},
		"an old script":    {files: map[string]string{"muster.lua": "-- Muster's part of job_submit.lua\n"}, want: "muster.lua is not as it should be", remedy: "muster slurm setup"},
		"no hook":          {files: map[string]string{"job_submit.lua": "return slurm.SUCCESS\n"}, want: "job_submit.lua is not as it should be", remedy: "muster slurm setup"},
		"an old plug-in":   {files: map[string]string{"spank_muster.so": spank.StampPrefix + "0-26.05"}, want: "spank_muster.so is not as it should be", remedy: "muster slurm setup"},
		"another plug-in":  {files: map[string]string{"spank_muster.so": "ELF"}, want: "is not Muster's: move it away"},
		"other plug-ins":   {files: map[string]string{"slurm.conf": "JobSubmitPlugins=all_partitions\nLicenses=rgpu:4\n"}, want: "slurm.conf:1: write JobSubmitPlugins=all_partitions,lua"},
		"half a block":     {files: map[string]string{"plugstack.conf": "# BEGIN muster: written by muster slurm setup, which takes it out with --remove\n"}, want: "the block of Muster has no end"},
		"no program":       {change: func(o *setup.Options) { o.Muster = "/nonexistent/muster" }, want: "the program that the plug-in starts is not there", remedy: "install muster there on every node"},
		"no rights":        {change: func(o *setup.Options) { o.Muster = o.Conf + "/slurm.conf" }, want: "users cannot run", remedy: "chmod 755"},
		"no grants":        {change: func(o *setup.Options) { o.Agents, o.Grants = ":9422", "/nonexistent/grants" }, want: "the folder for grants /nonexistent/grants is not there", remedy: "mkdir -m 755"},
		"open grants":      {change: func(o *setup.Options) { o.Agents, o.Grants = ":9422", "/tmp" }, want: "others can write to /tmp", remedy: "chmod go-w /tmp"},
		"GPUs twice":       {files: map[string]string{"more.conf": "NodeName=n1 Gres=gpu:2\n"}, change: func(o *setup.Options) { o.Agents, o.Grants = ":9422", o.Conf }, want: "Slurm may give a job a GPU that its node lends to another", remedy: "take gpu out of Gres="},
		"all memory":       {answers: map[string]string{"scontrol show config": "JobSubmitPlugins = lua\nSelectTypeParameters = CR_CORE_MEMORY\nDefMemPerNode = UNLIMITED\n"}, want: "a job that does not say --mem gets all memory of its nodes", remedy: "give slurm.conf a DefMemPerCPU"},
		"no authority":     {change: func(o *setup.Options) { o.Agents, o.Grants, o.Authority = ":9422", o.Conf, "/nonexistent/ca.pem" }, want: "the certificate that vouches for the nodes that lend is not there", remedy: "name another with --authority"},
		"no commands":      {answers: map[string]string{"scontrol --version": "-"}, want: "scontrol does not run", remedy: "put Slurm's commands into PATH"},
		"another release":  {answers: map[string]string{"scontrol --version": "slurm 24.11.5\n"}, want: "Slurm is 24.11 and the plug-in is for 26.05", remedy: "muster slurm setup --version 24.11"},
		"unknown release":  {answers: map[string]string{"scontrol --version": "slurm 19.05.1\n"}, want: "Slurm 19.05 is not known here"},
		"no slurmctld":     {answers: map[string]string{"scontrol ping": "Slurmctld(primary) at here is DOWN\n"}, want: "slurmctld does not answer", remedy: "start slurmctld"},
		"not restarted":    {answers: map[string]string{"scontrol show config": "JobSubmitPlugins = (null)\n"}, want: "slurmctld runs without job_submit.lua", remedy: "restart slurmctld"},
		"fewer licences":   {answers: map[string]string{"scontrol show license rgpu": "LicenseName=rgpu\n    Total=2 Used=0\n"}, want: "slurmctld has not 4 licences rgpu", remedy: "scontrol reconfigure"},
		"plug-in not read": {answers: map[string]string{"sbatch --help": "  --gres\n"}, want: "sbatch has no --rgpu", remedy: "look at plugstack.conf on this machine"},
		"deaf Slurm":       {answers: map[string]string{"muster slurm status": "Slurm does not answer the driver: slurmrestd is away\nas it was\n"}, want: "slurmrestd is away", remedy: "--rest"},
		"no driver":        {answers: map[string]string{"muster slurm status": "-"}, want: "the driver does not answer, and jobs wait for it", remedy: "slurm drive"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, map[string]string{"slurm.conf": "Include more.conf\n", "more.conf": "ClusterName=a\n", "spank_muster.so": spank.Stamp(release.Newest())})
			o := setup.Options{Conf: dir, Release: release.Newest(), Muster: os.Args[0], GPUs: 4}
			apply(t, setup.Make, o)
			for file, text := range x.files {
				if text == "-" {
					os.Remove(filepath.Join(dir, file))
				} else {
					write(t, dir, map[string]string{file: text})
				}
			}
			if x.change != nil {
				x.change(&o)
			}
			found := setup.Doctor(o, func(name string, args ...string) (string, error) {
				key := strings.Join(append([]string{name}, args...), " ")
				answer, given := x.answers[key]
				if !given {
					answer = healthy[key]
				}
				if answer == "-" {
					return "", errors.New("it fails")
				}
				return answer, nil
			})
			if x.want == "" {
				if wrong(found) {
					t.Errorf("the doctor finds %+v", found)
				}
				return
			}
			for _, f := range found {
				if (f.Wrong || f.Odd) && strings.Contains(f.What, x.want) && strings.Contains(f.Remedy, x.remedy) {
					return
				}
			}
			t.Errorf("the doctor finds %+v", found)
		})
	}
}

func wrong(findings []setup.Finding) bool {
	for _, f := range findings {
		if f.Wrong {
			return true
		}
	}
	return false
}

// confFiles are the files of a cluster's folder that are its configuration.
func confFiles(t *testing.T, folder string) map[string]string {
	t.Helper()
	all := map[string]string{}
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		all[e.Name()] = string(bytes.Clone(text))
	}
	return all
}
