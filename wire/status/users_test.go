package status

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

// Each metric that the dashboard shows is one that a node or the head serves.
func TestDashboardShowsWhatIsServed(t *testing.T) {
	text, err := os.ReadFile("../../dist/grafana-dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil || len(dashboard.Panels) == 0 {
		t.Fatalf("%d panels: %v", len(dashboard.Panels), err)
	}
	node, err := os.ReadFile("testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	head, err := os.ReadFile("../../head/daemon/web.go")
	if err != nil {
		t.Fatal(err)
	}
	var build strings.Builder
	WriteBuild(&build)
	served := string(node) + string(head) + build.String()
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			for _, name := range regexp.MustCompile(`muster_[a-z_]+`).FindAllString(target.Expr, -1) {
				name = strings.TrimSuffix(name, "_bucket")
				if !strings.Contains(served, "# TYPE "+name+" ") && !strings.Contains(served, `"`+name+`"`) {
					t.Errorf("%s: nothing serves %s", p.Title, name)
				}
			}
		}
	}
}

func TestBuildIsSaid(t *testing.T) {
	var b strings.Builder
	WriteBuild(&b)
	if !regexp.MustCompile(`(?m)^muster_build_info\{version="[^"]*",commit="[^"]+",go="go[^"]+"\} 1$`).MatchString(b.String()) {
		t.Error(b.String())
	}
}
