package setup

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// config is what slurm.conf and the files that it includes say, without Muster's block.
type config struct {
	path    string
	entries []entry
}

type entry struct {
	key, value string
	line       string // the whole line
	file       string
	number     int
}

const maxIncludes = 64

// readConfig reads slurm.conf.
func readConfig(path string) (*config, error) {
	c := &config{path: path}
	return c, c.read(path, 0)
}

func (c *config) read(path string, depth int) error {
	if depth > maxIncludes {
		return fmt.Errorf("%s: files include each other more than %d deep", path, maxIncludes)
	}
	text, err := files.ReadFile(path)
	if err != nil {
		return fmt.Errorf("Slurm's configuration: %w: name the folder that has slurm.conf with --conf", err)
	}
	plain, err := withBlock(string(text), "#", "", nil)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	number, whole := 0, ""
	for line := range strings.Lines(plain) {
		number++
		line = strings.TrimRight(line, "\r\n")
		if at := strings.IndexByte(line, '#'); at >= 0 {
			line = line[:at]
		}
		if begun, more := strings.CutSuffix(line, `\`); more {
			whole += begun
			continue
		}
		whole, line = "", strings.TrimSpace(whole+line)
		if name, ok := cutWord(line, "include"); ok {
			if !filepath.IsAbs(name) {
				name = filepath.Join(filepath.Dir(c.path), name)
			}
			if err := c.read(name, depth+1); err != nil {
				return err
			}
			continue
		}
		if key, value, ok := strings.Cut(line, "="); ok {
			c.entries = append(c.entries, entry{strings.TrimSpace(key), strings.Trim(strings.TrimSpace(value), `"`), line, path, number})
		}
	}
	return nil
}

// cutWord takes a word off the beginning of a line.
func cutWord(line, word string) (rest string, ok bool) {
	if len(line) <= len(word) || !strings.EqualFold(line[:len(word)], word) || line[len(word)] != ' ' && line[len(word)] != '\t' {
		return "", false
	}
	return strings.TrimSpace(line[len(word):]), true
}

// value is the value of a setting; "" if it is not set. As for Slurm, the last one counts.
func (c *config) value(key string) (value string) {
	for _, e := range c.entries {
		if strings.EqualFold(e.key, key) {
			value = e.value
		}
	}
	return value
}

// where is the file and line of a setting.
func (c *config) where(key string) (place string) {
	for _, e := range c.entries {
		if strings.EqualFold(e.key, key) {
			place = fmt.Sprintf("%s:%d", e.file, e.number)
		}
	}
	return place
}

// gresCount is the largest number of a generic resource that any node has.
func (c *config) gresCount(name string) (most int) {
	for _, e := range c.entries {
		if !strings.EqualFold(e.key, "NodeName") {
			continue
		}
		for _, word := range strings.Fields(e.line) {
			key, value, _ := strings.Cut(word, "=")
			if !strings.EqualFold(key, "Gres") {
				continue
			}
			for _, item := range strings.Split(value, ",") {
				parts := strings.Split(item, ":")
				if parts[0] != name {
					continue
				}
				count := 1
				if n, err := strconv.Atoi(parts[len(parts)-1]); err == nil {
					count = n
				}
				most = max(most, count)
			}
		}
	}
	return most
}

func (c *config) nodesHave(name string) bool { return c.gresCount(name) > 0 }
