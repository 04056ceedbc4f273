package driver_test

import (
	"muster/policy"
	"muster/policy/catalog"
	"muster/policy/script"
)

// bundled makes a policy of a script that comes with Muster.
func bundled(spec string) (policy.Policy, error) {
	b, err := script.FindBundled(spec)
	if err != nil {
		return nil, err
	}
	p, _, err := catalog.Script(b.Name, b.Source, "")
	return p, err
}
