package api

import (
	"reflect"
	"slices"
	"testing"

	"muster/model"
)

// Each field of a job is public or private. A new one fails here until somebody has decided.
func TestForOthers(t *testing.T) {
	public := []string{
		"ID", "ArrayJob", "ArrayTask", "ArrayTasks", "ArrayCount", "Name", "User", "Account", "Partition", "QOS", "State", "Reason", "Options", "Priority", "Held",
		"Submit", "Eligible", "Start", "End", "TimeLimit", "Elapsed", "Attempt", "Requeues", "Nodes", "NodeList", "Before", "Preempted", "Parts", "Devices",
		"NumNodes", "Cores", "Memory", "GPUs", "GPUShare", "ExitCode", "Signal", "CPUTime", "Peak", "Measured", "Dependency",
	}
	task := uint32(3)
	full := Job{
		ArrayTask: &task, Nodes: []string{"n"}, Before: []string{"n"}, Preempted: []Preemption{{}}, Parts: []Part{{}}, Devices: []Device{{}}, Command: []string{"c"}, Held: true, Measured: &model.Measured{},
	}
	v := reflect.ValueOf(&full).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.String:
			f.SetString("x")
		case reflect.Int, reflect.Int64:
			f.SetInt(1)
		case reflect.Uint32, reflect.Uint64:
			f.SetUint(1)
		case reflect.Float64:
			f.SetFloat(1)
		}
		if v.Field(i).IsZero() {
			t.Fatalf("%s is not filled: do that here", v.Type().Field(i).Name)
		}
	}
	shown := reflect.ValueOf(full.ForOthers())
	for i := range shown.NumField() {
		name := shown.Type().Field(i).Name
		if is := !shown.Field(i).IsZero(); is != slices.Contains(public, name) {
			t.Errorf("%s is shown to others: %v", name, is)
		}
	}
	full.State, full.Before = Pending, nil
	if full.ForOthers().Why == "" {
		t.Error("others do not see why a job waits")
	}
}
