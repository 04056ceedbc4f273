package workload

import (
	"compress/gzip"
	"fmt"
	"io"
	"reflect"

	"muster/internal/units"
	"muster/model"
)

// Limits on logs. A file that is not a log, or was made to do harm, causes an error that names its
// line instead of using up the memory. docs/workloads.md lists the limits for users.
const (
	maxLine        = 1 << 20  // bytes of a line
	maxText        = 64 << 30 // bytes of all lines, uncompressed
	maxHeaderLines = 1 << 16  // comment lines that are kept
	maxHeaderBytes = 4 << 20
	maxColumns     = 1024
	maxKept        = 4 << 30 // bytes of jobs and names in memory
	maxNotes       = 50      // kinds of notes
	maxReason      = 400     // bytes of the reason in an error

	// gzip compresses endless repetition a thousand times, but logs only five to thirty times.
	// Texts up to freelyUnpacks are not checked.
	maxRatio      = 200
	freelyUnpacks = 64 << 20
)

// The sizes of the parts of a job.
var (
	sizeOfJob     = int64(reflect.TypeFor[model.Job]().Size())
	sizeOfRequest = int64(reflect.TypeFor[model.Request]().Size())
	sizeOfLogged  = int64(reflect.TypeFor[model.Logged]().Size())
	sizeOfRemote  = int64(reflect.TypeFor[model.RemoteGPUs]().Size())
	sizeOfText    = int64(reflect.TypeFor[string]().Size())
)

// jobCost is the approximate memory of a job. Texts that it shares with other jobs count each time;
// they are short in any normal log.
func jobCost(j *model.Job) int64 {
	n := sizeOfJob + int64(len(j.ID)+len(j.User)+len(j.Group)+len(j.Queue)) + requestCost(&j.Request)
	for i := range j.Alternatives {
		n += sizeOfRequest + requestCost(&j.Alternatives[i])
	}
	if l := j.Logged; l != nil {
		n += sizeOfLogged + int64(len(l.Executable)+len(l.Partition)+len(l.Preceding))
	}
	return n
}

// requestCost is the memory of a request beyond its own size.
func requestCost(r *model.Request) int64 {
	n := int64(len(r.GPUType))
	for _, name := range r.NodeList {
		n += sizeOfText + int64(len(name))
	}
	if r.Remote != nil {
		n += sizeOfRemote
	}
	return n
}

// charge counts memory that the log occupies permanently.
func (b *batch) charge(bytes int64) *fault {
	if b.kept += bytes; b.kept > maxKept {
		return fatalf(1, "the jobs up to here take more than %s of memory: split the log", units.FormatSize(maxKept))
	}
	return nil
}

// keepComment keeps a comment line of the log.
func (b *batch) keepComment(line string) *fault {
	if b.headerBytes += len(line); b.headerBytes > maxHeaderBytes {
		return fatalf(1, "the comment lines up to here have more than %s: leave some out", units.FormatSize(maxHeaderBytes))
	}
	if len(b.wl.Header) == maxHeaderLines {
		return fatalf(1, "there are more than %d comment lines: leave some out", maxHeaderLines)
	}
	b.wl.Header = append(b.wl.Header, line)
	return nil
}

// checkColumns refuses a table that is too wide.
func checkColumns(n int) *fault {
	if n > maxColumns {
		return fatalf(1, "the header names %d columns: at most %d are read", n, maxColumns)
	}
	return nil
}

// shortReason shortens a reason to fit a message. It may quote a value of any length.
func shortReason(reason string) string {
	if len(reason) <= maxReason {
		return reason
	}
	const half = maxReason / 2
	return reason[:half] + " ... " + reason[len(reason)-half:]
}

var errBomb = fmt.Errorf("the gzip data unpacks to more than %d times its size, which no job log does", maxRatio)

// unpacker decompresses gzip, and refuses data that expand implausibly.
type unpacker struct {
	gzip   *gzip.Reader
	packed *counter
	text   int64
}

func newUnpacker(r *counter, buffered io.Reader) (*unpacker, error) {
	z, err := gzip.NewReader(buffered)
	return &unpacker{gzip: z, packed: r}, err
}

func (u *unpacker) Read(p []byte) (int, error) {
	n, err := u.gzip.Read(p)
	u.text += int64(n)
	if u.text > freelyUnpacks && u.text/maxRatio > u.packed.bytes {
		return n, errBomb
	}
	return n, err
}

// counter counts the bytes that are read.
type counter struct {
	r     io.Reader
	bytes int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.bytes += int64(n)
	return n, err
}
