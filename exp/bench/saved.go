package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"muster/internal/wholefile"
)

var savedLimit = wholefile.Limit{Bytes: 16 << 20, Remedy: "it must be a file that --save wrote"}

// Save keeps what was measured in a file.
func Save(path string, measured any) error {
	text, err := json.MarshalIndent(measured, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o666)
}

// Load reads what Save wrote, and nothing else; check says what is wrong with the numbers.
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

// Decode is Load of a text.
func Decode(text []byte, measured any, check func() error) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(measured); err != nil {
		return fmt.Errorf("it is no file that --save wrote: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the document")
	}
	return check()
}
