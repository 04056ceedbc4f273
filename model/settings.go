package model

import (
	"fmt"
	"strings"
)

// Option is a setting of something that is chosen by name, such as a policy.
type Option struct {
	Name    string
	Summary string
	Default string
}

// Settings are options with their values.
type Settings map[string]string

// ReadSettings parses "key=value:key=value" for the options; those not given have their defaults.
func ReadSettings(options []Option, spec string) (Settings, error) {
	s, given := Settings{}, map[string]bool{}
	for _, o := range options {
		s[o.Name] = o.Default
	}
	for _, kv := range strings.Split(spec, ":") {
		if kv == "" {
			continue
		}
		key, value, ok := strings.Cut(kv, "=")
		if _, known := s[key]; !known {
			return nil, fmt.Errorf("%q is no setting of it%s", kv, knownSettings(options, key))
		}
		if !ok {
			return nil, fmt.Errorf("%s has no value: write it as %s=%s", key, key, s[key])
		}
		if given[key] {
			return nil, fmt.Errorf("%s is set twice", key)
		}
		s[key], given[key] = value, true
	}
	return s, nil
}

// knownSettings names the setting that the user probably meant, or lists all.
func knownSettings(options []Option, meant string) string {
	if len(options) == 0 {
		return ": it has none"
	}
	names, all := make([]string, len(options)), make([]string, len(options))
	for i, o := range options {
		names[i], all[i] = o.Name, o.Name+"="+o.Default
	}
	if near := Nearest(meant, names); near != "" {
		return fmt.Sprintf(": did you mean %q?", near)
	}
	return ": it has " + strings.Join(all, ", ")
}
