package setup

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"muster/slurm/release"
)

// Finding is the result of one check of Doctor.
type Finding struct {
	// What says what is right or wrong, in a sentence; Remedy what to do about it, "" if nothing.
	What, Remedy string
	Wrong        bool
	// Odd says that it may be intended.
	Odd bool
}

// Run runs one of Slurm's commands and returns what it prints.
type Run func(name string, args ...string) (string, error)

// Doctor checks a Slurm that was set up: its files and, with its commands, its daemons.
func Doctor(o Options, run Run) []Finding {
	d := &doctor{run: run}
	d.files(o)
	d.program(o.Muster)
	d.grants(o)
	d.authority(o)
	d.twice(o)
	d.version(o.Release)
	if d.answers() {
		d.loaded(o)
		d.options()
		d.driver(o)
	}
	return d.found
}

type doctor struct {
	run   Run
	found []Finding
}

func (d *doctor) good(format string, args ...any) {
	d.found = append(d.found, Finding{What: fmt.Sprintf(format, args...)})
}

func (d *doctor) bad(remedy, format string, args ...any) {
	d.found = append(d.found, Finding{What: fmt.Sprintf(format, args...), Remedy: remedy, Wrong: true})
}

func (d *doctor) odd(remedy, format string, args ...any) {
	d.found = append(d.found, Finding{What: fmt.Sprintf(format, args...), Remedy: remedy, Odd: true})
}

// authority checks the certificate by which jobs recognise the nodes that lend.
func (d *doctor) authority(o Options) {
	path := o.Authority
	if path == "" && o.TLSDir != "" {
		path = filepath.Join(o.TLSDir, "ca.pem")
	}
	switch {
	case o.Agents == "":
	case path == "":
		d.bad("give --tls-dir, or --authority with the ca.pem that muster cert made", "jobs do not know who vouches for the nodes that lend")
	default:
		if _, err := os.Stat(path); err != nil {
			d.bad("make it with muster cert, or name another with --authority", "the certificate that vouches for the nodes that lend is not there: %v", err)
		}
	}
}

// files makes a plan: if it is empty, the files are right.
func (d *doctor) files(o Options) {
	plan, err := Make(o)
	if err != nil {
		d.bad("", "%v", err)
		return
	}
	for _, c := range plan.Changes {
		d.bad("muster slurm setup --conf "+o.Conf, "%s is not as it should be: %s", c.Path, c.What)
	}
	for _, left := range plan.Left {
		d.bad("", "%s", left)
	}
	if len(plan.Changes)+len(plan.Left) == 0 {
		d.good("the files in %s are as muster slurm setup writes them", o.Conf)
	}
}

// program checks the program that the plug-in starts on nodes.
func (d *doctor) program(path string) {
	switch info, err := os.Stat(path); {
	case err != nil:
		d.bad("install muster there on every node, or say where it is with --muster", "the program that the plug-in starts is not there: %v", err)
	case info.Mode().Perm()&0o005 != 0o005 || !info.Mode().IsRegular():
		d.bad("chmod 755 "+path, "users cannot run %s, which the plug-in starts for them", path)
	default:
		d.good("users can run %s", path)
	}
}

// grants checks the folder in which jobs find their grants.
func (d *doctor) grants(o Options) {
	if o.Grants == "" {
		return
	}
	switch info, err := os.Stat(o.Grants); {
	case err != nil || !info.IsDir():
		d.bad("mkdir -m 755 "+o.Grants+", on a file system that all nodes share", "the folder for grants %s is not there", o.Grants)
	case info.Mode().Perm()&0o022 != 0:
		d.bad("chmod go-w "+o.Grants, "others can write to %s, and put grants of theirs there", o.Grants)
	case info.Mode().Perm()&0o001 == 0:
		d.bad("chmod 755 "+o.Grants, "users cannot reach their grants in %s", o.Grants)
	default:
		d.good("jobs can find their grants in %s", o.Grants)
	}
}

// twice warns of GPUs that Slurm allocates and that nodes may lend at the same time.
func (d *doctor) twice(o Options) {
	if o.Agents == "" {
		return
	}
	c, err := readConfig(filepath.Join(o.Conf, "slurm.conf"))
	if err == nil && c.nodesHave("gpu") {
		d.bad("take gpu out of Gres= of nodes that lend; or see to it that no job asks for --gres=gpu that was submitted before setup, or by an administrator past the submit script",
			"slurm.conf gives nodes Gres=gpu: Slurm may give a job a GPU that its node lends to another, if Muster does not place that job")
	}
}

// driver asks the driver for its status.
func (d *doctor) driver(o Options) {
	out, err := d.run("muster", "slurm", "status")
	said, _, _ := strings.Cut(strings.TrimSpace(out), "\n")
	if err != nil {
		d.bad(o.DriverCommand()+", or systemctl enable --now muster-slurm", "the driver does not answer, and jobs wait for it: %s", said)
		return
	}
	if strings.HasPrefix(said, "Slurm does not answer the driver") {
		d.bad("start what does not answer, or name slurmrestd's address with --rest of muster slurm drive", "%s", said)
		return
	}
	d.good("the driver answers: %s", said)
}

func (d *doctor) version(want *release.Release) {
	out, err := d.run("scontrol", "--version")
	if err != nil {
		d.bad("put Slurm's commands into PATH", "scontrol does not run: %v", err)
		return
	}
	have, err := release.Of(strings.TrimPrefix(strings.TrimSpace(out), "slurm "))
	switch {
	case err != nil:
		d.bad("", "%v", err)
	case have != want:
		d.bad("muster slurm setup --version "+have.Name, "Slurm is %s and the plug-in is for %s", have.Name, want.Name)
	default:
		d.good("Slurm is %s", have.Name)
	}
}

func (d *doctor) answers() bool {
	out, err := d.run("scontrol", "ping")
	if err != nil || !strings.Contains(out, "UP") {
		d.bad("start slurmctld; its log says what it does not like", "slurmctld does not answer: %s", strings.TrimSpace(out))
		return false
	}
	d.good("slurmctld answers")
	return true
}

// loaded compares the configuration that slurmctld runs with to the files.
func (d *doctor) loaded(o Options) {
	out, err := d.run("scontrol", "show", "config")
	if err != nil {
		d.bad("", "scontrol show config: %v", err)
		return
	}
	values := map[string]string{}
	for line := range strings.Lines(out) {
		if key, value, ok := strings.Cut(line, "="); ok {
			values[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	if hasItem(values["JobSubmitPlugins"], "lua") {
		d.good("slurmctld runs job_submit.lua")
	} else {
		d.bad("restart slurmctld", "slurmctld runs without job_submit.lua: its JobSubmitPlugins is %q", values["JobSubmitPlugins"])
	}
	if strings.Contains(strings.ToUpper(values["SelectTypeParameters"]), "MEMORY") && values["DefMemPerNode"] == "UNLIMITED" {
		d.odd("give slurm.conf a DefMemPerCPU, if jobs are to share nodes", "a job that does not say --mem gets all memory of its nodes, so that nobody else is placed there")
	}
	if o.GPUs > 0 {
		if out, err := d.run("scontrol", "show", "license", "rgpu"); err != nil || !strings.Contains(out, fmt.Sprintf("Total=%d ", o.GPUs)) {
			d.bad("scontrol reconfigure, or restart slurmctld", "slurmctld has not %d licences rgpu", o.GPUs)
		} else {
			d.good("there are %d licences rgpu", o.GPUs)
		}
	}
}

// options asks sbatch for its options: it lists those of the plug-in if it could load the plug-in.
func (d *doctor) options() {
	out, err := d.run("sbatch", "--help")
	if err == nil && strings.Contains(out, "--rgpu") {
		d.good("sbatch has --rgpu, --rcuda-mode and --muster-or")
		return
	}
	d.bad("look at plugstack.conf on this machine, and at what sbatch says", "sbatch has no --rgpu: it does not load the plug-in")
}
