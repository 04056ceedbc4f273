package survival

import (
	"testing"

	"muster/internal/strictjson"
)

// The clients that have ended are for people: names that an earlier daemon had for what they used
// must not make its state, and so the programs that it served, of no use.
func TestEndedClientsOfAnEarlierDaemon(t *testing.T) {
	var f NodeStateFile
	err := strictjson.Decode([]byte(`{"version":1,"ended":[{"client":3,"user":"ann","busy_time":2,"gpu_s":1.5}]}`), &f)
	if err != nil || len(f.Ended) != 1 || f.Ended[0].ID != 3 || f.Ended[0].BusyTime != 1.5 {
		t.Errorf("got %+v, %v", f.Ended, err)
	}
	if err := strictjson.Decode([]byte(`{"version":1,"endings":[]}`), &f); err == nil {
		t.Error("an unknown name elsewhere is taken")
	}
}
