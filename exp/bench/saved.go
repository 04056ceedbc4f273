package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"muster/internal/misuse"
	"muster/internal/strictjson"
	"muster/internal/wholefile"
)

var savedLimit = wholefile.Limit{Bytes: 16 << 20, Remedy: "it must be a file that --save wrote"}

// Savable says, before anything is measured, whether a file can be written at path. "" stands for
// no file.
func Savable(path string) error {
	folder := filepath.Dir(path)
	if info, err := os.Stat(folder); path != "" && (err != nil || !info.IsDir()) {
		return misuse.Errorf("--save %s cannot be written: there is no folder %s", path, folder)
	}
	return nil
}

// Save stores measurements in a file.
func Save(path string, measured any) error {
	text, err := json.MarshalIndent(measured, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o666)
}

// Load reads a file that Save wrote, and refuses any other content. check validates the numbers.
func Load(path string, measured any, check func() error) error {
	text, err := savedLimit.ReadFile(path)
	if err != nil {
		return err
	}
	if err := Decode(text, measured, check); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// Decode is Load for text that is in memory.
func Decode(text []byte, measured any, check func() error) error {
	if err := strictjson.Decode(text, measured); err != nil {
		return fmt.Errorf("it is no file that --save wrote: %w", err)
	}
	return check()
}
