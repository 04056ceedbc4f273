package emulate

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
)

// inside is the main function of the first process of a cluster's namespaces.
func inside() int {
	life := os.NewFile(lifeFile, "life")
	var s spec
	decoder := json.NewDecoder(life)
	if err := decoder.Decode(&s); err != nil {
		fmt.Fprintln(os.Stderr, "this is a part of muster slurm emulate and not to be started by hand")
		return 2
	}
	keepFiles()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)

	if err := enterRoot(&s); err != nil {
		json.NewEncoder(life).Encode(started{Error: err.Error()})
		return 1
	}
	c := newInner(&s)
	gone := make(chan struct{})
	go func() { // the process that started this one sends nothing more; reading ends when it ends
		decoder.Decode(new(json.RawMessage))
		close(gone)
	}()
	go func() {
		token, err := c.up(gone)
		if err != nil {
			json.NewEncoder(life).Encode(started{Error: err.Error()})
			return
		}
		go c.serve(doorListener())
		json.NewEncoder(life).Encode(started{Token: token})
	}()
	select {
	case <-gone:
	case <-signals:
	}
	c.end()
	return 0
}

// keepFiles makes this process's open files close-on-exec.
func keepFiles() {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, e := range entries {
		var fd int
		if _, err := fmt.Sscan(e.Name(), &fd); err == nil && fd >= lifeFile {
			syscall.CloseOnExec(fd)
		}
	}
}

func doorListener() net.Listener {
	l, err := net.FileListener(os.NewFile(doorFile, "door"))
	if err != nil {
		panic(err) // this program made the socket
	}
	return l
}

// end kills all processes and removes the folder. The kernel kills what is left when this process,
// the first of the namespace, ends.
func (c *inner) end() {
	c.processes.endAll()
	os.Chdir("/")
	removeFolder(c.Folder)
}

// removeFolder removes a cluster's folder, including what jobs made unwritable in it.
func removeFolder(folder string) error {
	for range 3 { // a process that is being killed may still write
		if os.RemoveAll(folder) == nil {
			return nil
		}
		chmodFolders(folder)
	}
	return os.RemoveAll(folder)
}
