package main

import "strings"

// demoPageFlags are the flags of muster head that have it serve its page.
var demoPageFlags []string

// page asks the head for the address of its page, for this user; "" if it has none.
func (d *demo) page() string {
	text, err := d.command(d.ctx, "page").Output()
	if address := strings.TrimSpace(string(text)); err == nil && strings.HasPrefix(address, "http") {
		return address
	}
	return ""
}
