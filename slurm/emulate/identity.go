package emulate

import (
	"crypto/rand"
	"fmt"
	"os"
	"os/user"
	"regexp"
	"strings"

	"muster/internal/wholefile"
)

// identity is the user that runs the daemons, as the cluster sees it.
type identity struct {
	rootless      bool
	uid, gid      int // inside; the same as outside, except for users who need standIn
	name          string
	passwd, group string
}

// other is the user of slurmrestd, which refuses to run as root or as SlurmUser.
const other = 65534

// standIn is the number, inside a user namespace, of users whom Slurm would refuse there: root,
// since it cannot drop its groups, and nobody, which slurmrestd runs as.
const standIn = 1000

// plainName matches names of users that Slurm's configuration allows.
var plainName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,31}$`)

// accounts limits the machine's lists of users and groups: a cluster needs only a few of them.
var accounts = wholefile.Limit{Bytes: 1 << 20, Remedy: "the cluster goes without it"}

// whoami decides which user runs the daemons. Root of the machine runs them as root, so that jobs
// of all users can be tried; other users run them as themselves, in a user namespace.
func whoami(rootless bool) identity {
	id := identity{rootless: rootless || !mayMount(), uid: os.Geteuid(), gid: os.Getegid(), name: "root"}
	if id.rootless {
		if id.uid == 0 || id.uid == other {
			id.uid, id.gid, id.name = standIn, standIn, hostname
		} else {
			id.name = currentName()
		}
	}
	home, err := os.UserHomeDir()
	if err != nil || strings.ContainsAny(home, ":\n") {
		home = "/"
	}
	own := fmt.Sprintf("%s:x:%d:%d::%s:/bin/bash", id.name, id.uid, id.gid, home)
	id.passwd = accountLines([]string{own, "root:x:0:0::/root:/bin/bash", fmt.Sprintf("nobody:x:%d:%d::/:/usr/sbin/nologin", other, other)}, "/etc/passwd")
	id.group = accountLines([]string{fmt.Sprintf("%s:x:%d:", id.name, id.gid), "root:x:0:", fmt.Sprintf("nogroup:x:%d:", other)}, "/etc/group")
	return id
}

// UserID is the number that SlurmUser will have in a cluster started now.
func UserID(o Options) int { return whoami(o.Rootless).uid }

func currentName() string {
	u, err := user.Current()
	if err != nil || !plainName.MatchString(u.Username) || u.Username == "root" {
		return hostname
	}
	return u.Username
}

// accountLines are the lines of passwd or group: first those given, then the machine's own for
// other names and numbers, with a shell that the cluster has.
func accountLines(first []string, file string) string {
	names, numbers := map[string]bool{}, map[string]bool{}
	var b strings.Builder
	add := func(line string) {
		words := strings.Split(line, ":")
		if len(words) < 4 || names[words[0]] || numbers[words[2]] || strings.HasPrefix(line, "#") {
			return
		}
		names[words[0]], numbers[words[2]] = true, true
		if len(words) == 7 && !strings.HasSuffix(words[6], "nologin") {
			words[6] = "/bin/bash"
		}
		b.WriteString(strings.Join(words, ":") + "\n")
	}
	for _, line := range first {
		add(line)
	}
	if text, err := accounts.ReadFile(file); err == nil {
		for _, line := range strings.Split(string(text), "\n") {
			add(line)
		}
	}
	return b.String()
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	rand.Read(b) // never fails
	return b
}
