package launch

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"muster/internal/misuse"
	"muster/node/ask"
	"muster/node/nodefile"
	"muster/node/nodetable"
	"muster/wire/client"
)

// The kinds of sockets that programs are served at by processes that were started for them. The kind
// is part of a socket's name, by which muster checkpoint knows programs that it cannot save (see
// node/programs).
const (
	Remote  = "remote"  // by a node of another machine
	Granted = "grant"   // with the devices of a grant
	Private = "private" // by a node of their own
)

// Prefix begins the names of all sockets of a kind.
func Prefix(kind string) string { return "@muster-" + kind + "-" }

// socketName is a name that no other process has, and that leaves no file behind.
func socketName(kind string) string {
	return fmt.Sprintf("%s%d-%s", Prefix(kind), os.Getpid(), rand.Text()[:8])
}

// Serve has a function serve a program at a socket of its own, until stop is called.
func Serve(kind string, serve func(context.Context, *net.UnixListener) error) (socket string, stop func(), err error) {
	socket = socketName(kind)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return "", nil, fmt.Errorf("listening for the program: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = serve(ctx, listener) // the program is told
	}()
	return socket, func() {
		cancel()
		<-done
	}, nil
}

// PrivateNode starts a node for one program of this user, and tells the user. The node gets more
// arguments beside those that it always has.
func PrivateNode(tell io.Writer, more ...string) (socket string, stop func(), err error) {
	socket = socketName(Private)
	stop, err = Node(tell, append([]string{"--socket", socket, "--warm", "1", "--spare", "off", "--log-level", "warn", "--text-log"}, more...)...)
	if err != nil {
		return "", nil, err
	}
	started, err := ask.Status(socket)
	if err != nil {
		stop()
		return "", nil, err
	}
	fmt.Fprintf(tell, "muster: started a node for this program alone, with %s\n", nodetable.InWords(started.Devices))
	return socket, stop, nil
}

// Node starts this program as a node for this user, which ends when its standard input does: when stop
// is called, and also when this process is killed.
func Node(errors io.Writer, args ...string) (stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	cmd := exec.Command(self, append([]string{"node", "--child", "--allow", "own"}, args...)...)
	cmd.Stderr = errors
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C is for the program
	life, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	ready, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting a node: %w", err)
	}
	if line, _ := bufio.NewReader(ready).ReadString('\n'); line != "ready\n" {
		life.Close()
		_ = cmd.Wait()
		return nil, fmt.Errorf("the node that was started (muster node %s) did not come up", strings.Join(args, " "))
	}
	return func() {
		life.Close()
		_ = cmd.Wait()
	}, nil
}

// Elsewhere names a node of another machine, and what a user shows it.
type Elsewhere struct {
	// Node is HOST or HOST:PORT.
	Node string
	// TLSDir is the folder that muster cert made for the user; "" with Plain.
	TLSDir string
	// Plain is without TLS, for nodes that allow it.
	Plain bool
	// Token is the node's; "" if the certificate does.
	Token string
}

// Remote is how the node is reached.
func (e *Elsewhere) Remote() (client.Remote, error) {
	address := e.Node
	if _, _, err := net.SplitHostPort(address); err != nil {
		address = net.JoinHostPort(e.Node, nodefile.GatewayPort)
	}
	switch {
	case e.Plain && e.TLSDir != "":
		return client.Remote{}, misuse.Errorf("--plain is instead of --tls-dir")
	case e.Plain && e.Token == "":
		return client.Remote{}, errors.New("--plain needs the node's token in $MUSTER_TOKEN: it says who you are")
	case e.Plain:
		return client.Plain(address, e.Token), nil
	case e.TLSDir == "":
		return client.Remote{}, misuse.Errorf("--node needs --tls-dir, the folder that muster cert made for you; or --plain, if the node takes programs without TLS")
	}
	config, err := client.LoadTLS(e.TLSDir)
	if err != nil {
		return client.Remote{}, err
	}
	if len(config.Certificates) == 0 && e.Token == "" {
		return client.Remote{}, errors.New("there is no certificate of a user in " + e.TLSDir + " and no token in $MUSTER_TOKEN: give the folder that muster cert made for you (user-NAME), or the token")
	}
	return client.Secure(address, config, e.Token), nil
}
