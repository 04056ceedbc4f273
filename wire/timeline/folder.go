package timeline

import (
	"errors"
	"os"
	"path/filepath"
)

// Folder is what the processes of a program have recorded in a folder.
type Folder struct {
	Files    []*File // of processes that called the library
	Elements []*Element
	Skipped  int // processes that were killed before they could record anything
}

// ReadFolder reads the files of a folder for timelines.
func ReadFolder(folder string) (*Folder, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	all := &Folder{}
	for _, entry := range entries {
		path := filepath.Join(folder, entry.Name())
		if IsElement(entry.Name()) {
			err = all.addElement(path)
		} else {
			err = all.addFile(path)
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (all *Folder) addElement(path string) error {
	element, err := ReadElementFile(path)
	if errors.Is(err, ErrEmpty) { // it was killed as it began
		return nil
	}
	if err == nil {
		all.Elements = append(all.Elements, element)
	}
	return err
}

func (all *Folder) addFile(path string) error {
	file, err := ReadFile(path)
	if errors.Is(err, ErrEmpty) {
		all.Skipped++
		return nil
	}
	if err == nil && file.CallsMade > 0 {
		all.Files = append(all.Files, file)
	}
	return err
}
