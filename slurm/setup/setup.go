// Package setup makes an existing Slurm use Muster, and undoes that: the plug-in and its line in
// plugstack.conf, the submit script and its lines in job_submit.lua, the settings in slurm.conf
// that load it, licences, the key for REST, and units for systemd.
//
// Everything is a plan first: a list of files as they are and as they will be, which can be shown
// as differences. Lines that people wrote are never changed: Muster's lines stand in a block of
// their own between two marks (block.go). If slurm.conf already has a setting with another value,
// the plan says what to write instead of writing it. Undoing removes the blocks and restores every
// byte. The package talks to no daemon, except Doctor, through commands that its caller runs.
package setup

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"muster/internal/wholefile"
	"muster/slurm/release"
	"muster/slurm/spank"
)

// Options say which Slurm to set up, and how.
type Options struct {
	// Conf is the folder with slurm.conf.
	Conf string
	// Release is the release of that Slurm.
	Release *release.Release
	// Include is the folder with the release's headers: slurm/spank.h.
	Include string
	// Muster is the path of the program muster on the nodes.
	Muster string
	// Library is the path of the plug-in, the same on all machines; "" is Conf/spank_muster.so.
	Library string
	// Socket is the address of the nodes' daemons; "" is the default.
	Socket string
	// All and Partitions say which jobs Muster places beside those that ask for its GPUs.
	All        bool
	Partitions []string
	// Alive is a file to which the driver writes the time. While the driver is away, jobs that need
	// none of its GPUs go to Slurm. If Alive is "", they wait.
	Alive string
	// GPUs is how many GPUs nodes lend, as licences; 0 is no licences.
	GPUs int
	// REST lets the driver use slurmrestd: it needs a key and, with Units, a setting for
	// slurmrestd's service.
	REST bool
	// Agents is the address at which nodes that lend GPUs connect to the driver, TLSDir the folder
	// with its certificate, and Grants the folder in which jobs find their grants; "" if no node
	// lends. Authority is the certificate that vouches for the nodes; "" is the one in TLSDir.
	Agents, TLSDir, Grants, Authority string
	// RESTAddress is slurmrestd's, for the driver.
	RESTAddress string
	// Units is the folder for systemd's units; "" if none are to be written. Driver is the command
	// line of the driver's service; "" if it follows from the other options.
	Units, Driver string
}

// driverSocket is where muster slurm status asks. It is the same if SlurmUser runs the driver and
// root asks.
const driverSocket = "/run/muster/slurm.sock"

// DriverCommand is the command line of the driver.
func (o *Options) DriverCommand() string {
	if o.Driver != "" {
		return o.Driver
	}
	line := o.Muster + " slurm drive"
	for _, f := range []struct{ name, value string }{{"agents", o.Agents}, {"tls-dir", o.TLSDir}, {"authority", o.Authority}, {"grants", o.Grants}, {"alive", o.Alive}} {
		if f.value != "" {
			line += " --" + f.name + " " + f.value
		}
	}
	if o.REST && o.RESTAddress != "" {
		line += " --rest " + o.RESTAddress
	}
	return line + " --socket " + driverSocket
}

// Change is a file as it is and as it will be.
type Change struct {
	Path string
	// Before and After are its contents; nil if the file does not exist.
	Before, After []byte
	// Secret says that the contents must not be shown, Binary that they cannot be.
	Secret, Binary bool
	// What says what the file is for.
	What string

	mode  os.FileMode
	owner int // -1: the user who runs this
	build func(context.Context, string) error
}

// Plan is what must be done.
type Plan struct {
	Changes []Change
	// Left is what only people can do, a sentence each.
	Left []string
}

// files limits the files that are read.
var files = wholefile.Limit{Bytes: 4 << 20, Remedy: "is this a file of Slurm's configuration?"}

const (
	scriptName = "muster.lua"
	keyName    = "muster_jwt.key"
	unitName   = "muster-slurm.service"
	dropIn     = "slurmrestd.service.d/muster.conf"
)

// planner makes a plan.
type planner struct {
	Options
	plan   Plan
	config *config
	admin  int // SlurmUser
	remove bool
}

// Make plans what must be done for a Slurm to use Muster. It changes nothing.
func Make(o Options) (*Plan, error) { return newPlan(o, false) }

// Unmake plans what must be done for a Slurm to be as it was before.
func Unmake(o Options) (*Plan, error) { return newPlan(o, true) }

func newPlan(o Options, remove bool) (*Plan, error) {
	conf, err := filepath.Abs(o.Conf)
	if err != nil {
		return nil, err
	}
	o.Conf = conf
	if o.Library == "" {
		o.Library = filepath.Join(conf, spank.Library)
	}
	p := &planner{Options: o, remove: remove}
	if p.config, err = readConfig(filepath.Join(conf, "slurm.conf")); err != nil {
		return nil, err
	}
	if p.admin, err = p.slurmUser(); err != nil {
		return nil, err
	}
	for _, step := range []func() error{p.plugIn, p.plugStack, p.script, p.jobSubmit, p.key, p.slurmConf, p.gres, p.units} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return &p.plan, nil
}

// slurmUser is the uid of SlurmUser, who may release and place jobs.
func (p *planner) slurmUser() (int, error) {
	name := p.config.value("SlurmUser")
	if name == "" {
		return 0, nil
	}
	if n, err := strconv.Atoi(name); err == nil {
		return n, nil
	}
	u, err := user.Lookup(name)
	if err != nil && p.remove {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("%s: SlurmUser=%s: there is no such user on this machine: run this where slurmctld runs", p.config.path, name)
	}
	return strconv.Atoi(u.Uid)
}

func (p *planner) leave(format string, args ...any) {
	if !p.remove {
		p.plan.Left = append(p.plan.Left, fmt.Sprintf(format, args...))
	}
}

// want adds a change, unless the file is as it should be.
func (p *planner) want(c Change) error {
	before, err := read(c.Path)
	if err != nil {
		return err
	}
	c.Before = before
	if before != nil && c.After != nil && bytes.Equal(before, c.After) || before == nil && c.After == nil {
		return nil
	}
	if c.mode == 0 {
		c.mode = 0o644
	}
	p.plan.Changes = append(p.plan.Changes, c)
	return nil
}

// read reads a file; nil if it does not exist.
func read(path string) ([]byte, error) {
	text, err := files.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && text == nil {
		text = []byte{}
	}
	return text, err
}

// block plans a file that has Muster's block with this body; "" if it is to have none.
func (p *planner) block(path, comment, body, what string, before func(string) bool) error {
	text, err := read(path)
	if err != nil {
		return err
	}
	if p.remove {
		body = ""
	}
	after, err := withBlock(string(text), comment, body, before)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	change := Change{Path: path, After: []byte(after), What: what, owner: -1}
	switch {
	case text == nil && after == "":
		return nil
	case text == nil:
		change.After = []byte(block(comment, body, newFile))
	case after == "" && noteOf(string(text), comment) == newFile:
		change.After = nil // the block was all that the file had
	}
	return p.want(change)
}

// whole plans a file that belongs to Muster alone.
func (p *planner) whole(c Change, mark string) error {
	text, err := read(c.Path)
	if err != nil {
		return err
	}
	if text != nil && mark != "" && !bytes.Contains(text, []byte(mark)) {
		if p.remove {
			return nil // it belongs to another program
		}
		return fmt.Errorf("%s is there and is not Muster's: move it away, or choose another name", c.Path)
	}
	if p.remove {
		c.After = nil
	}
	return p.want(c)
}

func (p *planner) plugIn() error {
	path := p.Library
	text, err := read(path)
	if err != nil {
		return err
	}
	c := Change{Path: path, Before: text, Binary: true, What: "the plug-in, compiled for Slurm " + p.Release.Name, mode: 0o755, owner: -1}
	switch {
	case p.remove && !bytes.Contains(text, []byte(spank.StampPrefix)):
		return nil // there is none, or it belongs to another program
	case p.remove:
	case bytes.Contains(text, []byte(spank.Stamp(p.Release))):
		return nil
	case text != nil && !bytes.Contains(text, []byte(spank.StampPrefix)):
		return fmt.Errorf("%s is there and is not Muster's: move it away, or choose another name with --library", path)
	default:
		c.After = []byte(spank.Stamp(p.Release))
		c.build = func(ctx context.Context, to string) error { return spank.Build(ctx, p.Release, p.Include, to) }
	}
	p.plan.Changes = append(p.plan.Changes, c)
	return nil
}

// plugStackPath is where Slurm looks for plugstack.conf.
func (p *planner) plugStackPath() string {
	if path := p.config.value("PlugStackConfig"); path != "" {
		return path
	}
	return filepath.Join(p.Conf, "plugstack.conf")
}

func (p *planner) plugStack() error {
	return p.block(p.plugStackPath(), "#", spank.PlugStack(p.Library, p.Muster, p.Socket), "Slurm's commands and nodes load the plug-in", nil)
}

func (p *planner) script() error {
	settings := spank.Settings{Admins: []int{p.admin}, All: p.All, Partitions: p.Partitions, Gres: p.config.nodesHave("rgpu"), Alive: p.Alive}
	settings.OwnGPUs = p.Agents != "" && p.config.nodesHave("gpu")
	if p.GPUs > 0 {
		settings.Licence = "rgpu"
	}
	text, err := spank.Script(settings)
	if err != nil {
		return err
	}
	return p.whole(Change{Path: filepath.Join(p.Conf, scriptName), After: []byte(text), What: "checks requests and holds jobs for Muster", owner: -1}, "-- Muster's part of job_submit.lua")
}

// jobSubmit inserts Muster's lines before the last return of job_submit.lua, after which Lua allows
// nothing.
func (p *planner) jobSubmit() error {
	path := filepath.Join(p.Conf, "job_submit.lua")
	text, err := read(path)
	if err != nil {
		return err
	}
	body := spank.Hook(filepath.Join(p.Conf, scriptName))
	rest, err := withBlock(string(text), "--", "", nil)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if strings.TrimSpace(rest) == "" {
		body += "return slurm.SUCCESS\n"
	}
	return p.block(path, "--", body, "slurmctld asks Muster's script", func(line string) bool { return strings.HasPrefix(line, "return") })
}

// keyPath is the path of the key for REST's tokens, and whether the key is Muster's.
func (p *planner) keyPath() (path string, own bool) {
	for _, word := range strings.Split(p.config.value("AuthAltParameters"), ",") {
		if path, ok := strings.CutPrefix(strings.TrimSpace(word), "jwt_key="); ok {
			return path, false
		}
	}
	return filepath.Join(p.Conf, keyName), true
}

func (p *planner) key() error {
	path, own := p.keyPath()
	if p.remove {
		return p.whole(Change{Path: filepath.Join(p.Conf, keyName), Secret: true, What: "the key for REST's tokens"}, "")
	}
	if !p.REST {
		return nil
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.Mode().Perm()&0o077 != 0:
		p.leave("others can read the key %s, and be anybody to Slurm: chmod 600 %s", path, path)
		return nil
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return err
	case !own:
		p.leave("the key %s, which slurm.conf names, is not there: dd if=/dev/random of=%s bs=32 count=1, give it to SlurmUser, and chmod 600 it", path, path)
		return nil
	}
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return p.want(Change{Path: path, After: key, Secret: true, Binary: true, What: "the key for REST's tokens", mode: 0o600, owner: p.admin})
}

// slurmConf adds the settings that slurm.conf lacks. Settings that exist with other values are left
// to people.
func (p *planner) slurmConf() error {
	var b strings.Builder
	list := func(key, item, why string) {
		old := p.config.value(key)
		switch {
		case old == "":
			fmt.Fprintf(&b, "%s=%s\n", key, item)
		case !hasItem(old, item):
			p.leave("%s: write %s=%s,%s, %s", p.config.where(key), key, old, item, why)
		}
	}
	list("JobSubmitPlugins", "lua", "so that slurmctld runs job_submit.lua")
	if p.GPUs > 0 {
		list("Licenses", fmt.Sprintf("rgpu:%d", p.GPUs), "so that jobs take a licence for each whole GPU")
	}
	if p.REST {
		list("AuthAltTypes", "auth/jwt", "so that slurmrestd takes tokens")
		if path, own := p.keyPath(); own {
			list("AuthAltParameters", "jwt_key="+path, "so that slurmctld knows the key for tokens")
		}
	}
	if p.config.value("PlugStackConfig") == "" && p.Conf != "/etc/slurm" {
		fmt.Fprintf(&b, "PlugStackConfig=%s\n", p.plugStackPath())
	}
	return p.block(p.config.path, "#", b.String(), "slurmctld loads the script; restart slurmctld after it", nil)
}

// gres makes nodes that are configured to have rgpu count it.
func (p *planner) gres() error {
	path := filepath.Join(p.Conf, "gres.conf")
	count := p.config.gresCount("rgpu")
	body := fmt.Sprintf("Name=rgpu Count=%d Flags=CountOnly\n", count)
	text, err := read(path)
	if err != nil {
		return err
	}
	rest, err := withBlock(string(text), "#", "", nil)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if count == 0 || strings.Contains(rest, "Name=rgpu") {
		body = ""
	}
	if count > 0 && !hasItem(p.config.value("GresTypes"), "rgpu") {
		p.leave("%s: nodes have Gres=rgpu: add rgpu to GresTypes", p.config.path)
	}
	return p.block(path, "#", body, "nodes count rgpu for srun --gres", nil)
}

const unitText = `# Written by muster slurm setup.
[Unit]
Description=Muster: places jobs of Slurm
After=network-online.target slurmctld.service
Wants=network-online.target

[Service]
Type=exec
ExecStart=%s
User=%s
Restart=always
RestartSec=2
NoNewPrivileges=yes
ProtectSystem=full
RuntimeDirectory=muster
RuntimeDirectoryPreserve=yes
# Grants are files of the jobs' users.
AmbientCapabilities=CAP_CHOWN

[Install]
WantedBy=multi-user.target
`

const dropInText = `# Written by muster slurm setup. Without it slurmrestd takes no tokens.
[Service]
Environment=SLURM_JWT=daemon
`

func (p *planner) units() error {
	if p.Units == "" {
		return nil
	}
	name := p.config.value("SlurmUser")
	if name == "" {
		name = "root"
	}
	if info, err := os.Stat(p.Units); err != nil || !info.IsDir() {
		return fmt.Errorf("the folder for units %s is not there: name systemd's with --units, or leave that out", p.Units)
	}
	const mark = "# Written by muster slurm setup"
	if err := p.whole(Change{Path: filepath.Join(p.Units, unitName), After: fmt.Appendf(nil, unitText, p.DriverCommand(), name),
		What: "the driver as a service: systemctl enable --now muster-slurm", owner: -1}, mark); err != nil {
		return err
	}
	if !p.REST && !p.remove {
		return nil
	}
	return p.whole(Change{Path: filepath.Join(p.Units, dropIn), After: []byte(dropInText), What: "slurmrestd takes tokens: systemctl daemon-reload, then restart it", owner: -1}, mark)
}

// hasItem says whether a list with commas has an item; of NAME:COUNT only the name is compared.
func hasItem(list, item string) bool {
	name, _, _ := strings.Cut(item, ":")
	return slices.ContainsFunc(strings.Split(list, ","), func(s string) bool {
		have, _, _ := strings.Cut(strings.TrimSpace(s), ":")
		return strings.EqualFold(have, name)
	})
}

// Apply makes the changes. It stops at a file that was changed after the plan was made.
func (p *Plan) Apply(ctx context.Context) error {
	for _, c := range p.Changes {
		if err := c.apply(ctx); err != nil {
			return fmt.Errorf("%s: %w", c.Path, err)
		}
	}
	return nil
}

func (c Change) apply(ctx context.Context) error {
	now, err := read(c.Path)
	if err != nil {
		return err
	}
	if (now == nil) != (c.Before == nil) || !bytes.Equal(now, c.Before) {
		return errors.New("it has just been changed by somebody else: try again")
	}
	if c.After == nil {
		return c.delete()
	}
	if err := os.MkdirAll(filepath.Dir(c.Path), 0o755); err != nil {
		return err
	}
	if c.build != nil {
		return c.build(ctx, c.Path)
	}
	return c.write()
}

// delete removes the file, and the folder of a drop-in if it is then empty.
func (c Change) delete() error {
	if err := os.Remove(c.Path); err != nil {
		return err
	}
	if strings.HasSuffix(filepath.Dir(c.Path), ".d") {
		_ = os.Remove(filepath.Dir(c.Path)) // fails if the folder has other files
	}
	return nil
}

// write replaces the file atomically and keeps its mode and owner.
func (c Change) write() error {
	path := c.Path
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	mode, uid, gid := c.mode, c.owner, -1
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
		uid, gid = int(info.Sys().(*syscall.Stat_t).Uid), int(info.Sys().(*syscall.Stat_t).Gid)
	}
	next := path + ".muster-new"
	if err := os.WriteFile(next, c.After, 0o600); err != nil {
		return err
	}
	defer os.Remove(next)
	if os.Geteuid() == 0 {
		if err := os.Chown(next, uid, gid); err != nil {
			return err
		}
	}
	if err := os.Chmod(next, mode); err != nil {
		return err
	}
	return os.Rename(next, path)
}
