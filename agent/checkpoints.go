package agent

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"muster/agent/agentcore"
	wire "muster/wire/agent"
)

// Checkpoints is where a node saves suspended tasks, so that they can go on on other nodes that have the
// same folder.
type Checkpoints struct {
	// Dir is the folder, "" for none, and CRIU the program that saves.
	Dir, CRIU string
	// Trouble is why tasks cannot be saved although there is a folder.
	Trouble string
}

// folderName is the file by which nodes recognise a folder, which each may have at another path.
const folderName = ".muster-checkpoints"

// name is the folder's name, the same on all nodes that have it, or "" and the reason why no task can be
// saved here.
func (c *Checkpoints) name() (name, why string) {
	switch {
	case c.Dir == "":
		return "", "the node has no folder for what is saved (checkpoint_dir)"
	case c.Trouble != "":
		return "", wire.Reason(c.Trouble)
	case os.Geteuid() != 0:
		return "", "the node's agent does not run as root, and only root can save and restore processes"
	}
	name, err := nameOf(c.Dir)
	if err != nil {
		return "", wire.Reason(fmt.Sprintf("the node's checkpoint_dir: %v", err))
	}
	return name, ""
}

// nameOf reads the name of a folder, or gives it one. What is in the folder becomes processes of any user,
// so nobody else may write there.
func nameOf(dir string) (string, error) {
	var info syscall.Stat_t
	if err := syscall.Stat(dir, &info); err != nil {
		return "", fmt.Errorf("%s: %w", dir, err)
	}
	if info.Mode&syscall.S_IFMT != syscall.S_IFDIR || int(info.Uid) != os.Geteuid() || info.Mode&0o022 != 0 {
		return "", fmt.Errorf("%s must be a folder of user %d, where others cannot write: chown, chmod 0755", dir, os.Geteuid())
	}
	random := make([]byte, 16)
	_, _ = rand.Read(random) // it never fails
	own := hex.EncodeToString(random)
	part := filepath.Join(dir, folderName+"."+own) // several nodes may do this at the same time
	err := writeSynced(part, []byte(own))
	if err == nil {
		if err = os.Link(part, filepath.Join(dir, folderName)); errors.Is(err, os.ErrExist) {
			err = nil
		}
	}
	if err = errors.Join(err, os.Remove(part)); err != nil {
		return "", err
	}
	text, err := smallLimit.ReadFile(filepath.Join(dir, folderName))
	if err != nil {
		return "", err
	}
	if name, err := hex.DecodeString(string(text)); err != nil || len(name) != len(random) {
		return "", fmt.Errorf("%s is damaged: remove it", filepath.Join(dir, folderName))
	}
	return string(text), nil
}

// at is the folder of a save.
func (c *Checkpoints) at(name string) *agentcore.SaveIn {
	return &agentcore.SaveIn{Folder: filepath.Join(c.Dir, name), CRIU: c.CRIU}
}

// discard removes what was saved under a name.
func (c *Checkpoints) discard(name string) error {
	if c.Dir == "" || name == "" || strings.HasPrefix(name, ".") || filepath.Base(name) != name {
		return nil
	}
	return os.RemoveAll(filepath.Join(c.Dir, name))
}
