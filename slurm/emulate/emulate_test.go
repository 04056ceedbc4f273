package emulate_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/internal/await"
	"muster/slurm/emulate"
	"muster/slurm/emulate/emulatetest"
	"muster/slurm/release"
)

// holdAll is a job_submit.lua that holds jobs, as an external scheduler needs.
const holdAll = `
function slurm_job_submit(job, partitions, uid)
  if job.name == "held" then job.priority = 0 end
  return slurm.SUCCESS
end
function slurm_job_modify(job, record, partitions, uid) return slurm.SUCCESS end
return slurm.SUCCESS
`

// greet is a SPANK plug-in that shows that it runs in each task.
const greet = `
#include <slurm/spank.h>
SPANK_PLUGIN(greet, 1)
int slurm_spank_task_init(spank_t sp, int ac, char **av)
{
	return spank_setenv(sp, "GREETING", "hello", 1);
}
`

// output runs one of Slurm's commands, and fails the test if it fails.
func output(t *testing.T, c *exec.Cmd) string {
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

// Every release starts, runs jobs submitted in every way, and accepts what callers add. The
// clusters run at the same time.
func TestReleases(t *testing.T) {
	for _, r := range release.All() {
		t.Run(r.Name, func(t *testing.T) {
			emulatetest.Need(t, r)
			t.Parallel()
			plugStack := plugin(t, r)
			// Below a folder that is closed to others.
			parent, err := os.MkdirTemp("/tmp", "muster-test-")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(parent) })
			c := emulatetest.Start(t, emulate.Options{
				Release: r, Folder: filepath.Join(parent, "c"), GPUs: 2, GPUNodes: 4, JobSubmit: holdAll, PlugStack: plugStack, Extra: "MinJobAge=200\nLicenses=rgpu:8,other:1\n",
			})
			if said := output(t, c.Command("sinfo", "--version")); !strings.Contains(said, r.Name+".") {
				t.Errorf("sinfo is of %s", said)
			}
			t.Run("srun", func(t *testing.T) { checkTasks(t, c, plugStack != "") })
			t.Run("scripts", func(t *testing.T) { checkScripts(t, c) })
			t.Run("configuration", func(t *testing.T) { checkConfiguration(t, c) })
			t.Run("REST", func(t *testing.T) { checkREST(t, c) })
			t.Run("daemons", func(t *testing.T) { checkDaemons(t, c) })
		})
	}
}

// plugin compiles a SPANK plug-in against the release's headers, and returns its plugstack.conf.
func plugin(t *testing.T, r *release.Release) string {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Log("there is no gcc: plug-ins are not tried")
		return ""
	}
	dir := t.TempDir()
	source, object := filepath.Join(dir, "greet.c"), filepath.Join(dir, "greet.so")
	if err := os.WriteFile(source, []byte(greet), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(gcc, "-fPIC", "-shared", "-isystem", emulatetest.Tree(t, r).Include(), "-o", object, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return "required " + object + "\n"
}

// checkTasks runs a task on every node, with its GPUs, in this folder, on files of this machine.
func checkTasks(t *testing.T, c *emulate.Cluster, plugged bool) {
	script := filepath.Join(t.TempDir(), "task.sh")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho $SLURMD_NODENAME gpus=$CUDA_VISIBLE_DEVICES $GREETING $PWD\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	greeting := ""
	if plugged {
		greeting = "hello"
	}
	lines := strings.Split(output(t, c.Command("srun", "-N4", "--gres=gpu:2", script)), "\n")
	slices.Sort(lines)
	for i, line := range lines {
		if want := strings.Join(strings.Fields(fmt.Sprintf("n%d gpus=0,1 %s %s", i+1, greeting, here)), " "); strings.Join(strings.Fields(line), " ") != want {
			t.Errorf("got %q, want %q", line, want)
		}
	}
	if len(lines) != 4 {
		t.Errorf("got %d lines: %q", len(lines), lines)
	}
	if nodes := strings.Fields(output(t, c.Command("srun", "-N8", "printenv", "SLURMD_NODENAME"))); len(nodes) != 8 {
		t.Errorf("ran on %v", nodes)
	}
	// A node without GPUs has GPUs to borrow, as a count.
	if got := output(t, c.Command("scontrol", "show", "node", "n8")); !strings.Contains(got, "Gres=rgpu:8\n") {
		t.Errorf("n8 is %s", got)
	}
	fails := c.Command("srun", "sh", "-c", "exit 3")
	var exit *exec.ExitError
	if err := fails.Run(); !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("a task that ends with 3: %v", err)
	}
}

// checkScripts submits from a shell outside, which finds sbatch in PATH; the job finds its own srun.
func checkScripts(t *testing.T, c *emulate.Cluster) {
	dir := t.TempDir()
	shell := exec.Command("sh", "-c", `echo '#!/bin/sh
srun echo from $SLURMD_NODENAME
case $(command -v srun) in /usr/bin/srun|/bin/srun) ;; *) echo wrong srun;; esac' | sbatch --parsable -o out -w n6`)
	shell.Env, shell.Dir = c.Environ(), dir
	id := output(t, shell)
	eventually(t, "the job ends", func() bool {
		return output(t, c.Command("squeue", "-h", "-j", id, "-t", "all", "-o", "%T")) == "COMPLETED"
	})
	got, err := os.ReadFile(filepath.Join(dir, "out"))
	if err != nil || string(got) != "from n6\n" {
		t.Errorf("got %q, %v", got, err)
	}
	eventually(t, "the job is written down", func() bool {
		text, err := os.ReadFile(c.JobCompletions())
		return err == nil && regexp.MustCompile(`(?m)^JobId=`+id+` .* NodeList=n6 `).Match(text)
	})
}

func checkConfiguration(t *testing.T, c *emulate.Cluster) {
	config := output(t, c.Command("scontrol", "show", "config"))
	if !regexp.MustCompile(`MinJobAge\s+= 200 sec`).MatchString(config) {
		t.Error("a line that was given did not replace the one that is there")
	}
	licenses := output(t, c.Command("scontrol", "show", "license"))
	for _, want := range []string{"LicenseName=rgpu", "LicenseName=other"} {
		if !strings.Contains(licenses, want) {
			t.Errorf("no %s in %s", want, licenses)
		}
	}
}

// ask sends a request to REST and returns the answer.
func ask(t *testing.T, c *emulate.Cluster, path string, body any) map[string]any {
	t.Helper()
	address, token := c.REST()
	method, content := http.MethodGet, []byte(nil)
	if body != nil {
		method = http.MethodPost
		var err error
		if content, err = json.Marshal(body); err != nil {
			t.Fatal(err)
		}
	}
	request, err := http.NewRequestWithContext(t.Context(), method, address+"/slurm/"+c.Release().API+path, bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-SLURM-USER-NAME", c.User)
	request.Header.Set("X-SLURM-USER-TOKEN", token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	var document map[string]any
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatalf("%s %s: %s: %v: %.500s", method, path, response.Status, err, text)
	}
	return document
}

// fine sends a request, and fails the test after an error or a warning: a warning may mean a wrong
// node.
func fine(t *testing.T, c *emulate.Cluster, path string, body any) map[string]any {
	t.Helper()
	document := ask(t, c, path, body)
	for _, kind := range []string{"errors", "warnings"} {
		if n := count(document, kind); n > 0 {
			t.Errorf("%s: %s: %v", path, kind, document[kind])
		}
	}
	return document
}

func count(document map[string]any, list string) int {
	found, _ := document[list].([]any)
	return len(found)
}

// checkREST places a held job as the table of releases says, and finds it there.
func checkREST(t *testing.T, c *emulate.Cluster) {
	r := c.Release()
	if pings, _ := fine(t, c, "/ping", nil)["pings"].([]any); len(pings) != 1 {
		t.Errorf("%d daemons answer", len(pings))
	}
	dir := t.TempDir()
	held := c.Command("sbatch", "--parsable", "-J", "held", "-n2", "-o", "out", "--wrap", "echo $SLURM_JOB_NODELIST")
	held.Dir = dir
	id := output(t, held)
	if got := output(t, c.Command("squeue", "-h", "-j", id, "-o", "%T %r")); got != "PENDING JobHeldUser" {
		t.Errorf("job_submit.lua did not hold it: %s", got)
	}
	job := jobOf(t, c, id)
	_, list := job["job_state"].([]any)
	_, wrapped := job["time_limit"].(map[string]any)
	if list != r.Words.StateList || wrapped != r.Words.WrappedNumbers {
		t.Errorf("the table of releases is wrong of lists or numbers: job_state is %v, time_limit %v", job["job_state"], job["time_limit"])
	}
	checkWords(t, c, id)
	fine(t, c, "/job/"+id, r.Placement([]string{"n3", "n5"}, "a test"))
	eventually(t, "the job has run", func() bool {
		text, err := os.ReadFile(filepath.Join(dir, "out"))
		return err == nil && len(text) > 0
	})
	if got, err := os.ReadFile(filepath.Join(dir, "out")); err != nil || string(got) != "n[3,5]\n" {
		t.Errorf("ran on %q, %v", got, err)
	}
	if comment := jobOf(t, c, id)["admin_comment"]; r.Words.AdminComment != "" && comment != "a test" {
		t.Errorf("the comment is %v", comment)
	}
}

// checkWords compares the table of releases with what slurmrestd answers to unknown fields and to
// the submission of a held job.
func checkWords(t *testing.T, c *emulate.Cluster, id string) {
	w := c.Release().Words
	unknown := ask(t, c, "/job/"+id, map[string]any{"nonsense": 1})
	if isError := count(unknown, "errors") > 0; isError != w.UnknownIsError || !isError && count(unknown, "warnings") != 1 {
		t.Errorf("an unknown field: %v, %v", unknown["errors"], unknown["warnings"])
	}
	environment := any([]string{"PATH=/bin"})
	if w.EnvironmentTable {
		environment = map[string]string{"PATH": "/bin"}
	}
	submitted := ask(t, c, "/job/submit", map[string]any{"script": "#!/bin/sh\n", "job": map[string]any{
		"name": "held", "current_working_directory": "/tmp", "environment": environment, "tasks": 1}})
	wantErrors, wantWarnings := 0, 2
	if w.HeldIsError {
		wantErrors, wantWarnings = 1, 0
	}
	if submitted["job_id"] == nil || count(submitted, "errors") != wantErrors || count(submitted, "warnings") != wantWarnings {
		t.Errorf("submission: %v, %v, %v", submitted["job_id"], submitted["errors"], submitted["warnings"])
	}
}

func jobOf(t *testing.T, c *emulate.Cluster, id string) map[string]any {
	t.Helper()
	jobs, _ := fine(t, c, "/job/"+id, nil)["jobs"].([]any)
	if len(jobs) != 1 {
		t.Fatalf("%d jobs %s", len(jobs), id)
	}
	return jobs[0].(map[string]any)
}

// checkDaemons kills and restarts daemons, and a node with everything that runs there.
func checkDaemons(t *testing.T, c *emulate.Cluster) {
	if err := c.Kill("nonsense"); err == nil || !strings.Contains(err.Error(), `there is no daemon "nonsense"`) {
		t.Errorf("got %v", err)
	}
	id := output(t, c.Command("sbatch", "--parsable", "--no-requeue", "-w", "n7", "-o", "/dev/null", "--wrap", "srun sleep 987654"))
	runs := func(what string) bool {
		return strings.Contains(output(t, c.Command("ps", "axww", "-o", "args")), what)
	}
	eventually(t, "the job runs", func() bool { return runs("sleep 987654") })
	if err := c.KillNode("n7"); err != nil {
		t.Fatal(err)
	}
	if runs("sleep 987654") || runs("slurmd -D -N n7") || runs("slurmstepd: ["+id) {
		t.Errorf("something of n7 is left: %s", output(t, c.Command("ps", "axww", "-o", "args")))
	}
	if err := c.Kill("n7"); err == nil {
		t.Error("a dead slurmd was killed")
	}
	output(t, c.Command("scontrol", "update", "NodeName=n7", "State=DOWN", "Reason=test"))
	if state := output(t, c.Command("squeue", "-h", "-j", id, "-t", "all", "-o", "%T")); state != "NODE_FAIL" {
		t.Errorf("the job of a node that is down is %s", state)
	}
	for _, name := range []string{"n7", "munged", "slurmrestd"} {
		if err := c.Restart(name); err != nil {
			t.Errorf("restarting %s: %v", name, err)
		}
	}
	fine(t, c, "/ping", nil)
	eventually(t, "the node is back", func() bool { return output(t, c.Command("sinfo", "-h", "-n", "n7", "-o", "%T")) == "idle" })
	if err := errors.Join(c.Kill("slurmctld"), c.Restart("slurmctld")); err != nil {
		t.Errorf("slurmctld: %v", err)
	}
	output(t, c.Command("scontrol", "ping"))
}

// inSameNamespace lists the processes of a cluster, as the machine sees them.
func inSameNamespace(t *testing.T, namespace string) (found []string) {
	t.Helper()
	if namespace == "" {
		t.Fatal("no namespace")
	}
	links, err := filepath.Glob("/proc/[0-9]*/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && target == namespace {
			found = append(found, link)
		}
	}
	return found
}

func namespaceOf(t *testing.T, c *emulate.Cluster) string {
	t.Helper()
	return output(t, c.Command("readlink", "/proc/self/ns/pid"))
}

// Close leaves no process, no zombie, no folder and no port, also while jobs run.
func TestCloseLeavesNothing(t *testing.T) {
	emulatetest.Need(t, nil)
	t.Parallel()
	for _, rootless := range []bool{false, true} {
		c := emulatetest.Start(t, emulate.Options{Nodes: 2, Rootless: rootless})
		output(t, c.Command("sbatch", "-o", "/dev/null", "--wrap", "setsid sleep 1000 & sleep 1000"))
		waiting := c.Command("srun", "sleep", "1000")
		if err := waiting.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "both run", func() bool {
			return strings.Count(output(t, c.Command("squeue", "-h", "-t", "running")), "\n") == 1
		})
		namespace := namespaceOf(t, c)
		address, _ := c.REST()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if left := inSameNamespace(t, namespace); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		if err := waiting.Wait(); err == nil {
			t.Error("srun ended well")
		}
		if _, err := os.Stat(c.Folder); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the folder is left: %v", err)
		}
		if conn, err := net.Dial("tcp", strings.TrimPrefix(address, "http://")); err == nil {
			conn.Close()
			t.Error("REST still answers")
		}
		if err := c.Command("sinfo").Run(); err == nil {
			t.Error("sinfo runs")
		}
		if err := c.Close(); err != nil {
			t.Errorf("closing again: %v", err)
		}
	}
	// Those of other tests may have ended just now, and are about to be reaped.
	zombies := zombieChildren(t)
	eventually(t, fmt.Sprintf("all of %v are reaped", zombies), func() bool {
		now := zombieChildren(t)
		zombies = slices.DeleteFunc(zombies, func(z string) bool { return !slices.Contains(now, z) })
		return len(zombies) == 0
	})
}

// zombieChildren are processes of the cluster that have ended and that this process did not reap.
func zombieChildren(t *testing.T) (zombies []string) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		var state string
		var parent int
		name, rest, _ := strings.Cut(string(text), ") ")
		if fmt.Sscan(rest, &state, &parent); parent == os.Getpid() && state == "Z" && strings.Contains(name, "(exe") {
			zombies = append(zombies, name)
		}
	}
	return zombies
}

// A command inside ends when the client is killed, and signals reach it.
func TestCommandsAreHeldOnTo(t *testing.T) {
	emulatetest.Need(t, nil)
	t.Parallel()
	c := emulatetest.Start(t, emulate.Options{Nodes: 1, NoREST: true})
	runs := func(what string) bool {
		return strings.Contains(output(t, c.Command("ps", "axww", "-o", "args")), what)
	}

	killed := c.Command("sleep", "4321")
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it runs", func() bool { return runs("sleep 4321") })
	killed.Process.Kill()
	killed.Wait()
	eventually(t, "it ended", func() bool { return !runs("sleep 4321") })

	caught := c.Command("sh", "-c", "trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done")
	out, err := caught.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := caught.Start(); err != nil {
		t.Fatal(err)
	}
	bufio.NewReader(out).ReadString('\n')
	caught.Process.Signal(syscall.SIGTERM)
	if caught.Wait(); caught.ProcessState.ExitCode() != 7 {
		t.Errorf("the signal did not arrive: %v", caught.ProcessState)
	}

	input := c.Command("cat")
	input.Stdin = strings.NewReader("in and out\n")
	if got := output(t, input); got != "in and out" {
		t.Errorf("got %q", got)
	}
	for _, wrong := range []struct {
		cmd  *exec.Cmd
		exit int
		want string
	}{
		{c.Command("sbatchh"), 127, "the release has no command sbatchh"},
		{at("/usr/share", c.Command("pwd")), 0, ""},
		{at("/etc/apt", c.Command("pwd")), 126, "the folder /etc/apt is not in the cluster"},
	} {
		if _, err := os.Stat(wrong.cmd.Dir); wrong.cmd.Dir != "" && err != nil {
			continue
		}
		said, _ := wrong.cmd.CombinedOutput()
		if wrong.cmd.ProcessState.ExitCode() != wrong.exit || !strings.Contains(string(said), wrong.want) {
			t.Errorf("%v: %v, %s", wrong.cmd.Args, wrong.cmd.ProcessState, said)
		}
	}
	if address, token := c.REST(); address != "" || token != "" {
		t.Errorf("without slurmrestd REST is %q, %q", address, token)
	}
}

func at(dir string, c *exec.Cmd) *exec.Cmd {
	c.Dir = dir
	return c
}

// holdVariable makes TestHold, started as a program of its own, start a cluster and wait to be killed.
const holdVariable = "MUSTER_TEST_HOLD"

func TestHold(t *testing.T) {
	if os.Getenv(holdVariable) == "" {
		t.Skip("this is a part of TestKilled")
	}
	c, err := emulate.Start(t.Context(), emulate.Options{Nodes: 2, NoREST: true})
	if err != nil {
		t.Fatal(err)
	}
	namespace, err := c.Command("readlink", "/proc/self/ns/pid").Output()
	if err != nil {
		t.Fatal(err)
	}
	output(t, c.Command("sbatch", "-o", "/dev/null", "--wrap", "setsid sleep 1000 & sleep 1000"))
	fmt.Printf("up %s %s\n", c.Folder, strings.TrimSpace(string(namespace)))
	select {}
}

// hold starts TestHold and returns its process, and the cluster's folder and namespace.
func hold(t *testing.T) (cmd *exec.Cmd, folder, namespace string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(self, "-test.run=^TestHold$", "-test.v")
	cmd.Env = append(os.Environ(), holdVariable+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	said := bufio.NewScanner(out)
	for said.Scan() {
		if words := strings.Fields(said.Text()); len(words) == 3 && words[0] == "up" {
			return cmd, words[1], words[2]
		}
		t.Log(said.Text())
	}
	t.Fatal("no cluster started")
	return nil, "", ""
}

// When the process that started a cluster is killed, the cluster ends.
func TestKilled(t *testing.T) {
	emulatetest.Need(t, nil)
	t.Parallel()
	cmd, folder, namespace := hold(t)
	if len(inSameNamespace(t, namespace)) < 4 {
		t.Fatal("the cluster's processes are not seen: this test would show nothing")
	}
	cmd.Process.Kill()
	eventually(t, "all processes end", func() bool { return len(inSameNamespace(t, namespace)) == 0 })
	eventually(t, "the folder goes", func() bool { _, err := os.Stat(folder); return errors.Is(err, os.ErrNotExist) })
}

// When the first process of a cluster is killed together with the one that started it, the next
// cluster cleans up.
func TestKilledTogether(t *testing.T) {
	emulatetest.Need(t, nil)
	// The clusters of other tests, and of other packages, clean up, too. So this one has a
	// directory for temporary files that they do not look into. Sockets in it have short names.
	own, err := os.MkdirTemp("/tmp", "mk")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(own) })
	t.Setenv("TMPDIR", own)
	cmd, folder, namespace := hold(t)
	cmd.Process.Signal(syscall.SIGSTOP) // it must not clean up either
	first := firstProcess(t, namespace)
	syscall.Kill(first, syscall.SIGKILL)
	cmd.Process.Kill()
	eventually(t, "all processes end", func() bool { return len(inSameNamespace(t, namespace)) == 0 })
	if _, err := os.Stat(folder); err != nil {
		t.Fatalf("the folder is gone already: %v", err)
	}
	emulatetest.Start(t, emulate.Options{Nodes: 1, NoREST: true})
	if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is left: %v", err)
	}
}

// firstProcess is the first process of a namespace, as the machine numbers it.
func firstProcess(t *testing.T, namespace string) int {
	t.Helper()
	for _, link := range inSameNamespace(t, namespace) {
		status, err := os.ReadFile(filepath.Join(filepath.Dir(filepath.Dir(link)), "status"))
		var pid int
		if err == nil && regexp.MustCompile(`(?m)^NSpid:.*\t1$`).Match(status) {
			if _, err := fmt.Sscanf(link, "/proc/%d/ns/pid", &pid); err == nil {
				return pid
			}
		}
	}
	t.Fatal("the namespace has no first process")
	return 0
}

// An ordinary user has everything, too: this user is one for whom Slurm needs a stand-in.
func TestOrdinaryUser(t *testing.T) {
	emulatetest.Need(t, nil)
	t.Parallel()
	c := emulatetest.Start(t, emulate.Options{Nodes: 2, GPUs: 1, Rootless: true, JobSubmit: holdAll})
	if got := output(t, c.Command("srun", "-N2", "--gres=gpu:1", "sh", "-c", "test $CUDA_VISIBLE_DEVICES = 0 && id -un")); got != c.User+"\n"+c.User {
		t.Errorf("got %q, want twice %s", got, c.User)
	}
	fine(t, c, "/ping", nil)
	if caps := output(t, c.Command("sh", "-c", "grep CapEff /proc/self/status")); !strings.HasSuffix(caps, "\t0000000000000000") {
		t.Errorf("commands have capabilities: %s", caps)
	}
	if out, err := c.Command("touch", "/usr/bin/new").CombinedOutput(); err == nil || !strings.Contains(string(out), "Read-only") {
		t.Errorf("the release can be written: %v, %s", err, out)
	}
}

// A cluster that cannot start says why, and leaves nothing behind.
func TestStartFails(t *testing.T) {
	emulatetest.Need(t, nil)
	t.Parallel()
	folder := filepath.Join("/tmp", fmt.Sprintf("muster-test-%d", os.Getpid()))
	for _, c := range []struct {
		name, want string
		options    emulate.Options
	}{
		{"configuration", "slurmctld ended at once", emulate.Options{Extra: "SelectType=select/nonsense", Folder: folder, NoREST: true}},
		{"job_submit.lua", "slurmctld ended at once", emulate.Options{JobSubmit: "this is not lua", Folder: folder, NoREST: true}},
		{"folder", "is there already", emulate.Options{Folder: "/tmp"}},
		{"long folder", "has a name of", emulate.Options{Folder: "/tmp/" + strings.Repeat("x", 60)}},
		{"folder in /etc", "is below /etc", emulate.Options{Folder: "/etc/cluster"}},
		{"nodes", "5000 nodes: give 1 to 1024", emulate.Options{Nodes: 5000}},
		{"GPUs", "-1 GPUs a node: give 0 to 64", emulate.Options{GPUs: -1}},
		{"GPU nodes", "9 nodes with GPUs of 8 nodes", emulate.Options{GPUs: 1, GPUNodes: 9}},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
		cluster, err := emulate.Start(ctx, c.options)
		cancel()
		if err == nil {
			cluster.Close()
			t.Errorf("%s: it started", c.name)
		} else if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
		if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the folder is left: %v", c.name, err)
		}
	}
}
