package status

import (
	"fmt"
	"io"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
)

// UserUse is what the clients of one user did, including those that have gone.
type UserUse struct {
	Clients                              uint64
	Kernels                              uint64
	BusyTime, WaitTime                   float64 // in seconds
	CopiedIn, CopiedOut, SwapIn, SwapOut uint64  // bytes
}

// Plus adds what a client did.
func (u UserUse) Plus(c Client) UserUse {
	u.Clients++
	u.Kernels += c.Kernels
	u.BusyTime += c.BusyTime
	u.WaitTime += c.WaitTime
	u.CopiedIn += c.CopiedIn
	u.CopiedOut += c.CopiedOut
	u.SwapIn += c.SwapIn
	u.SwapOut += c.SwapOut
	return u
}

// WriteBuild writes which Muster this is, as a metric whose value is always 1.
func WriteBuild(w io.Writer) {
	version, commit := "unknown", "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		version = info.Main.Version
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				commit = s.Value
			}
		}
	}
	metric(w, "muster_build_info", "gauge", "Which Muster this is.")
	fmt.Fprintf(w, "muster_build_info{version=%s,commit=%s,go=%s} 1\n", label(version), label(commit), label(runtime.Version()))
}

// writeUsers writes what each user's clients did since the node's start, and what they have now.
func (m *Metrics) writeUsers(w io.Writer) {
	now, memory := maps.Clone(m.Users), map[string]uint64{}
	if now == nil {
		now = map[string]UserUse{}
	}
	for _, c := range m.Node.Clients {
		now[c.User] = now[c.User].Plus(c)
		memory[c.User] += c.Allocated
	}
	users := slices.Sorted(maps.Keys(now))
	metric(w, "muster_user_memory_bytes", "gauge", "Device memory that a user's clients have allocated.")
	for _, user := range users {
		fmt.Fprintf(w, "muster_user_memory_bytes{user=%s} %d\n", label(user), memory[user])
	}
	for _, v := range []struct {
		name, help string
		value      func(UserUse) float64
	}{
		{"muster_user_clients_total", "Clients of a user that came.", func(u UserUse) float64 { return float64(u.Clients) }},
		{"muster_user_kernels_total", "Kernels of a user's clients.", func(u UserUse) float64 { return float64(u.Kernels) }},
		{"muster_user_busy_seconds_total", "Time of these kernels.", func(u UserUse) float64 { return u.BusyTime }},
		{"muster_user_wait_seconds_total", "Time that a user's clients waited for a device.", func(u UserUse) float64 { return u.WaitTime }},
		{"muster_user_copied_in_bytes_total", "Bytes that a user's clients copied to devices.", func(u UserUse) float64 { return float64(u.CopiedIn) }},
		{"muster_user_copied_out_bytes_total", "Bytes that a user's clients copied from devices.", func(u UserUse) float64 { return float64(u.CopiedOut) }},
		{"muster_user_swap_in_bytes_total", "Bytes of a user's clients brought back to devices after they made room or for a turn.", func(u UserUse) float64 { return float64(u.SwapIn) }},
		{"muster_user_swap_out_bytes_total", "Bytes of a user's clients moved off devices to make room or for a turn.", func(u UserUse) float64 { return float64(u.SwapOut) }},
	} {
		metric(w, v.name, "counter", v.help)
		for _, user := range users {
			fmt.Fprintf(w, "%s{user=%s} %s\n", v.name, label(user), number(v.value(now[user])))
		}
	}
}

// writeClients writes what the present clients have and did. A client's series end with it.
func (m *Metrics) writeClients(w io.Writer) {
	for _, v := range []struct {
		name, kind, help string
		value            func(Client) float64
	}{
		{"muster_client_memory_bytes", "gauge", "Device memory that a client has allocated.", func(c Client) float64 { return float64(c.Allocated) }},
		{"muster_client_swapped_bytes", "gauge", "Memory of a client that is only on the host.", func(c Client) float64 { return float64(c.Swapped) }},
		{"muster_client_kernels_total", "counter", "Kernels of a client.", func(c Client) float64 { return float64(c.Kernels) }},
		{"muster_client_busy_seconds_total", "counter", "Time of these kernels.", func(c Client) float64 { return c.BusyTime }},
		{"muster_client_wait_seconds_total", "counter", "Time that a client waited for a device.", func(c Client) float64 { return c.WaitTime }},
	} {
		metric(w, v.name, v.kind, v.help)
		for _, c := range m.Node.Clients {
			fmt.Fprintf(w, "%s{client=\"%d\",user=%s,program=%s} %s\n", v.name, c.ID, label(c.User), label(c.Program), number(v.value(c)))
		}
	}
}
