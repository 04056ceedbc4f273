package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"muster/internal/wholefile"
	"muster/model"
	"muster/slurm"
	"muster/slurm/lenders"
	"muster/slurm/words"
	"muster/wire/grant"
)

// Lending is how a driver gives jobs GPUs of other nodes.
type Lending struct {
	// Nodes are the nodes that lend.
	Nodes *lenders.Lenders
	// Folder is where the grants of jobs are written: a folder JOB.START for each start of a job,
	// with a file for each of its nodes. Slurm's nodes must see Folder under the same name. The
	// file of a node that was lent nothing is empty.
	Folder string
	// Authority vouches for the nodes that lend: certificates in PEM form.
	Authority string
	// OneUser says that the cluster lives in a user namespace: all its jobs belong to the user who
	// runs the driver, whatever that user's name and number are inside.
	OneUser bool
}

// lendTime is how long a node may take to confirm a loan.
const lendTime = 10 * time.Second

// grantFiles limits the grant files that are read back.
var grantFiles = wholefile.Limit{Bytes: grant.MaxBytes, Remedy: "is it a grant that the driver wrote?"}

// borrower is one start of a job.
type borrower struct {
	job   uint64
	start int
}

func (b borrower) folder() string { return fmt.Sprintf("%d.%d", b.job, b.start) }

// grantID is the name of the loans to a job's programs on one of its nodes. It must not look like a
// name of the head's, which agents parse as the name of a task.
func (b borrower) grantID(part int) string {
	return fmt.Sprintf("slurm-%d-%d-%d", b.job, b.start, part)
}

func readGrantID(id string) (b borrower, ok bool) {
	var part int
	n, err := fmt.Sscanf(id, "slurm-%d-%d-%d", &b.job, &b.start, &part)
	return b, err == nil && n == 3 && b.grantID(part) == id
}

// check refuses a folder that is unsuitable.
func (l *Lending) check() error {
	info, err := os.Stat(l.Folder)
	switch {
	case err != nil:
		return fmt.Errorf("the folder for grants: %w: make it, on a file system that all nodes share", err)
	case !info.IsDir() || !filepath.IsAbs(l.Folder):
		return fmt.Errorf("the folder for grants is %s: name a folder by its whole path, which is the same on all nodes", l.Folder)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("others can write to %s, and put grants of theirs there: chmod go-w %s", l.Folder, l.Folder)
	}
	return nil
}

// give lends a job everything that it borrows. When it returns nil, the grants are in their folder
// and the lending nodes have confirmed them, before the nodes of the job that have what others lend as their own.
func (l *Lending) give(ctx context.Context, p *slurm.Place) error {
	grants, err := l.makeAndWrite(p)
	if err != nil {
		return err
	}
	if err := l.tell(ctx, p.Nodes, grants, func(loan told) bool { return !loan.atHome }); err != nil {
		return err
	}
	return l.tell(ctx, p.Nodes, grants, func(loan told) bool { return loan.atHome && l.Nodes.Connected(loan.node) })
}

// tell tells some nodes of their loans, and waits until they have confirmed them.
func (l *Lending) tell(ctx context.Context, nodes []string, grants []*grant.Grant, which func(told) bool) error {
	ctx, cancel := context.WithTimeout(ctx, lendTime)
	defer cancel()
	for part, g := range grants {
		for _, loan := range loansOf(nodes[part], g) {
			if !which(loan) {
				continue
			}
			if err := l.Nodes.Lend(ctx, loan.node, loan.Loan); err != nil {
				return err
			}
		}
	}
	return nil
}

// giveAgain is give for a job that Slurm may have started already: it does not wait for the lending
// nodes; the job's steps do.
func (l *Lending) giveAgain(p *slurm.Place) error {
	grants, err := l.makeAndWrite(p)
	if err != nil {
		return err
	}
	for part, g := range grants {
		for _, loan := range loansOf(p.Nodes[part], g) {
			l.Nodes.Want(loan.node, loan.Loan)
		}
	}
	return nil
}

// makeAndWrite makes a job's grants and writes them to their folder.
func (l *Lending) makeAndWrite(p *slurm.Place) ([]*grant.Grant, error) {
	grants, err := l.make(p)
	if err != nil {
		return nil, err
	}
	if err := l.write(borrower{p.Job.ID, p.Start}.folder(), p, grants); err != nil {
		return nil, fmt.Errorf("its grant cannot be written: %w", err)
	}
	return grants, nil
}

// make makes the grant for each node of a job; nil for a node that is lent nothing.
func (l *Lending) make(p *slurm.Place) ([]*grant.Grant, error) {
	who := borrower{p.Job.ID, p.Start}
	grants := make([]*grant.Grant, len(p.Nodes))
	for part, borrows := range p.Borrows {
		if len(borrows) == 0 {
			continue
		}
		g := &grant.Grant{ID: who.grantID(part), User: l.user(p.User), Secret: grant.NewCredential(), Limit: grant.AllDevices}
		for _, b := range borrows {
			d := grant.Device{Node: b.Node, Device: b.Device.Device, Memory: uint64(b.Memory), Reach: b.Hold.Reach, Beyond: b.Hold.Beyond}
			if b.Node != p.Nodes[part] {
				var err error
				if d.Address, err = l.Nodes.Gateway(b.Node); err != nil {
					return nil, err
				}
				g.Authority = l.Authority
			}
			g.Devices = append(g.Devices, d)
		}
		if err := g.Validate(); err != nil {
			return nil, fmt.Errorf("its grant for node %s: %w", p.Nodes[part], err)
		}
		grants[part] = g
	}
	return grants, nil
}

// user is the name by which the lending nodes know a user of Slurm.
func (l *Lending) user(name string) string {
	if l.OneUser {
		if own, err := user.Current(); err == nil {
			return own.Username
		}
	}
	return name
}

// told is what a node is told of a grant. atHome says that it is told of devices of other nodes, too.
type told struct {
	grant.Loan
	node   string
	atHome bool
}

// loansOf lists what is told of a grant for programs on a node: that node comes last, if it has what others lend as
// its own.
func loansOf(home string, g *grant.Grant) (list []told) {
	if g == nil {
		return nil
	}
	seen := map[string]bool{home: g.NeedsHome()}
	for _, d := range g.Devices {
		if !seen[d.Node] {
			seen[d.Node] = true
			list = append(list, told{g.Loan(d.Node), d.Node, false})
		}
	}
	if g.NeedsHome() {
		list = append(list, told{g.HomeLoan(home), home, true})
	}
	return list
}

// write makes a job's folder atomically: a reader that finds the folder finds all of it. Only the
// job's user can read it.
func (l *Lending) write(name string, p *slurm.Place, grants []*grant.Grant) error {
	next, final := filepath.Join(l.Folder, unfinished+name), filepath.Join(l.Folder, name)
	if err := errors.Join(os.RemoveAll(next), os.RemoveAll(final)); err != nil {
		return err
	}
	if err := os.Mkdir(next, 0o700); err != nil {
		return err
	}
	for part, node := range p.Nodes {
		var text []byte
		if g := grants[part]; g != nil {
			var err error
			if text, err = g.Encode(); err != nil {
				return err
			}
		}
		file := filepath.Join(next, node)
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return err
		}
		if err := l.giveTo(file, p.UID); err != nil {
			return err
		}
	}
	if err := l.giveTo(next, p.UID); err != nil {
		return err
	}
	return os.Rename(next, final)
}

// giveTo makes the job's user the owner of a file.
func (l *Lending) giveTo(path string, uid int) error {
	if l.OneUser || uid == os.Geteuid() {
		return nil
	}
	if err := os.Chown(path, uid, -1); err != nil {
		return fmt.Errorf("%w: only root can give files to users: run the driver as root, or let it have CAP_CHOWN", err)
	}
	return nil
}

// unfinished is the prefix of folders that are being written.
const unfinished = ".new-"

// find lists the jobs whose grants are in the folder, and removes what a killed driver was writing.
func (l *Lending) find() ([]borrower, error) {
	entries, err := os.ReadDir(l.Folder)
	var list []borrower
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), unfinished) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(l.Folder, e.Name())))
		}
		var b borrower
		if n, _ := fmt.Sscanf(e.Name(), "%d.%d", &b.job, &b.start); n == 2 && b.folder() == e.Name() {
			list = append(list, b)
		}
	}
	return list, err
}

// remember tells the nodes again what they lend to a job, from the job's folder, since a node may
// have forgotten it while no driver ran. The job's user can change the files there, so only devices
// that the driver gave count, and each only once.
func (l *Lending) remember(who borrower, given *slurm.Loan) error {
	folder := filepath.Join(l.Folder, who.folder())
	if _, err := os.Stat(folder); err != nil {
		return err
	}
	left := slices.Clone(given.GPUs)
	for _, node := range given.Nodes {
		text, err := readGrant(filepath.Join(folder, node))
		if err != nil || len(text) == 0 {
			continue // the job's user has removed it, or the node was lent nothing
		}
		g, err := grant.Decode(text)
		if err != nil {
			continue // the job's user has changed it
		}
		if b, ok := readGrantID(g.ID); !ok || b != who || g.User != l.user(given.User) || g.Turns != (model.Turns{}) || !takeFrom(&left, g.Devices) {
			continue
		}
		l.wantAsGiven(node, g)
	}
	return nil
}

// wantAsGiven has the nodes lend what a grant says that the job's user could change. Where the lenders are, and who
// vouches for them, is for the driver to say, since the job's node asks them in its own name. While one of them is not
// connected, its address is not known, and the job's node is told of its own devices alone; it keeps what it has.
func (l *Lending) wantAsGiven(home string, g *grant.Grant) {
	known := true
	for i := range g.Devices {
		d := &g.Devices[i]
		if d.Node == home {
			d.Address = ""
		} else if address, err := l.Nodes.Gateway(d.Node); err == nil {
			d.Address = address
		} else {
			known = false
		}
	}
	g.Authority = l.Authority
	for _, loan := range loansOf(home, g) {
		if loan.atHome && !known {
			if loan.Loan = loan.Own(); len(loan.Devices) == 0 {
				continue
			}
		}
		l.Nodes.Want(loan.node, loan.Loan)
	}
}

// readGrant reads a file that a job's user may have replaced: it does not wait for a pipe and does
// not follow a link.
func readGrant(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, fs.ErrInvalid)
	}
	return grantFiles.Read(f, path)
}

// takeFrom removes the devices of a grant from the given devices that are left. If one of them is
// not there, it removes none and returns false. A grant may say less of how far programs go, and how much they may
// have beyond a share, than was given: drivers that knew neither wrote neither, and gave jobs less.
func takeFrom(left *[]slurm.Borrow, devices []grant.Device) bool {
	rest := slices.Clone(*left)
	for _, d := range devices {
		i := slices.IndexFunc(rest, func(b slurm.Borrow) bool {
			return b.Device == words.Device{Node: d.Node, Device: d.Device} && b.Memory == int64(d.Memory) && d.Reach <= b.Hold.Reach && d.Beyond <= b.Hold.Beyond
		})
		if i < 0 {
			return false
		}
		rest = slices.Delete(rest, i, i+1)
	}
	*left = rest
	return true
}

// takeBack ends all loans except those of jobs that keeps names.
func (l *Lending) takeBack(given map[borrower]bool, keeps func(borrower) bool) error {
	l.Nodes.Keep(func(id string) bool {
		b, ok := readGrantID(id)
		return ok && keeps(b)
	})
	var trouble error
	for b := range given {
		if keeps(b) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(l.Folder, b.folder())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			trouble = err
			continue
		}
		delete(given, b)
	}
	return trouble
}
