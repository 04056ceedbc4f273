package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"muster/wire"
)

// A program of a job may also ask this machine's daemon something, as muster run does, or talk with
// one of its services (elements). Its connection is passed on to the daemon with the job's
// credential: what the daemon does for the program is then under the job's grant. Nothing is relayed
// afterwards.

// maxRequest is how long such a request may be.
const maxRequest = 1024

// asked is a program's request: its name, and the line of JSON that it came in.
type asked struct{ name, line string }

// greeting reads how a connection begins: with a greeting, which is then in in, or with a request,
// one line of JSON. No JSON text has a greeting's opcode in bytes 4 to 7. Behind a request nothing
// is read: that is for the daemon.
func greeting(near net.Conn) (in io.Reader, request *asked, err error) {
	line := make([]byte, 8, maxRequest)
	if _, err := io.ReadFull(near, line); err != nil {
		return nil, nil, err
	}
	if line[0] != '{' || binary.LittleEndian.Uint32(line[4:]) == uint32(wire.OpHello) {
		return io.MultiReader(bytes.NewReader(line), near), nil, nil
	}
	for line[len(line)-1] != '\n' && len(line) < maxRequest {
		line = append(line, 0)
		if _, err := io.ReadFull(near, line[len(line)-1:]); err != nil {
			return nil, nil, err
		}
	}
	var head struct {
		Request string `json:"request"`
	}
	if json.Unmarshal(line, &head) != nil || head.Request == "" {
		return nil, nil, errors.New("it is neither a greeting nor a request")
	}
	return nil, &asked{head.Request, string(bytes.TrimSpace(line))}, nil
}

// passRequest passes a program's connection on to this machine's daemon, for a conversation with one
// of its services. If the daemon refuses, the program is told what it says.
func (j *Job) passRequest(ctx context.Context, near *net.UnixConn, request *asked) error {
	var refused []byte
	err := j.patiently(ctx, func() (err error) {
		refused, err = j.handOver(near, request)
		return err
	})
	if err != nil {
		refused, _ = json.Marshal(map[string]string{"error": err.Error()})
		refused = append(refused, '\n')
	}
	if len(refused) > 0 {
		_, _ = near.Write(refused)
		return fmt.Errorf("the node did not take a program's request %q: %s", request.name, bytes.TrimSpace(refused))
	}
	return nil
}

// handOver gives the daemon a program's connection. It returns the daemon's words if it refuses.
func (j *Job) handOver(near *net.UnixConn, request *asked) (refused []byte, err error) {
	dialled, err := net.DialTimeout("unix", j.local, setUpTime)
	if err != nil {
		return nil, fmt.Errorf("no node answers at %s (start one with muster node): %w", j.local, err)
	}
	defer dialled.Close()
	conn := dialled.(*net.UnixConn)
	if err := trusted(conn); err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(setUpTime))
	question := map[string]string{"request": request.name, "id": j.grant.ID, "grant": string(j.grant.Secret)}
	if request.line != fmt.Sprintf("{%q:%q}", "request", request.name) {
		question["line"] = request.line
	}
	if err := json.NewEncoder(conn).Encode(question); err != nil {
		return nil, err
	}
	in := bufio.NewReader(conn)
	if answer, err := in.ReadBytes('\n'); err != nil || string(answer) != "{}\n" {
		return answer, err
	}
	f, err := near.File()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := wire.SendFiles(conn, []byte{0}, f); err != nil {
		return nil, err
	}
	refused, _ = io.ReadAll(io.LimitReader(in, maxRequest*16)) // nothing if the daemon has it
	return refused, nil
}
