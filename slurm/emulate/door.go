package emulate

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"muster/internal/whois"
)

// request is a request to the first process: to run a command, or to do something to a daemon. The
// open files of a command come with it.
type request struct {
	Argv []string `json:"argv,omitempty"`
	Env  []string `json:"env,omitempty"`
	Dir  string   `json:"dir,omitempty"`

	Do     string         `json:"do,omitempty"` // signal, kill-node, restart
	Name   string         `json:"name,omitempty"`
	Signal syscall.Signal `json:"signal,omitempty"`
}

// answer is the result of a request.
type answer struct {
	Error string `json:"error,omitempty"`
	Exit  int    `json:"exit"`
}

// maxRequest limits a request: Linux allows a program 2 MB of arguments and environment.
const maxRequest = 8 << 20

// sendRequest sends a request with open files.
func sendRequest(conn *net.UnixConn, r request, files ...int) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	var length [4]byte
	binary.BigEndian.PutUint32(length[:], uint32(len(text)))
	var rights []byte
	if len(files) > 0 {
		rights = syscall.UnixRights(files...)
	}
	if _, _, err := conn.WriteMsgUnix(length[:], rights, nil); err != nil {
		return err
	}
	_, err = conn.Write(text)
	return err
}

// readRequest reads a request and the open files that came with it, which the caller must close.
func readRequest(conn *net.UnixConn) (r request, files []int, err error) {
	var length [4]byte
	control := make([]byte, syscall.CmsgSpace(3*4))
	n, controlled, _, _, err := conn.ReadMsgUnix(length[:], control)
	if err != nil {
		return r, nil, err
	}
	files = openFiles(control[:controlled])
	if _, err = io.ReadFull(conn, length[n:]); err != nil {
		return r, files, err
	}
	size := binary.BigEndian.Uint32(length[:])
	if size > maxRequest {
		return r, files, fmt.Errorf("a request of %d bytes is too large: at most %d are taken", size, maxRequest)
	}
	text := make([]byte, size)
	if _, err = io.ReadFull(conn, text); err != nil {
		return r, files, err
	}
	return r, files, json.Unmarshal(text, &r)
}

func openFiles(control []byte) (files []int) {
	messages, err := syscall.ParseSocketControlMessage(control)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		if fds, err := syscall.ParseUnixRights(&m); err == nil {
			files = append(files, fds...)
		}
	}
	return files
}

// serve answers requests until the cluster ends.
func (c *inner) serve(door net.Listener) {
	for {
		conn, err := door.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			json.NewEncoder(conn).Encode(c.handle(conn.(*net.UnixConn)))
		}()
	}
}

func (c *inner) handle(conn *net.UnixConn) answer {
	peer, err := whois.Of(conn)
	if err != nil {
		return answer{Error: err.Error()}
	}
	r, files, err := readRequest(conn)
	defer func() {
		for _, fd := range files {
			syscall.Close(fd)
		}
	}()
	if err != nil {
		return answer{Error: "reading the request: " + err.Error()}
	}
	owner := peer.Uid == 0 || int(peer.Uid) == c.UID
	switch {
	case !owner && (c.Rootless || r.Do != ""):
		return answer{Error: "this cluster belongs to another user"}
	case r.Do != "":
		if err := c.do(r); err != nil {
			return answer{Error: err.Error()}
		}
		return answer{}
	case len(r.Argv) == 0 || len(files) != 3:
		return answer{Error: "the request has no command, or not three open files"}
	}
	return c.run(conn, r, files, peer)
}

func (c *inner) do(r request) error {
	switch r.Do {
	case "signal":
		return c.signal(r.Name, r.Signal)
	case "kill-node":
		return c.killNode(r.Name)
	case "restart":
		return c.restart(r.Name)
	}
	return fmt.Errorf("%q is nothing that can be done", r.Do)
}

// run runs a command for a client outside, as that client's user, and kills it if the client
// disconnects.
func (c *inner) run(conn *net.UnixConn, r request, files []int, peer *syscall.Ucred) answer {
	path, err := c.find(r.Argv[0], r.Dir)
	if err != nil {
		return answer{Error: err.Error(), Exit: 127}
	}
	if _, err := os.Stat(r.Dir); err != nil {
		return answer{Error: fmt.Sprintf("the folder %s is not in the cluster: /usr and /etc are the release's own there; start from another folder", r.Dir), Exit: 126}
	}
	sys := &syscall.SysProcAttr{Setsid: true}
	if !c.Rootless {
		sys.Credential = &syscall.Credential{Uid: peer.Uid, Gid: peer.Gid}
	}
	child, err := c.processes.start(append([]string{path}, r.Argv[1:]...), &syscall.ProcAttr{
		Dir: r.Dir, Env: c.jobEnvironment(r.Env), Files: []uintptr{uintptr(files[0]), uintptr(files[1]), uintptr(files[2])}, Sys: sys,
	})
	if err != nil {
		return answer{Error: err.Error(), Exit: 126}
	}
	left := make(chan struct{})
	go passSignals(conn, child.pid, left)
	select {
	case status := <-child.end:
		return answer{Exit: exitCode(status)}
	case <-left:
		syscall.Kill(-child.pid, syscall.SIGKILL)
		return answer{Exit: exitCode(<-child.end)}
	}
}

// passSignals forwards the signals that the client outside receives, until the client disconnects.
func passSignals(conn *net.UnixConn, pid int, left chan<- struct{}) {
	defer close(left)
	decoder := json.NewDecoder(conn)
	for {
		var sig syscall.Signal
		if decoder.Decode(&sig) != nil {
			return
		}
		syscall.Kill(-pid, sig)
	}
}

func exitCode(s syscall.WaitStatus) int {
	if s.Signaled() {
		return 128 + int(s.Signal())
	}
	return s.ExitStatus()
}

// find finds a command as a shell does, in the release's directories.
func (c *inner) find(name, dir string) (string, error) {
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		return name, nil
	}
	for _, d := range strings.Split(systemPath, ":") {
		path := filepath.Join(d, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("the release has no command %s", name)
}

// jobEnvironment is the environment of a command, and so of its jobs: the client's, with Slurm's
// configuration, and without the directory of scripts that lead from outside to inside.
func (c *inner) jobEnvironment(env []string) []string {
	var kept []string
	path := systemPath
	for _, setting := range env {
		name, value, _ := strings.Cut(setting, "=")
		switch name {
		case "SLURM_CONF":
		case "PATH":
			folders := slices.DeleteFunc(strings.Split(value, ":"), func(d string) bool { return d == c.path("bin") })
			path = strings.Join(folders, ":")
		default:
			kept = append(kept, setting)
		}
	}
	return append(kept, "PATH="+path, "SLURM_CONF="+c.path("slurm.conf"))
}

// enter is the client outside: it runs a command in a cluster and ends with the command's exit
// code. Its arguments are the cluster's socket and the command.
func enter(args []string) int {
	if len(args) < 2 {
		fmt.Fprintln(os.Stderr, "this is a part of muster slurm emulate and not to be started by hand")
		return 2
	}
	exit, err := enterAndWait(args[0], args[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", args[1], err)
		return max(exit, 1)
	}
	return exit
}

func enterAndWait(socket string, argv []string) (int, error) {
	dir, err := os.Getwd()
	if err != nil {
		return 1, err
	}
	conn, err := dialDoor(socket)
	if err != nil {
		return 1, err
	}
	defer conn.Close()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH)
	if err := sendRequest(conn, request{Argv: argv, Env: os.Environ(), Dir: dir}, 0, 1, 2); err != nil {
		return 1, err
	}
	go func() {
		to := json.NewEncoder(conn)
		for s := range signals {
			to.Encode(s.(syscall.Signal))
		}
	}()
	return readAnswer(conn)
}

func dialDoor(socket string) (*net.UnixConn, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("the emulated cluster in %s is not there any more: %w", filepath.Dir(socket), err)
	}
	return conn, nil
}

func readAnswer(conn *net.UnixConn) (int, error) {
	var a answer
	if err := json.NewDecoder(conn).Decode(&a); err != nil {
		return 1, errors.New("the emulated cluster has ended")
	}
	if a.Error != "" {
		return a.Exit, errors.New(a.Error)
	}
	return a.Exit, nil
}

// slurmCommands are the commands for which scripts are written, if the release has them.
var slurmCommands = []string{
	"sacct", "sacctmgr", "salloc", "sattach", "sbatch", "sbcast", "scancel", "scontrol", "scrontab", "sdiag", "sinfo", "sprio", "squeue",
	"sreport", "srun", "sshare", "sstat", "strigger", "munge", "unmunge",
}

// IsCommand says whether a name is one of Slurm's commands, for which a cluster has a script.
func IsCommand(name string) bool { return slices.Contains(slurmCommands, name) }

// writeScripts writes the scripts with which programs outside run Slurm's commands.
func writeScripts(folder, tree string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, name := range slurmCommands {
		if _, err := exec.LookPath(filepath.Join(tree, "usr", "bin", name)); err != nil {
			continue
		}
		script := fmt.Sprintf("#!/bin/sh\nexec %s %s %s/%s %s \"$@\"\n", quote(self), enterWord, folder, doorName, name)
		if err := os.WriteFile(filepath.Join(folder, "bin", name), []byte(script), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// quote quotes a word for a shell.
func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }
