package chaos

import (
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Expect is what happens to a program whose worker or device is lost.
type Expect string

const (
	Survive Expect = "recover" // it continues
	Fail    Expect = "error"   // it gets an error
)

// Options describe a campaign.
type Options struct {
	Muster   string // the program; its libraries are in lib/ beside it
	Examples string // the folder of the examples
	Dir      string // gets a folder for each episode

	Seed     uint64
	Faults   int
	Share    int // faults per episode
	Only     int // the number of the only episode to play; 0 for all
	Programs int // that run at a time
	Kinds    []Kind
	Expect   Expect
	Keep     bool          // keep the folders of episodes without violations
	Patience time.Duration // limit for any single wait
	Settle   time.Duration // how long the remains of what has ended may take to disappear
	Log      io.Writer     // for progress; nil discards it
}

// Result counts what happened.
type Result struct {
	Faults     map[Kind]int   `json:"faults"`
	PassedOver int            `json:"passed_over"` // faults without a victim
	Ends       map[string]int `json:"programs"`    // how programs ended
}

// Violation is an episode in which a check failed.
type Violation struct {
	Episode int      `json:"episode"`
	What    []string `json:"what"`
	Dir     string   `json:"folder"`
	Again   string   `json:"again"` // the command that repeats this episode
	Account string   `json:"account"`
	Logs    string   `json:"logs"`
}

// Report is the report of a campaign.
type Report struct {
	Seed       uint64      `json:"seed"`
	Injected   int         `json:"injected"`
	Episodes   int         `json:"episodes"`
	Seconds    float64     `json:"seconds"`
	Skipped    []string    `json:"skipped"` // what cannot be tested on this machine, and why
	Violations []Violation `json:"violations"`
	Result
}

// Run plays a campaign until a check fails or all faults have been injected. An error says that the
// campaign could not be played.
func Run(o Options) (*Report, error) {
	began := time.Now()
	r := &Report{Seed: o.Seed, Skipped: []string{}, Violations: []Violation{}, Result: Result{Faults: map[Kind]int{}, Ends: map[string]int{}}}
	canMount := o.tryMount(r)
	if len(o.Kinds) == 0 {
		return nil, fmt.Errorf("none of the faults can be tried here: %s", strings.Join(r.Skipped, "; "))
	}
	if err := o.makeCertificates(); err != nil {
		return nil, err
	}
	defer os.RemoveAll(filepath.Join(o.Dir, "certificates"))
	for number, left := 1, o.Faults; left > 0 && len(r.Violations) == 0; number++ {
		share := min(o.Share, left)
		left -= share
		if o.Only != 0 && o.Only != number {
			continue
		}
		e := newEpisode(&o, number, share, drawNode(o.Seed, number, o.Kinds, canMount), filepath.Join(o.Dir, fmt.Sprintf("episode-%d", number)))
		if err := e.runIn(); err != nil {
			return nil, fmt.Errorf("episode %d: %w", number, err)
		}
		r.add(e)
		o.say("episode %d: %d faults, %d programs, %.1f s in all", number, r.Injected, r.programs(), time.Since(began).Seconds())
	}
	r.Seconds = time.Since(began).Seconds()
	return r, nil
}

// makeCertificates makes the certificates for programs of other machines.
func (o *Options) makeCertificates() error {
	out, err := exec.Command(o.Muster, "cert", filepath.Join(o.Dir, "certificates"), "--host", "127.0.0.1", "--user", "somebody").CombinedOutput()
	if err != nil {
		return fmt.Errorf("making certificates: %w: %s", err, out)
	}
	return nil
}

// certificates is the folder with the certificates of a node or a user.
func (o *Options) certificates(of string) string {
	found, _ := filepath.Glob(filepath.Join(o.Dir, "certificates", of))
	if len(found) != 1 {
		return "nowhere"
	}
	return found[0]
}

func (o *Options) say(format string, args ...any) {
	if o.Log != nil {
		fmt.Fprintf(o.Log, format+"\n", args...)
	}
}

// tryMount finds out whether a small disk can be mounted. If not, the kinds that need one are
// skipped.
func (o *Options) tryMount(r *Report) bool {
	dir := filepath.Join(o.Dir, "disk")
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = mountDisk(dir, 1<<20)
	}
	if err == nil {
		err = syscall.Unmount(dir, 0)
	}
	_ = os.Remove(dir)
	if err == nil {
		return true
	}
	if slices.Contains(o.Kinds, DiskFull) {
		r.Skipped = append(r.Skipped, fmt.Sprintf("%s: a small disk cannot be mounted: %v", DiskFull, err))
		o.Kinds = slices.DeleteFunc(slices.Clone(o.Kinds), func(k Kind) bool { return k == DiskFull })
	}
	return false
}

// runIn plays the episode in its folder, which it keeps if there was a violation.
func (e *episode) runIn() error {
	if err := os.RemoveAll(e.dir); err != nil {
		return err
	}
	if err := os.MkdirAll(e.dir, 0o755); err != nil {
		return err
	}
	if err := e.run(); err != nil {
		return err
	}
	if len(e.violations) > 0 || e.o.Keep {
		return os.WriteFile(filepath.Join(e.dir, "history"), []byte(e.text()), 0o644)
	}
	return os.RemoveAll(e.dir)
}

func (r *Report) add(e *episode) {
	r.Episodes++
	r.PassedOver += e.result.PassedOver
	for k, n := range e.result.Faults {
		r.Faults[k] += n
		r.Injected += n
	}
	for how, n := range e.result.Ends {
		r.Ends[how] += n
	}
	if len(e.violations) > 0 {
		logs := ""
		for i := range e.node.starts {
			logs += fmt.Sprintf("--- the daemon's log, start %d\n%s", i+1, tail(e.node.logFile(i+1), 40))
		}
		r.Violations = append(r.Violations, Violation{e.number, e.violations, e.dir, e.o.again(e.number), e.text(), logs})
	}
}

// again is the command that repeats one episode of the campaign.
func (o *Options) again(episode int) string {
	var kinds []string
	for _, k := range o.Kinds {
		kinds = append(kinds, string(k))
	}
	return fmt.Sprintf("scripts/chaos --seed %d --faults %d --share %d --programs %d --expect %s --kinds %s --episode %d",
		o.Seed, o.Faults, o.Share, o.Programs, o.Expect, strings.Join(kinds, ","), episode)
}

// Line is the report in one line, for a caller that plays many campaigns.
func (r *Report) Line() string {
	return fmt.Sprintf("campaign: seed=%d faults=%d (%s) passed_over=%d episodes=%d seconds=%.0f programs=%d (%s) wrong=%d violations=%d",
		r.Seed, r.Injected, counts(r.Result.Faults), r.PassedOver, r.Episodes, r.Seconds, r.programs(), counts(r.Ends), r.Ends[string(wrong)], len(r.Violations))
}

// counts writes counts by name.
func counts[K ~string](of map[K]int) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, fmt.Sprintf("%s %d", k, of[k]))
	}
	return strings.Join(parts, ", ")
}

func (r *Report) programs() int {
	n := 0
	for _, m := range r.Ends {
		n += m
	}
	return n
}
