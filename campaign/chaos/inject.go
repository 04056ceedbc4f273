package chaos

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"muster/campaign/vitals"
	"muster/wire/status"
)

// errNobody says that there is no victim for this kind of fault at present.
var errNobody = errors.New("there is nobody to hurt")

// The maximum duration of faults without progress.
const (
	pauseTime = 300 * time.Millisecond // well below workerTimeout
	blinkTime = 60 * time.Millisecond  // pause of the daemon, during which no progress is visible
	awayTime  = 1500 * time.Millisecond
)

// inject injects a fault.
func (e *episode) inject(f fault) error {
	does := map[Kind]func(fault) error{
		WorkerKill: e.killWorker, WorkerStop: e.stopWorker, WorkerPause: e.pauseWorker,
		ClientKill: e.killClient, ClientPause: e.pauseClient,
		DaemonKill: e.killDaemon, DaemonPause: e.pauseDaemon, Handover: e.handOver,
		DeviceLost: e.loseDevice, DeviceDrain: e.drainDevice, DeviceRemove: e.removeDevice, Move: e.move,
		LaunchFail: e.failOnce, LaunchLost: e.failOnce, CopyLost: e.failOnce, MapFail: e.failOnce, DiskFull: e.fillDisk,

		SabotageResult: e.failOnce, SabotageKill: e.sabotageKill, SabotageHang: e.sabotageHang,
		SabotageProcess: e.sabotageProcess, SabotageFile: e.sabotageFile, SabotageDescriptor: e.sabotageDescriptor,
	}
	return does[f.kind](f)
}

func (e *episode) victim(f fault) (service, error) {
	if e.away {
		return service{}, errNobody
	}
	all := e.served()
	if len(all) == 0 {
		return service{}, errNobody
	}
	return all[pick(f.choice, len(all))], nil
}

// hits gives a program an excuse for a fault, unless it is expected to survive it.
func (e *episode) hits(p *program, f fault, words string) {
	if e.o.Expect == Fail {
		p.excuses = append(p.excuses, excuse{f.String(), words})
	}
}

func (e *episode) killWorker(f fault) error {
	v, err := e.victim(f)
	if err != nil {
		return err
	}
	e.hits(v.program, f, "its worker has ended: signal: killed")
	e.spent[v.worker.pid], e.dying = true, v.worker.pid
	v.program.hurt++
	e.note("%v: process %d of %v", f, v.worker.pid, v.program)
	return signal(v.worker.pid, syscall.SIGKILL)
}

func (e *episode) stopWorker(f fault) error {
	v, err := e.victim(f)
	if err != nil {
		return err
	}
	e.hits(v.program, f, "its worker has not answered")
	e.spent[v.worker.pid] = true
	v.program.hurt++
	e.note("%v: process %d of %v", f, v.worker.pid, v.program)
	return signal(v.worker.pid, syscall.SIGSTOP)
}

func (e *episode) pauseWorker(f fault) error {
	v, err := e.victim(f)
	if err != nil {
		return err
	}
	e.note("%v: process %d of %v", f, v.worker.pid, v.program)
	e.later(f, pauseTime, "the worker goes on", func() error {
		_ = syscall.Kill(v.worker.pid, syscall.SIGCONT) // it may be gone
		return nil
	})
	return signal(v.worker.pid, syscall.SIGSTOP)
}

// signal sends a signal to a process, and ignores that it may have just ended.
func signal(pid int, s syscall.Signal) error {
	if err := syscall.Kill(pid, s); !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return errNobody
}

func (e *episode) killClient(f fault) error {
	p, err := e.client(f)
	if err != nil {
		return err
	}
	e.note("%v: %v", f, p)
	p.killed = f.String()
	p.signal(syscall.SIGKILL)
	return nil
}

func (e *episode) pauseClient(f fault) error {
	p, err := e.client(f)
	if err != nil {
		return err
	}
	e.note("%v: %v", f, p)
	p.paused = true
	p.signal(syscall.SIGSTOP)
	e.later(f, pauseTime, fmt.Sprintf("%v goes on", p), func() error {
		p.paused = false
		p.signal(syscall.SIGCONT)
		return nil
	})
	return nil
}

// killDaemon kills the daemon and starts it again. It first waits until all programs have
// connected, because a program cannot connect to a daemon that is not running.
func (e *episode) killDaemon(f fault) error {
	if !e.isUndone(DaemonPause) || !e.isSettled() {
		return errNobody
	}
	if err := e.letIn(); err != nil {
		return err
	}
	if !e.isSettled() { // it may have changed meanwhile
		return errNobody
	}
	e.note("%v: process %d", f, e.node.pid())
	for _, p := range e.running() {
		e.hits(p, f, "muster: ")
	}
	e.closeGateway(f)
	e.node.kill()
	if e.o.Expect == Fail {
		e.kernels = map[uint64]uint64{} // a new daemon numbers clients from the beginning
	}
	e.away = e.o.Expect == Survive
	return e.node.start()
}

// isSettled says whether no program is between two workers, or about to be. Between two workers,
// the client's state is only in the daemon, so a program does not survive the loss of both.
func (e *episode) isSettled() bool {
	for _, f := range e.armed {
		if endsWorkers(f.kind) {
			return false
		}
	}
	if !e.isUndone(DeviceLost) || time.Since(e.lostUntil) < stallTime {
		return false // a worker that has noticed the loss may be about to end
	}
	e.look()
	remote := map[int]bool{} // their memory is shared with the relay to the node; they do not survive the daemon
	for _, p := range e.programs {
		remote[p.number] = p.remote
	}
	return allServed(e.processes, e.spent, remote)
}

// allServed says whether each program that shares memory with a worker, except remote ones, has a
// worker that is alive and not about to end. A worker that has mapped the memory has everything
// that it needs to survive the daemon.
func allServed(processes map[int]*process, spent, remote map[int]bool) bool {
	has := map[string]bool{}
	for pid, w := range processes {
		if w.role == isWorker && !spent[pid] {
			maps.Copy(has, w.shared)
		}
	}
	for _, p := range processes {
		if p.role != isProgram || remote[p.program] {
			continue
		}
		for memory := range p.shared {
			if !has[memory] {
				return false
			}
		}
	}
	return true
}

// closeGateway gives an excuse to programs of other machines, whose connections end with the
// daemon.
func (e *episode) closeGateway(f fault) {
	for _, p := range e.running() {
		if p.remote {
			p.excuses = append(p.excuses, excuse{f.String(), "muster"}) // the prefix of the program's or of muster run's message
		}
	}
}

// handOver makes the daemon hand its programs over to the next one. The daemon waits for programs
// that are between two workers, so the state of workers does not matter, except for one that was
// just killed and that the system has not ended yet, of which the daemon cannot know. All devices
// must be present, because a daemon does not start without them.
func (e *episode) handOver(f fault) error {
	if !e.node.up() || e.lost > 0 || !e.isUndone(DeviceLost) || e.dying != 0 && !vitals.IsZombie(e.dying) {
		return errNobody
	}
	e.note("%v: process %d", f, e.node.pid())
	e.closeGateway(f)
	e.away = true
	if err := e.node.request(map[string]any{"request": "stop", "how": "handover"}, &struct{}{}); err != nil {
		return err
	}
	select {
	case <-e.node.exited:
	case <-time.After(e.o.Patience):
		return fmt.Errorf("the daemon that was to hand over does not end within %v", e.o.Patience)
	}
	return e.node.start()
}

// letIn waits until all programs are clients of the daemon. Meanwhile it undoes faults that are
// due, because the programs may be waiting for that.
func (e *episode) letIn() error {
	for end := time.Now().Add(e.o.Patience); ; time.Sleep(pollTime) {
		if err := e.undoDue(false); err != nil {
			return err
		}
		s, err := e.node.status()
		if err != nil {
			return err
		}
		if e.allIn(s) {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("not all programs have reached the node within %v", e.o.Patience)
		}
	}
}

func (e *episode) pauseDaemon(f fault) error {
	if !e.node.up() {
		return errNobody
	}
	e.note("%v: process %d", f, e.node.pid())
	e.node.paused = true
	e.later(f, blinkTime, "the daemon goes on", func() error {
		e.node.paused = false
		return e.node.cmd.Process.Signal(syscall.SIGCONT)
	})
	return e.node.cmd.Process.Signal(syscall.SIGSTOP)
}

// failOnce makes the next call of a kind on the device fail.
func (e *episode) failOnce(f fault) error {
	file := trigger(e.rules, e.device(f), f.kind)
	e.look()
	e.collect()
	if _, waits := e.armed[file]; waits || endsWorkers(f.kind) && !e.canLose() {
		return errNobody // no program has met the previous one yet
	}
	e.note("%v: %s", f, filepath.Base(file))
	e.armed[file] = f
	return os.WriteFile(file, nil, 0o666)
}

// ruleWords are the messages of programs that meet a failure by rule and do not survive it.
var ruleWords = map[Kind]string{
	LaunchFail: "illegal address: by rule", LaunchLost: "device lost: by rule", CopyLost: "device lost: by rule", MapFail: "out of device memory",
}

// excuses says whether a failure by rule is an excuse for the program that meets it. A faulty
// kernel, and a device without memory, are errors of the program itself, even if programs survive
// all others.
func (e *episode) excuses(k Kind) bool {
	return k == LaunchFail || k == MapFail || (k == LaunchLost || k == CopyLost) && e.o.Expect == Fail
}

// collect finds out which programs have met failures by rule: the worker that meets one renames the
// trigger file to end in its PID. If the worker had not been seen before, its program is unknown,
// and the excuse waits for a program that needs it.
func (e *episode) collect() {
	for file, f := range e.armed {
		taken, _ := filepath.Glob(file + ".*")
		if len(taken) == 0 {
			continue
		}
		_ = os.Remove(taken[0])
		delete(e.armed, file)
		var pid int
		_, _ = fmt.Sscanf(filepath.Ext(taken[0]), ".%d", &pid)
		p, x := e.servedBy(pid), excuse{f.String(), ruleWords[f.kind]}
		switch {
		case !e.excuses(f.kind):
		case p == nil:
			e.unclaimed = append(e.unclaimed, x)
		default:
			p.excuses = append(p.excuses, x)
		}
		if f.kind == LaunchLost || f.kind == CopyLost { // the worker ends
			e.spent[pid] = true
		}
		if p != nil {
			p.hurt++
			e.note("%v has hit %v, process %d", f, p, pid)
		} else {
			e.note("%v has hit process %d", f, pid)
		}
	}
}

// endsWorkers says whether a failure by rule ends the worker that meets it, so that the node
// rebuilds the client in another.
func endsWorkers(k Kind) bool { return k == LaunchLost || k == CopyLost || k == MapFail }

// canLose says whether the node has another device if it loses one. The node probes a lost device,
// and that probe may meet the next failure by rule, which looks like a device that is still lost.
// So only one such failure may be pending at a time.
func (e *episode) canLose() bool {
	if e.away || e.lost > 0 || !e.isUndone(DeviceLost) {
		return false
	}
	for _, f := range e.armed {
		if endsWorkers(f.kind) {
			return false
		}
	}
	return !slices.ContainsFunc(e.running(), func(p *program) bool { return p.hurt >= maxHurt })
}

// bringBack resumes devices that the node considers lost although they work again. The node would
// find out by itself, but only after some seconds.
func (e *episode) bringBack(s *status.Node) {
	e.lost = 0
	for i, d := range s.Devices {
		if !d.Lost {
			continue
		}
		e.lost++
		if e.isUndone(DeviceLost) {
			err := e.node.request(map[string]any{"request": "device-resume", "device": fmt.Sprintf("#%d", i)}, &struct{}{})
			e.note("%s, which was lost, is resumed (%v)", d.Name, err)
		}
	}
}

// loseDevice makes a device fail, unless it is the last.
func (e *episode) loseDevice(f fault) error {
	if !e.canLose() || !e.isUndone(DeviceDrain, DeviceRemove) {
		return errNobody
	}
	name := e.device(f)
	file := trigger(e.rules, name, DeviceLost)
	e.note("%v: %s", f, name)
	if e.o.Expect == Fail {
		e.surround(excuse{f.String(), "device lost: by rule"})
	}
	for _, p := range e.running() { // any of them may lose its device
		if !p.remote { // the node's status does not show the progress of remote programs
			p.hurt++
		}
	}
	e.later(f, awayTime, name+" is back", func() error {
		e.calm(f)
		e.lostUntil = time.Now()
		return os.Remove(file)
	})
	return os.WriteFile(file, nil, 0o666)
}

func (e *episode) drainDevice(f fault) error {
	if e.lost > 0 || !e.isUndone(DeviceLost, DeviceDrain, DeviceRemove) || !e.node.up() {
		return errNobody
	}
	name := e.device(f)
	e.note("%v: %s", f, name)
	e.later(f, awayTime, name+" is resumed", func() error { return e.ask("device-resume", name) })
	return e.ask("device-drain", name)
}

// removeDevice removes a device, and later adds it, or another one.
func (e *episode) removeDevice(f fault) error {
	if e.lost > 0 || !e.isUndone(DeviceLost, DeviceDrain, DeviceRemove) || !e.node.up() {
		return errNobody
	}
	name := e.device(f)
	e.note("%v: %s", f, name)
	e.later(f, awayTime, name+" is back", func() error { return e.ask("device-resume", name) })
	return e.ask("device-remove", name)
}

// ask makes a request about a device to the daemon.
func (e *episode) ask(what, device string) error {
	var done struct{}
	err := e.node.request(map[string]any{"request": what, "device": device}, &done)
	if err != nil && !strings.Contains(err.Error(), "is lost") { // it may have been lost in the meantime
		return fmt.Errorf("%s %s: %w", what, device, err)
	}
	return nil
}

// move makes the daemon move a client to another device.
func (e *episode) move(f fault) error {
	if !e.node.up() {
		return errNobody
	}
	s, err := e.node.status()
	if err != nil {
		return err
	}
	if len(s.Clients) == 0 {
		return errNobody
	}
	client := s.Clients[pick(f.choice, len(s.Clients))]
	var others []string
	for i, d := range s.Devices {
		if !d.Lost && (client.Device == nil || *client.Device != i) {
			others = append(others, fmt.Sprintf("#%d", i))
		}
	}
	if len(others) == 0 {
		return errNobody
	}
	device := others[pick(f.device, len(others))]
	e.note("%v: client %d to %s", f, client.ID, device)
	err = e.node.request(map[string]any{"request": "move", "client": client.ID, "device": device}, &struct{}{})
	if err != nil && !isRefusal(err) {
		return err
	}
	return nil
}

// isRefusal says whether the daemon refused a move for a valid reason: the client has ended or has
// moved by itself, or the device has just been removed, or is now too small for the client. The
// client then continues where it is.
func isRefusal(err error) bool {
	for _, words := range []string{"there is no client", "already", "drain", "removed", "lost", " bytes, and device "} {
		if strings.Contains(err.Error(), words) {
			return true
		}
	}
	return false
}

// fillDisk fills the disk of the swap area. A program that then asks for memory is told that there
// is none.
func (e *episode) fillDisk(f fault) error {
	if !e.isUndone(DiskFull) {
		return errNobody
	}
	e.note("%v", f)
	others := filepath.Join(e.swapDir, "others")
	file, err := os.Create(others)
	if err != nil {
		return err
	}
	defer file.Close()
	e.surround(excuse{f.String(), "the disk of the swap area " + e.swapDir + " is full"})
	// There is no room either for the copies that a program needs to survive its worker.
	for _, words := range []string{"its worker has ended", "its worker has not answered", "device lost: by rule", "out of device memory"} {
		e.surround(excuse{f.String(), words})
	}
	e.later(f, awayTime, "there is room on the disk", func() error {
		e.calm(f)
		return os.Remove(others)
	})
	block := make([]byte, 1<<20)
	for err == nil {
		_, err = file.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("filling the disk of the swap area: %w", err)
	}
	return nil
}

// surround gives an excuse to all running programs, and to those that start until calm is called.
func (e *episode) surround(x excuse) {
	e.ambient = append(e.ambient, x)
	for _, p := range e.running() {
		p.excuses = append(p.excuses, x)
	}
}

// --- sabotage ------------------------------------------------------------------------

func (e *episode) sabotageKill(f fault) error {
	p, err := e.client(f)
	if err != nil {
		return err
	}
	p.signal(syscall.SIGKILL)
	return nil
}

func (e *episode) sabotageHang(f fault) error {
	p, err := e.client(f)
	if err != nil {
		return err
	}
	p.signal(syscall.SIGSTOP)
	return nil
}

func (e *episode) sabotageProcess(fault) error {
	cmd := e.shell("setsid sleep 600 &")
	return cmd.Run()
}

func (e *episode) sabotageFile(fault) error {
	if e.swapDir == "" {
		return errNobody
	}
	return os.WriteFile(filepath.Join(e.swapDir, "left"), nil, 0o600)
}

// sabotageDescriptor leaves connections open, each of which costs the daemon a descriptor, too: more
// of them than the daemon may have had for a moment when its vitals were recorded.
func (e *episode) sabotageDescriptor(fault) error {
	for range 8 {
		conn, err := net.Dial("unix", e.node.socket)
		if err != nil {
			return err
		}
		e.kept = append(e.kept, conn)
	}
	return nil
}
