package agent

import (
	"slices"
	"testing"
)

func TestTasksPerNode(t *testing.T) {
	for _, c := range []struct {
		counts []int
		want   string
	}{{[]int{1}, "1"}, {[]int{2, 2, 2, 1}, "2(x3),1"}, {[]int{3, 1, 1, 3}, "3,1(x2),3"}, {nil, ""}} {
		if got := tasksPerNode(c.counts); got != c.want {
			t.Errorf("%v: %s, not %s", c.counts, got, c.want)
		}
	}
}

// MPI's launchers are told how to reach other nodes, unless the user has told them.
func TestLaunchersLeaveTheUsersVariables(t *testing.T) {
	e := newEnvironment([]string{"HYDRA_LAUNCHER_EXEC=/usr/bin/ssh", "OMPI_MCA_plm="})
	launchers(e, "/opt/muster-rsh")
	for _, v := range []string{"HYDRA_LAUNCHER=ssh", "HYDRA_LAUNCHER_EXEC=/usr/bin/ssh", "OMPI_MCA_plm=", "OMPI_MCA_plm_rsh_agent=/opt/muster-rsh", "PRTE_MCA_plm_ssh_agent=/opt/muster-rsh"} {
		if !slices.Contains(e.list(), v) {
			t.Errorf("no %s in %q", v, e.list())
		}
	}
}
