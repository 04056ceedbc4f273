package report

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// Tables keep within the columns of a terminal: prose is wrapped, other text is cut, numbers are not.
func TestTablesFitTheTerminal(t *testing.T) {
	prose := &Table{
		Columns: []Column{{Name: "Policy"}, {Name: "What it does"}},
		Rows:    [][]string{{"easy", "jobs overtake if they do not delay the first job that waits"}, {"fcfs", "nothing overtakes"}},
	}
	programs := &Table{
		Columns: []Column{{Name: "CLIENT"}, {Name: "PROGRAM"}, {Name: "DEVICE"}, {Name: "MEMORY", Right: true}},
		Rows:    [][]string{{"1", "train --with many --arguments of=its own", "0 NVIDIA H200", "123.5 GiB"}},
	}
	for _, c := range []struct {
		table   *Table
		columns int
		want    string
	}{
		{prose, 40, `Policy  What it does
------  ------------------------------
easy    jobs overtake if they do not
        delay the first job that waits
fcfs    nothing overtakes
`},
		{programs, 44, "CLIENT  PROGRAM "},
		{programs, 10, `CLIENT  PROGRAM  DEVICE     MEMORY
------  -------  ------  ---------
1       train …  0 NVI…  123.5 GiB
`},
	} {
		var got strings.Builder
		if err := c.table.WriteFitted(&got, c.columns); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(got.String(), c.want) {
			t.Errorf("%d columns: got\n%swant\n%s", c.columns, got.String(), c.want)
		}
		for line := range strings.Lines(got.String()) {
			if n := utf8.RuneCountInString(strings.TrimSpace(line)); n > c.columns && c.columns > 10 {
				t.Errorf("%d columns: a line has %d: %s", c.columns, n, line)
			}
		}
		if !strings.Contains(got.String(), "GiB") && c.table == programs {
			t.Errorf("%d columns: a number was cut:\n%s", c.columns, got.String())
		}
	}
	// If there is enough room, or if the width is unknown, nothing changes.
	for _, columns := range []int{0, 200} {
		var fitted, plain strings.Builder
		if err := programs.WriteFitted(&fitted, columns); err != nil {
			t.Fatal(err)
		}
		if err := programs.WriteText(&plain); err != nil || fitted.String() != plain.String() {
			t.Errorf("%d columns: %v, got\n%s", columns, err, fitted.String())
		}
	}
}

// Columns are left out until the rest fits: those that say nothing first, then the last ones.
func TestNarrowedTables(t *testing.T) {
	table := &Table{
		Columns: Columns("<CLIENT", "<PROGRAM", ">WAITS", ">HELD", "<MPS", ">WORKER"),
		Rows:    [][]string{{"1", "train --with many --arguments", "3", "0", "-", "4711"}, {"2", "far", "0", "0", "-", "-"}},
	}
	for _, c := range []struct {
		columns, left int
		want          string
	}{
		{0, 0, "CLIENT PROGRAM WAITS HELD MPS WORKER"},
		{46, 0, "CLIENT PROGRAM WAITS HELD MPS WORKER"},
		{45, 1, "CLIENT PROGRAM WAITS HELD WORKER"},
		{40, 2, "CLIENT PROGRAM WAITS WORKER"},
		{34, 3, "CLIENT PROGRAM WAITS"},
		{1, 4, "CLIENT PROGRAM"},
	} {
		narrow, left := table.Narrowed(c.columns, 2)
		var names []string
		for _, column := range narrow.Columns {
			names = append(names, column.Name)
		}
		if got := strings.Join(names, " "); got != c.want || left != c.left {
			t.Errorf("%d columns: got %s, %d left out\nwant %s, %d left out", c.columns, got, left, c.want, c.left)
		}
		var text strings.Builder
		if err := narrow.WriteFitted(&text, c.columns); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(text.String()) {
			if n := utf8.RuneCountInString(strings.TrimSpace(line)); n > c.columns && c.columns > 1 {
				t.Errorf("%d columns: a line has %d: %s", c.columns, n, line)
			}
		}
	}
}
