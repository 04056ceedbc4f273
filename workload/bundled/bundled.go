// Package bundled holds logs that come with Muster, for trying it out. They are files as a site
// would have them; package workload reads them.
package bundled

import (
	"embed"
	"fmt"
)

//go:embed small.csv
var files embed.FS

// Log is a log that comes with Muster.
type Log struct {
	Name    string
	Summary string
	File    string // its ending tells the format
}

var logs = []Log{
	{"small", "158 GPU jobs of two days, for the small cluster: whole nodes against remote GPUs", "small.csv"},
}

// Logs lists them.
func Logs() []Log { return logs }

// Data is the content of a log's file.
func (l Log) Data() []byte {
	data, err := files.ReadFile(l.File)
	if err != nil {
		panic(fmt.Sprintf("bundled: %v", err)) // logs names a file that does not exist; the test finds that
	}
	return data
}
