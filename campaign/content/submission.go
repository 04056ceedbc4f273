package content

import (
	"fmt"
	"slices"
	"strings"

	"muster/wire/api"
)

// The options of a submission, by what they take.
var (
	textOptions = []string{
		"--job-name=", "--account=", "--partition=", "--qos=", "--comment=", "--reservation=", "--output=", "--error=", "--input=", "--chdir=", "--nodelist=", "--exclude=",
		"--export=", "--export=ALL,X=", "--gres=", "--gres=gpu:", "--wrap=", "--mapping=", "-J", "-A", "-p", "-q", "-o", "-e", "-i", "-D", "-w", "-x",
	}
	numberOptions = []string{
		"--nodes=", "--ntasks=", "--ntasks-per-node=", "--cpus-per-task=", "--mem=", "--mem-per-cpu=", "--gpus=", "--gpus-per-node=", "--gpus-per-task=", "--time=", "--nice=", "--priority=",
		"--array=", "--array=0-", "--array=0-7%", "--array=0-7:", "--dependency=afterok:", "--begin=now+", "--begin=", "--deadline=", "--deadline=now+", "--signal=", "--signal=USR1@", "--gpu-beyond=", "--gpu-weight=",
		"--gres=gpu:", "--gres=rgpu:", "--gres=rgpu:1:", "-N", "-n", "-c", "-t", "-G", "-a", "-d", "-b",
	}
	wordOptions = []string{"--rcuda-mode=", "--open-mode=", "--exclusive=", "--signal=", "--dependency=", "--begin=", "--deadline=", "--or=", "--nodes=", "--time=", "--mem=", "--gpu-reach=", "--gpu-class="}
	plain       = []string{"--hold", "--requeue", "--no-requeue", "--exclusive", "--contiguous"}
)

var words = []string{
	"excl", "shar", "EXCL", "append", "truncate", "user", "mcs", "KILL", "SIGKILL", "B:USR1@60", "RTMIN", "65", "afterany:1", "afterok:1:1:1:1", "afterok:4294967296", "singleton", "aftercorr:1",
	"after:1+5", "expand:1", "tomorrow", "midnight", "teatime", "now+1000000days", "1970-01-01", "9999-12-31T23:59:59", "2026-02-30", "-n 2", "-n 2 --or='-n 4'", "'", "1-2", "2-1", "0-0",
	"UNLIMITED", "INFINITE", "-1", "1000000-00:00:00", "0", "1K", "1M", "1024T", "0.5G", "none", "gpu", "rgpu", "MAX", "cluster", "latency", "all",
}

// Submission draws a submission. Most have one odd thing in an otherwise sound submission, since
// something refused for one reason says nothing about another.
func (s *Source) Submission() (Kind, api.Submission) {
	for range draws {
		doc := s.sound()
		kind := s.spoil(&doc)
		if s.Only == nil && s.r.IntN(8) == 0 {
			s.spoil(&doc)
		}
		if s.wanted(kind) {
			return kind, doc
		}
	}
	return Sound, s.sound()
}

// draws is how often something is drawn anew if it is not of a wanted kind.
const draws = 1000

// Runs is how many seconds the command of a sound submission takes; it is its only argument.
const Runs = "0.05"

// sound draws a submission that everybody accepts.
func (s *Source) sound() api.Submission {
	doc := api.Submission{Options: []string{"-n1", "--time=1"}, Directory: s.Directory, Arguments: []string{"sleep", Runs}, Environment: slices.Clone(s.Environment)}
	switch s.r.IntN(4) {
	case 0:
		doc.Script, doc.Arguments = "#!/bin/sh\nsleep "+Runs+"\n", []string{Runs}
	case 1:
		doc.Environment = append(doc.Environment, "HOME=/", "PATH=/usr/bin:/bin")
	}
	if s.r.IntN(5) == 0 {
		doc.Options = append(doc.Options, pick(s, "--requeue", "--exclusive", "-c2", "--gres=rgpu:1", "--array=0-2"))
	}
	return doc
}

// spoil makes one thing of a submission odd.
func (s *Source) spoil(doc *api.Submission) Kind {
	add := func(option, value string) { doc.Options = append(doc.Options, option+value) }
	switch s.r.IntN(16) {
	case 0, 1, 2, 3:
		kind, text := s.Text()
		add(pick(s, textOptions...), text)
		return kind
	case 4, 5:
		add(pick(s, numberOptions...), s.Number())
		return Number
	case 6:
		add(pick(s, wordOptions...), pick(s, words...))
		return Word
	case 7:
		add("--array=", pick(s, "0-99999", "1-100000", "0-100000", "0-4294967295", "1-99999%1", "0-65535:1", "1,1", "99999", "0-99998:2", "0-9,5-20", strings.Repeat("1,", 5000)+"2"))
		return Array
	case 8, 9:
		add(pick(s, "--gres=rgpu:", "--gres=rgpu:", "--gpus=", "--gres=gpu:", "-N1 --gpus-per-node="), fmt.Sprint(pick(s, 2, 8, 15, 16, 17, 18, 20, 24, 32, 33, 64, 65, 1000, 1<<31)))
		return GPUs
	case 10:
		return s.spoilField(doc)
	case 11:
		doc.User = pick(s, "root", "alice", "bob", "nobody", "", "\x00", "x\x00", "root ", "ROOT", "0", "-1", strings.Repeat("u", 300))
		if len(s.Jobs) > 0 {
			add("--dependency=", fmt.Sprintf("%s:%d", pick(s, "afterok", "afternotok", "afterany", "after"), pick(s, s.Jobs...)))
		}
		return Whose
	case 12:
		return s.spoilScript(doc)
	case 13:
		n := pick(s, 100, 1000, 10_000)
		switch s.r.IntN(4) {
		case 0:
			doc.Arguments = append(doc.Arguments, make([]string, n)...)
		case 1:
			for i := range n {
				doc.Environment = append(doc.Environment, fmt.Sprintf("V%d=x", i))
			}
		case 2:
			for range n / 10 {
				add(pick(s, plain...), "")
			}
		case 3:
			add("--dependency=afterany:", strings.Repeat("1:", n)+"1")
		}
		return Many
	}
	return Sound
}

// spoilField makes something else than an option odd.
func (s *Source) spoilField(doc *api.Submission) Kind {
	kind, text := s.Text()
	switch s.r.IntN(6) {
	case 0:
		doc.Directory = pick(s, "", "/") + text
	case 1:
		doc.Arguments = append(doc.Arguments, text)
	case 2:
		doc.Environment = append(doc.Environment, pick(s, "", "X=", "LD_PRELOAD=", "PATH=", "MUSTER_JOB_ID=", "BASH_ENV=")+text)
	case 3:
		doc.Key = text
	case 4:
		doc.Arguments = []string{text}
	case 5:
		doc.Options = append(doc.Options, text)
	}
	return kind
}

func (s *Source) spoilScript(doc *api.Submission) Kind {
	_, text := s.Text()
	doc.Script = pick(s,
		"#!/bin/sh\n#SBATCH -J "+text+"\nsleep 1\n", "#!/nonexistent\n", "#!", "\n", "no interpreter\n", "#!/bin/sh\n#MUSTER --array=0-99999\n", "#!/bin/sh\n#SBATCH\n#SBATCH -\n",
		"#!/bin/sh\nexit 255\n", "#!/bin/sh\nkill -9 $$\n", "#!/bin/sh\nprintf 'x%.0s' 1 2 3 >/proc/self/oom_score_adj\n", "#!/bin/sh\n"+strings.Repeat("#SBATCH -c1\n", 5000),
		"#!/bin/sh\n#SBATCH --comment='"+text+"'\n:\n", "\x7fELF\x02\x01\x01", "#!/bin/sh\n(setsid sleep 300 &)\n:\n", "#!/bin/sh\nhead -c 100000 /dev/zero\n")
	return Script
}
