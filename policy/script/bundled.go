package script

import (
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

//go:embed bundled/*.star
var bundled embed.FS

// Bundled is a script that comes with Muster.
type Bundled struct {
	Name    string // as "easy.star"
	Source  []byte
	Summary string // the first sentence of what the file says of itself
}

// AllBundled lists them by name.
func AllBundled() []Bundled {
	entries, err := fs.ReadDir(bundled, "bundled")
	if err != nil {
		panic(err) // they are part of the program
	}
	var out []Bundled
	for _, e := range entries {
		source, err := bundled.ReadFile("bundled/" + e.Name())
		if err != nil {
			panic(err)
		}
		out = append(out, Bundled{Name: e.Name(), Source: source, Summary: Summary(source)})
	}
	slices.SortFunc(out, func(a, b Bundled) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// FindBundled is the script of a name, with or without .star.
func FindBundled(name string) (Bundled, error) {
	var names []string
	for _, b := range AllBundled() {
		if b.Name == name || b.Name == name+".star" {
			return b, nil
		}
		names = append(names, b.Name)
	}
	return Bundled{}, fmt.Errorf("there is no bundled script %q: there are %s", name, strings.Join(names, ", "))
}

// Summary is the first sentence of the text that a script begins with; "" if it begins
// with none.
func Summary(source []byte) string {
	text := strings.TrimSpace(string(source))
	body, ok := strings.CutPrefix(text, `"""`)
	if !ok {
		return ""
	}
	body, _, _ = strings.Cut(body, `"""`)
	body, _, _ = strings.Cut(body, "\n\n")
	body = strings.Join(strings.Fields(body), " ")
	if at := strings.Index(body, ". "); at >= 0 {
		body = body[:at+1]
	}
	return clipped(strings.TrimSuffix(body, "."))
}
