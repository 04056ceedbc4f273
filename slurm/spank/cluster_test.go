package spank_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/internal/await"
	"muster/internal/need"
	"muster/slurm/emulate"
	"muster/slurm/emulate/emulatetest"
	"muster/slurm/release"
	"muster/slurm/spank"
	"muster/slurm/words"
)

// start starts a cluster with the plug-in and the script.
func start(t *testing.T, r *release.Release, muster string, settings spank.Settings) *emulate.Cluster {
	t.Helper()
	emulatetest.Need(t, r)
	dir := openFolder(t)
	library, lua := filepath.Join(dir, spank.Library), filepath.Join(dir, "muster.lua")
	if err := spank.Build(t.Context(), r, emulatetest.Tree(t, r).Include(), library); err != nil {
		t.Fatal(err)
	}
	text, err := spank.Script(settings)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(lua, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	gpus := 0
	if settings.OwnGPUs {
		gpus = 1
	}
	return emulatetest.Start(t, emulate.Options{
		Release: r, Nodes: 4, GPUs: gpus, JobSubmit: spank.Hook(lua) + "return slurm.SUCCESS\n", PlugStack: spank.PlugStack(library, muster, ""),
		Extra: "Licenses=rgpu:4\n", NoREST: true,
	})
}

// openFolder is a folder that other users can read.
func openFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "muster-spank-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// run runs one of Slurm's commands and returns what it prints on both streams.
func run(c *exec.Cmd) (string, error) {
	var both bytes.Buffer
	c.Stdout, c.Stderr = &both, &both
	err := c.Run()
	return strings.TrimSpace(both.String()), err
}

func must(t *testing.T, c *exec.Cmd) string {
	t.Helper()
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v: %v: %s%s", c.Args, err, out, &stderr)
	}
	return strings.TrimSpace(string(out))
}

var eventually = await.Until

// comment is the comment of a job that has Muster's words.
func comment(t *testing.T, c *emulate.Cluster, id string) string {
	t.Helper()
	for _, line := range strings.Split(must(t, c.Command("scontrol", "show", "job", id)), "\n") {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "AdminComment="); ok {
			return strings.TrimSpace(text)
		}
	}
	return ""
}

func state(t *testing.T, c *emulate.Cluster, id string) string {
	return must(t, c.Command("squeue", "-h", "-j", id, "-t", "all", "-o", "%T"))
}

// answer takes the driver's part: it writes the answer, names the node and releases the job.
func answer(t *testing.T, c *emulate.Cluster, id string, a words.Answer) {
	t.Helper()
	said, err := words.Parse(comment(t, c, id))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Sscan(id, &a.Job)
	said.Answer = &a
	field := "AdminComment="
	if c.Release().Words.AdminComment == "" { // REST cannot write the other
		field = "Comment="
	}
	must(t, c.Command("scontrol", "update", "JobId="+id, field+said.String(), "NodeList="+strings.Join(a.Nodes, ",")))
	must(t, c.Command("scontrol", "release", id))
}

// Every release accepts the options, refuses wrong ones with a sentence, and tells the job's
// programs their devices.
func TestOptions(t *testing.T) {
	for _, r := range release.All() {
		t.Run(r.Name, func(t *testing.T) {
			emulatetest.Need(t, r)
			t.Parallel()
			dir := openFolder(t)
			c := start(t, r, fakeServer(t, dir), spank.Settings{Admins: []int{1000}, Licence: "rgpu"})
			t.Run("requests", func(t *testing.T) { checkRequests(t, c) })
			t.Run("refused", func(t *testing.T) { checkRefused(t, c) })
			t.Run("environment", func(t *testing.T) { checkEnvironment(t, c) })
			t.Run("served", func(t *testing.T) { checkServed(t, c, dir) })
			t.Run("unanswered", func(t *testing.T) { checkUnanswered(t, c) })
			if r == release.Newest() {
				t.Run("away", func(t *testing.T) {
					alive := filepath.Join(openFolder(t), "alive")
					checkAway(t, start(t, r, "/nonexistent/muster", spank.Settings{All: true, Alive: alive}), alive)
				})
			}
			if r == release.Newest() {
				t.Run("own GPUs", func(t *testing.T) {
					alive := filepath.Join(openFolder(t), "alive") // the driver is away
					checkOwnGPUs(t, start(t, r, "/nonexistent/muster", spank.Settings{OwnGPUs: true, Alive: alive}))
				})
			}
			t.Run("users", func(t *testing.T) { checkUsers(t, c) })
		})
	}
}

func checkRequests(t *testing.T, c *emulate.Cluster) {
	for _, x := range []struct {
		options []string
		want    string
	}{
		{nil, ""},
		{[]string{"--rgpu=2:4G", "--rcuda-mode=excl"}, "muster:req rgpu=2 mem=4096M mode=excl"},
		{[]string{"--rgpu=1"}, "muster:req rgpu=1"},
		{[]string{"--rgpu=1:512"}, "muster:req rgpu=1 mem=512M"},
		{[]string{"--gres=rgpu:2:1G"}, "muster:req rgpu=2 mem=1024M"},
		{[]string{"--gres=rgpu:2", "--rcuda-mode=excl"}, "muster:req rgpu=2 mode=excl"},
		{[]string{"-H", "--rgpu=1:1g"}, "muster:req hold=user rgpu=1 mem=1024M"},
		{[]string{"--rgpu=1:1G", "--gpu-reach=cluster", "--gpu-beyond=all", "--mapping=ar:alpha=1"}, "muster:req rgpu=1 mem=1024M reach=cluster beyond=all map=ar:alpha=1"},
		{[]string{"--gres=rgpu:2", "--gpu-reach", "device", "--gpu-beyond=0"}, "muster:req rgpu=2 reach=device beyond=0M"},
		{[]string{"--rgpu=1:1G", "--gpu-beyond=2g", "--rcuda-mode=shar", "--muster-or=-n 4"}, "muster:req rgpu=1 mem=1024M mode=shar beyond=2048M or=-n%204"},
		{[]string{"--gpu-reach=node", "--muster-or=--rgpu=4"}, "muster:req reach=node or=--rgpu=4"},
		{[]string{"--muster-or=-n 4 --gres=gpu:1", "--muster-or=-N2 -t 2:00:00"}, "muster:req or=-n%204%20--gres=gpu:1 or=-N2%20-t%202:00:00"},
	} {
		args := append([]string{"--parsable", "-o", "/dev/null"}, x.options...)
		id := must(t, c.Command("sbatch", append(args, "--wrap", "true")...))
		got := comment(t, c, id)
		if got != x.want {
			t.Errorf("%q: the comment is %q, want %q", x.options, got, x.want)
		}
		if _, err := words.Parse(got); err != nil {
			t.Error(err)
		}
		if held := must(t, c.Command("squeue", "-h", "-j", id, "-t", "all", "-o", "%r")) == "JobHeldUser"; held != (x.want != "") {
			t.Errorf("%q: held is %t", x.options, held)
		}
		must(t, c.Command("scancel", id))
	}
}

// checkOwnGPUs submits jobs that ask for Slurm's own GPUs while nodes lend these, too: they are
// Muster's, however they are written, and wait for the driver while it is away.
func checkOwnGPUs(t *testing.T, c *emulate.Cluster) {
	for option, want := range map[string]string{"--gres=gpu:1": "muster:req", "--gpus=1": "muster:req", "--gpus-per-node=1": "muster:req", "-n1": ""} {
		id := must(t, c.Command("sbatch", "--parsable", "-o", "/dev/null", option, "--wrap", "true"))
		if got := comment(t, c, id); got != want {
			t.Errorf("%s: the comment is %q, want %q", option, got, want)
		}
	}
}

// checkAway submits a job to a cluster all of whose jobs are Muster's, while the driver runs and
// while it does not.
func checkAway(t *testing.T, c *emulate.Cluster, alive string) {
	for _, x := range []struct {
		text    string
		options []string
		held    bool
	}{
		{fmt.Sprintln(time.Now().Unix() + 1000), nil, true}, {"1\n", nil, false}, {"", nil, false}, {"1\n", []string{"--rgpu=1"}, true},
	} {
		if err := os.WriteFile(alive, []byte(x.text), 0o644); err != nil {
			t.Fatal(err)
		}
		args := append([]string{"--parsable", "-o", "/dev/null"}, x.options...)
		id := must(t, c.Command("sbatch", append(args, "--wrap", "true")...))
		if held := comment(t, c, id) != ""; held != x.held {
			t.Errorf("%q, %q: held is %t", x.text, x.options, held)
		}
	}
}

func checkRefused(t *testing.T, c *emulate.Cluster) {
	for _, x := range []struct {
		options []string
		want    string
	}{
		{[]string{"--rgpu=many"}, "--rgpu=many: write how many GPUs"},
		{[]string{"--rgpu=0"}, "--rgpu=0: ask for 1 to 4096 GPUs"},
		{[]string{"--rgpu=2:4X"}, "write the memory of each GPU with its unit"},
		{[]string{"--rgpu=2:0"}, "leave it out for whole GPUs"},
		{[]string{"--rgpu=1", "--rcuda-mode=shared"}, "--rcuda-mode=shared: choose excl"},
		{[]string{"--muster-or= "}, "write options of a request"},
		{[]string{"--rcuda-mode=excl"}, "--rcuda-mode is for remote GPUs"},
		{[]string{"--rgpu=2", "--rcuda-mode=shar"}, "--rcuda-mode=shar: say how much memory of each GPU, as --rgpu=2:1G"},
		{[]string{"--gres=rgpu:k20:2"}, "--gres=rgpu:k20:2: write how many GPUs"},
		{[]string{"--gres=rgpu:two"}, "--gres=rgpu:two: write how many GPUs"},
		{[]string{"--gres=rgpu:2", "--rgpu=1"}, "the GPUs are asked for twice"},
		{[]string{"--rgpu=5"}, "license"},
		{[]string{"--rgpu=1", "--gpu-reach=nodes"}, "--gpu-reach=nodes: choose device, node or cluster"},
		{[]string{"--gpu-reach=node"}, "--gpu-reach is for remote GPUs"},
		{[]string{"--mapping=ag"}, "--mapping is for remote GPUs"},
		{[]string{"--rgpu=1", "--mapping="}, "--mapping=: name a mapper"},
		{[]string{"--rgpu=1:1G", "--gpu-beyond=much"}, "--gpu-beyond=much: write memory with its unit"},
		{[]string{"--rgpu=1:1G", "--gpu-beyond=1048576T"}, "--gpu-beyond=1048576T: write memory with its unit"},
		{[]string{"--rgpu=2", "--gpu-beyond=1G"}, "--gpu-beyond: whole GPUs have no memory beyond them: ask for shares, as --rgpu=2:4G"},
	} {
		args := append([]string{"-o", "/dev/null"}, x.options...)
		out, err := run(c.Command("sbatch", append(args, "--wrap", "true")...))
		if err == nil || !strings.Contains(out, x.want) {
			t.Errorf("%q: %v: %s", x.options, err, out)
		}
	}
	out, err := run(c.Command("srun", "--gres=rgpu:1:1G", "true"))
	if err == nil || !strings.Contains(out, "write --rgpu=1:1024M instead of --gres") {
		t.Errorf("srun --gres: %v: %s", err, out)
	}
}

// checkEnvironment checks the environment of the batch script, of the tasks of its steps, and of
// the tasks of a bare srun.
func checkEnvironment(t *testing.T, c *emulate.Cluster) {
	dir := openFolder(t)
	const show = `echo $SLURMD_NODENAME $RCUDA_DEVICE_COUNT $RCUDA_DEVICE_0 $RCUDA_DEVICE_1 $MUSTER_MAPPING`
	if err := os.WriteFile(filepath.Join(dir, "job.sh"), []byte("#!/bin/sh\n#SBATCH --rgpu=2:1G --mapping=ag\n"+show+"\nsrun -n2 sh -c '"+show+"'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	id := must(t, c.Command("sbatch", "--parsable", "-n2", "-N1", "-o", filepath.Join(dir, "out"), filepath.Join(dir, "job.sh")))
	devices := []words.Device{{Node: "n1", Device: 0}, {Node: "gpu-7", Device: 3}}
	answer(t, c, id, words.Answer{Nodes: []string{"n3"}, Devices: devices, Why: "a test"})
	eventually(t, "the job has run", func() bool { return state(t, c, id) == "COMPLETED" })
	got, err := os.ReadFile(filepath.Join(dir, "out"))
	if want := strings.Repeat("n3 2 n1:0 gpu-7:3 ag\n", 3); err != nil || string(got) != want {
		t.Errorf("the job wrote %q, want %q, %v", got, want, err)
	}
	step := c.Command("srun", "-J", "bare", "--rgpu=1", "sh", "-c", show)
	var out bytes.Buffer
	step.Stdout = &out
	if err := step.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "srun waits", func() bool { return must(t, c.Command("squeue", "-h", "-n", "bare", "-o", "%i")) != "" })
	answer(t, c, must(t, c.Command("squeue", "-h", "-n", "bare", "-o", "%i")), words.Answer{Nodes: []string{"n2"}, Devices: devices[:1]})
	if err := step.Wait(); err != nil || out.String() != "n2 1 n1:0\n" {
		t.Errorf("srun: %v: %q", err, &out)
	}
}

// fakeServer is a script that serves a step in place of muster.
func fakeServer(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "muster")
	text := `#!/bin/sh
case "$*" in *" /nonexistent "*) echo error there is no such grant; exit 1;; esac
echo "set SERVED_BY $(id -u) $(id -g) $*"
echo "prepend LD_LIBRARY_PATH /muster/lib"
echo ready
trap "" TERM
cat > /dev/null
`
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o1777); err != nil {
		t.Fatal(err)
	}
	return path
}

// checkServed runs a job, as an ordinary user if the cluster has several: a process of the same
// user serves it, and ends with each step.
func checkServed(t *testing.T, c *emulate.Cluster, dir string) {
	user := c.Command
	who := must(t, c.Command("id", "-u")) + " " + must(t, c.Command("id", "-g"))
	if !c.OneUser {
		user, who = asNobody(c), "65534 65534"
	}
	out := filepath.Join(dir, "served")
	submit := user("sbatch", "--parsable", "--rgpu=1", "-o", out, "--wrap", "echo $SERVED_BY $LD_LIBRARY_PATH; srun sh -c 'echo $SERVED_BY $LD_LIBRARY_PATH'")
	submit.Env = append(os.Environ(), "LD_LIBRARY_PATH=/my/lib")
	id := must(t, submit)
	answer(t, c, id, words.Answer{Nodes: []string{"n4"}, Devices: []words.Device{{Node: "n1"}}, Grant: "/a grant"})
	eventually(t, "the job has ended", func() bool {
		s := state(t, c, id)
		if s == "FAILED" {
			text, _ := os.ReadFile(out)
			t.Fatalf("the job failed: %s", text)
		}
		return s == "COMPLETED"
	})
	want := strings.Repeat(who+" slurm serve --grant /a grant --node n4 /muster/lib:/my/lib\n", 2)
	if text, err := os.ReadFile(out); err != nil || string(text) != want {
		t.Errorf("the job wrote %q, want %q, %v", text, want, err)
	}
	eventually(t, "both servers have ended", func() bool { return !strings.Contains(must(t, c.Command("ps", "axww", "-o", "args")), "slurm serve") })
}

// asNobody runs Slurm's commands as an ordinary user.
func asNobody(c *emulate.Cluster) func(name string, args ...string) *exec.Cmd {
	return func(name string, args ...string) *exec.Cmd {
		command := c.Command(name, args...)
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		command.Dir = "/"
		return command
	}
}

// checkUnanswered releases jobs without an answer, with one for an earlier start, and with a grant
// that cannot be served: none runs, and each says why.
func checkUnanswered(t *testing.T, c *emulate.Cluster) {
	dir := openFolder(t)
	for i, x := range []struct {
		answer *words.Answer
		want   string
	}{
		{nil, "muster: the job asks for 1 GPUs and Muster has not given it any"},
		{&words.Answer{Start: 1, Nodes: []string{"n2"}, Devices: []words.Device{{Node: "n1"}}}, "Muster has not given it any"},
		{&words.Answer{Nodes: []string{"n2"}, Devices: []words.Device{{Node: "n1"}}, Grant: "/nonexistent"}, "muster: there is no such grant"},
	} {
		file := filepath.Join(dir, fmt.Sprint(i))
		id := must(t, c.Command("sbatch", "--parsable", "--no-requeue", "--rgpu=1", "-o", file, "--wrap", "echo it ran"))
		if x.answer != nil {
			answer(t, c, id, *x.answer)
		} else {
			must(t, c.Command("scontrol", "release", id))
		}
		eventually(t, "the job has ended", func() bool { return state(t, c, id) == "FAILED" })
		if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), x.want) || strings.Contains(string(text), "it ran") {
			t.Errorf("the job says %q, want %q, %v", text, x.want, err)
		}
	}
}

// isHeld says whether the driver would see that a job's user wants it held.
func isHeld(t *testing.T, c *emulate.Cluster, id string) bool {
	t.Helper()
	held, said := words.UserHold(must(t, c.Command("squeue", "-h", "-j", id, "-o", "%k")))
	return held && said
}

// checkUsers lets a user hold, release and change a job.
func checkUsers(t *testing.T, c *emulate.Cluster) {
	if c.OneUser {
		need.Missing(t, need.Mount, "the cluster has one user: only root who may mount has others")
	}
	as := asNobody(c)
	id := must(t, as("sbatch", "--parsable", "--rgpu=1", "-o", "/dev/null", "--wrap", "true"))
	for _, args := range [][]string{{"release", id}, {"update", "JobId=" + id, "NodeList=n1"}, {"update", "JobId=" + id, "Priority=100"}, {"update", "JobId=" + id, "AdminComment=x"},
		{"update", "JobId=" + id, "Comment=muster:req muster:got 0 1 nodes=n1 rgpu=n1:0 grant=- why="}, {"update", "JobId=" + id, "Comment=muster:released"},
		{"update", "JobId=" + id, "Licenses="}} {
		if out, err := run(as("scontrol", args...)); err == nil {
			t.Errorf("a user could %q: %s", args, out)
		}
	}
	if got := comment(t, c, id); got != "muster:req rgpu=1" {
		t.Errorf("the comment is %q", got)
	}
	must(t, as("scontrol", "hold", id))
	if !isHeld(t, c, id) {
		t.Errorf("held by its user: %s", must(t, c.Command("scontrol", "show", "job", id)))
	}
	must(t, as("scontrol", "release", id))
	if got := comment(t, c, id) + " " + must(t, c.Command("squeue", "-h", "-j", id, "-o", "%T %r")); isHeld(t, c, id) || got != "muster:req rgpu=1 PENDING JobHeldUser" {
		t.Errorf("released by its user: %q", got)
	}
	must(t, as("scancel", id))
	other := must(t, as("sbatch", "--parsable", "-H", "-o", "/dev/null", "--wrap", "sleep 1000")) // one that had ended could not be changed
	must(t, as("scontrol", "release", other))                                                     // not Muster's
	if out, err := run(as("scontrol", "update", "JobId="+other, "Comment=muster:req rgpu=9")); err == nil {
		t.Errorf("a user wrote Muster's words: %s", out)
	}
	must(t, as("scontrol", "update", "JobId="+other, "Comment=a word of mine"))
	must(t, as("scancel", other))
}
