package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"muster/wire/api"
)

// Each has an outcome for every name, few or many, and gives up when the head is gone.
func TestEach(t *testing.T) {
	refused := errors.New("refused")
	for _, n := range []int{0, 3, 100} {
		var names []string
		for i := range n {
			names = append(names, fmt.Sprint(i))
		}
		results := Each(names, func(name string) error {
			if strings.HasSuffix(name, "1") {
				return refused
			}
			return nil
		})
		for i, err := range results {
			if (err == refused) != strings.HasSuffix(names[i], "1") {
				t.Errorf("%d names: %s: %v", n, names[i], err)
			}
		}
	}
	var mu sync.Mutex
	var asked []string
	results := Each([]string{"a", "b", "c"}, func(name string) error {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, name)
		if name == "b" {
			return ErrUnreachable
		}
		return nil
	})
	if !slices.Equal(asked, []string{"a", "b"}) || results[0] != nil || results[1] != ErrUnreachable || results[2] != ErrUnreachable {
		t.Errorf("asked for %v: %v", asked, results)
	}
}

// nodes answers as a head with three nodes, one of which is away and one no node.
func nodes(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/v1/nodes":
		fmt.Fprint(w, `{"nodes": [{"node": "n1", "connected": true}, {"node": "n2"}, {"node": "n3", "connected": true}]}`)
	case "/v1/nodes/n1/status":
		fmt.Fprint(w, `{"node": "n1"}`)
	case "/v1/nodes/n3/status":
		fmt.Fprint(w, `["what"]`)
	default:
		w.WriteHeader(404)
		fmt.Fprint(w, `{"error": "what node?"}`)
	}
}

func TestNamedNodes(t *testing.T) {
	h := serve(t, nodes)
	for want, names := range map[string][]string{"n1 n2 n3": nil, "n3 n1": {"n3", "n1"}} {
		all, err := h.NamedNodes(context.Background(), names)
		var got []string
		for i := range all {
			got = append(got, all[i].Name)
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%v: got %v, %v", names, got, err)
		}
	}
	if _, err := h.NamedNodes(context.Background(), []string{"n1", "n9"}); err == nil || err.Error() != `there is no node "n9": muster nodes lists them` {
		t.Errorf("got %v", err)
	}
}

func TestNodeStatuses(t *testing.T) {
	all, err := serve(t, nodes).NodeStatuses(context.Background())
	if err != nil || len(all) != 3 {
		t.Fatalf("got %+v, %v", all, err)
	}
	if a := all[0]; a.Status == nil || a.Status.Node != "n1" || a.Error != "" {
		t.Errorf("a node that answers: %+v", a)
	}
	if a := all[1]; a.Status != nil || a.Error != "it is away" {
		t.Errorf("a node that is away: %+v", a)
	}
	if a := all[2]; a.Status != nil || !strings.HasPrefix(a.Error, "node n3 does not answer as a node does: ") {
		t.Errorf("no node: %+v", a)
	}
}

// Only the period that was asked for is waited for.
func TestWhatIfDone(t *testing.T) {
	asked := 0
	h := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked++
		fmt.Fprintf(w, `{"periods": [{"name": "day", "running": %t, "progress": 0.5}, {"name": "week", "running": true}]}`, asked < 3)
	})
	var heard []float64
	w, err := h.WhatIfDone(context.Background(), api.WhatIfWanted{Period: "day"}, func(done float64) { heard = append(heard, done) })
	if err != nil || len(w.Periods) != 2 || w.Periods[0].Running || !slices.Equal(heard, []float64{0.5, 0.5}) {
		t.Errorf("got %+v, %v, and heard of %v", w, err, heard)
	}
}
