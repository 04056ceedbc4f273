package main

import "strings"

// This file is all that the demonstration knows of the head's page.

// pageFlags are the flags of muster head that have it serve its page, at a port that
// nobody has: others may run a head on this machine.
func pageFlags() ([]string, error) {
	if newHead().Flags().Lookup("page") == nil {
		return nil, nil // a head without a page
	}
	port, err := freePort()
	return []string{"--page", port}, err
}

// page asks the head for an address of its page, which signs one browser in as this
// user; "" if it has none.
func (d *demo) page() string {
	text, err := d.command(d.ctx, "page").Output()
	if address := strings.TrimSpace(string(text)); err == nil && strings.HasPrefix(address, "http") {
		return address
	}
	return ""
}
