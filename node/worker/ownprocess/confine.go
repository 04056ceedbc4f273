// Package ownprocess makes a process a worker's: confined to what it may reach, running as its client's user, and
// with the environment that the driver reads. It knows nothing of what the worker then does.
package ownprocess

import (
	"encoding/json"
	"fmt"
	"os"

	"muster/internal/confine"
	"muster/internal/strictjson"
)

// ConfineVariable tells a worker how it is confined, before it hears of its client.
const ConfineVariable = "MUSTER_WORKER_CONFINE"

// Confine is the value of ConfineVariable.
type Confine struct {
	Rules confine.Rules
	By    confine.State
}

// String writes the value.
func (c Confine) String() string {
	text, _ := json.Marshal(c) // texts and numbers
	return string(text)
}

// ReadConfine reads ConfineVariable.
func ReadConfine() (c Confine, err error) {
	text := os.Getenv(ConfineVariable)
	if text == "" {
		return c, nil
	}
	if err := strictjson.Decode([]byte(text), &c); err != nil {
		return c, fmt.Errorf("%s: %w", ConfineVariable, err)
	}
	return c, nil
}

// Files confines this worker to the files that its rules name, if the daemon could not: the worker is
// executed anew then.
func (c Confine) Files() error {
	if !c.Rules.Threads || c.By.Landlock == 0 {
		return nil
	}
	done := c
	done.Rules = confine.Rules{Connect: c.Rules.Connect, Sockets: c.Rules.Sockets} // what the filter still needs to know
	if err := os.Setenv(ConfineVariable, done.String()); err != nil {
		return err
	}
	return confine.Anew(c.Rules, c.By, os.Environ())
}
