package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"

	"muster/wire/agent"
	"muster/wire/api"
	"muster/wire/dial"
)

// Streams are the standard streams of a command; a nil Input is empty. Sizes has the sizes of the user's
// terminal, if the command has one; the sender closes it.
type Streams struct {
	Input         io.Reader
	Output, Error io.Writer
	Sizes         <-chan agent.Terminal
}

// Exec runs a command among a job's processes and waits until it ends. If the context ends first,
// the command is killed.
func (h *Head) Exec(ctx context.Context, id string, e *api.Exec, s Streams) (agent.Outcome, error) {
	query := url.Values{"arg": e.Arguments}
	if e.Node != "" {
		query.Set("node", e.Node)
	}
	if e.Directory != "" {
		query.Set("dir", e.Directory)
	}
	if len(e.Environment) > 0 {
		query["env"] = e.Environment
	}
	if e.Terminal != "" {
		query.Set("terminal", e.Terminal)
	}
	upgrade := http.Header{"Connection": {"Upgrade"}, "Upgrade": {dial.ProtocolStream}}
	response, err := h.send(ctx, http.MethodPost, jobPath(id, "/exec"), query, nil, upgrade)
	if err != nil {
		return agent.Outcome{}, err
	}
	defer response.Body.Close()
	body, ok := response.Body.(io.ReadWriter)
	if !ok {
		return agent.Outcome{}, unreachable{fmt.Errorf("the head at %s does not answer as a head does: the connection goes one way only", h.where)}
	}
	stop := context.AfterFunc(ctx, func() { response.Body.Close() })
	defer stop()
	// The command may end before its input does, and a read from a terminal cannot be interrupted:
	// Exec does not wait for this goroutine.
	conn := &shared{ReadWriter: body}
	go sendInput(conn, s.Input)
	go func() {
		for size := range s.Sizes {
			_, _ = conn.Write(agent.AppendSize(nil, size))
		}
	}()
	outcome, err := receive(conn, s)
	switch {
	case ctx.Err() != nil:
		return outcome, ctx.Err()
	case err != nil:
		return outcome, fmt.Errorf("the command's connection broke: %w", err)
	}
	return outcome, nil
}

// shared is a connection to which several write, a frame at a time.
type shared struct {
	io.ReadWriter
	mu sync.Mutex
}

func (s *shared) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ReadWriter.Write(b)
}

// sendInput sends the input in frames, and an empty frame at its end.
func sendInput(conn io.Writer, input io.Reader) {
	if input != nil {
		buffer := make([]byte, agent.MaxFrame)
		for {
			n, err := input.Read(buffer)
			if n > 0 {
				if _, lost := conn.Write(agent.AppendFrame(nil, agent.FrameInput, buffer[:n])); lost != nil {
					return
				}
			}
			if err != nil {
				break
			}
		}
	}
	_, _ = conn.Write(agent.AppendFrame(nil, agent.FrameInput, nil))
}

func receive(conn io.Reader, s Streams) (agent.Outcome, error) {
	buffer := make([]byte, agent.MaxFrame)
	for {
		kind, bytes, err := agent.ReadFrame(conn, buffer)
		if err != nil {
			return agent.Outcome{}, err
		}
		switch kind {
		case agent.FrameOutput:
			_, err = s.Output.Write(bytes)
		case agent.FrameError:
			_, err = s.Error.Write(bytes)
		case agent.FrameEnd:
			return agent.ParseOutcome(bytes)
		default:
			err = fmt.Errorf("%w: the head sends input", agent.ErrRefused)
		}
		if err != nil {
			return agent.Outcome{}, err
		}
	}
}
