package status

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// What Prometheus's own library would see to: each family is declared once, with all its series
// behind it, no series is there twice, counters end in _total and nothing else does.
func TestMetricsAreWellFormed(t *testing.T) {
	text, err := os.ReadFile("testdata/metrics.txt") // as TestMetrics wrote it
	if err != nil {
		t.Fatal(err)
	}
	sample := regexp.MustCompile(`^([a-z_]+)(\{(?:[a-z_]+="(?:[^"\\]|\\["\\n])*",?)*\})? [0-9.eE+-]+$`)
	kinds, helped, series := map[string]string{}, map[string]bool{}, map[string]bool{}
	family := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		words := strings.SplitN(line, " ", 4)
		switch {
		case strings.HasPrefix(line, "# HELP "):
			if family = words[2]; helped[family] {
				t.Errorf("%s is declared twice", family)
			}
			helped[family] = true
		case strings.HasPrefix(line, "# TYPE "):
			if words[2] != family {
				t.Errorf("%q does not follow its help", line)
			}
			if kinds[family] = words[3]; (words[3] == "counter") != strings.HasSuffix(family, "_total") {
				t.Errorf("%s is a %s", family, words[3])
			}
		default:
			parts := sample.FindStringSubmatch(line)
			if parts == nil {
				t.Errorf("%q is no sample", line)
				continue
			}
			name := parts[1]
			if kinds[family] == "histogram" {
				for _, ending := range []string{"_bucket", "_sum", "_count"} {
					name = strings.TrimSuffix(name, ending)
				}
			}
			if name != family || series[parts[1]+parts[2]] {
				t.Errorf("%q is among the series of %s, or there twice", line, family)
			}
			series[parts[1]+parts[2]] = true
		}
	}
	if len(series) < 50 {
		t.Errorf("there are only %d series", len(series))
	}
}
