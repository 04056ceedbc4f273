package client

import (
	"fmt"
	"os"

	"muster/internal/wholefile"
	"muster/wire/grant"
)

var grantLimit = wholefile.Limit{Bytes: grant.MaxBytes, Remedy: "is it a grant, as muster grant make writes it?"}

// ReadGrant reads a grant, and refuses a file that others can read: whoever knows its secret can use
// the devices.
func ReadGrant(file string) (*grant.Grant, error) {
	text, err := grantLimit.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("others can read %s, and use its devices: chmod 600 %s", file, file)
	}
	g, err := grant.Decode(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return g, nil
}
