package node

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"muster/node/proc"
	"muster/node/statefolder"
	"muster/node/survival"
)

// openFolder opens the state folder, unless clients end with the daemon anyway.
func (d *daemon) openFolder() (err error) {
	if d.cfg.OrphanGrace == 0 {
		return nil
	}
	d.keeper, err = survival.Open(d.cfg.State, d.cfg.Socket.Address, d.log)
	switch {
	case err == nil:
		return nil
	case d.cfg.State != "" || errors.Is(err, statefolder.ErrTaken):
		return fmt.Errorf("the node's state cannot be kept (state, --state): %w", err)
	}
	d.log.Warn("the node's state cannot be kept: programs end with the daemon; give another folder (state, --state), or ask for that (orphan_grace: 0)", "error", err)
	return nil
}

// inherit reads what an earlier daemon left, and removes what is of no use any more.
func (d *daemon) inherit() (left survival.Left, err error) {
	if d.keeper == nil {
		return left, nil
	}
	if err = d.sweep(); err == nil {
		left, err = d.keeper.Inherit()
	}
	if err != nil {
		err = fmt.Errorf("cleaning up after an earlier daemon: %w", err)
	}
	return left, err
}

// sweep removes files from the swap folder that were left by processes killed between
// creating and unlinking them. Files younger than a minute may still be in use.
func (d *daemon) sweep() error {
	const longAgo = time.Minute
	if d.cfg.Swap.Dir == "" {
		return nil
	}
	entries, err := os.ReadDir(d.cfg.Swap.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || d.loop.Clock().Sub(info.ModTime()) < longAgo || !proc.IsOwn(info) {
			continue
		}
		if strings.HasPrefix(e.Name(), swapPrefix) || strings.HasPrefix(e.Name(), healthPrefix) {
			_ = os.Remove(d.cfg.Swap.Dir + "/" + e.Name())
		}
	}
	return nil
}

// Prefixes of files in the swap folder, which are unlinked right after they were
// created.
const swapPrefix, healthPrefix = "muster-swap-", "muster-health-"
