package engine

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"muster/policy/priority"
	"muster/slurm"
)

// Accounting asks Slurm's database for what priorities depend on: the priority of each QOS, and the
// fair share of each user. It returns nil if there is no database.
func (e *Engine) Accounting(ctx context.Context) (*slurm.Accounting, error) {
	if !e.site.Accounting {
		return nil, nil
	}
	classes, err := e.run(ctx, "", "sacctmgr", "-nP", "show", "qos", "format=Name,Priority")
	if err != nil {
		return nil, err
	}
	shares, err := e.run(ctx, "", "sshare", "-anP", "-o", "Account,User,FairShare")
	if err != nil {
		return nil, err
	}
	a := &slurm.Accounting{}
	if a.QOS, err = readQOS(classes); err != nil {
		return nil, err
	}
	a.Shares, err = readShares(shares)
	return a, err
}

// readQOS parses lines such as "high|100".
func readQOS(text string) (list []priority.QOS, err error) {
	for line := range strings.Lines(text) {
		name, number, _ := strings.Cut(strings.TrimSpace(line), "|")
		if name == "" {
			continue
		}
		q := priority.QOS{Name: name}
		if q.Priority, err = strconv.ParseInt(number, 10, 64); err != nil {
			return nil, fmt.Errorf("sacctmgr says of QOS %s that its priority is %.40q", name, number)
		}
		list = append(list, q)
	}
	return list, nil
}

// readShares parses lines such as " physics|alice|0.75". Lines of whole accounts name no user.
func readShares(text string) (map[priority.Member]float64, error) {
	shares := map[priority.Member]float64{}
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSpace(line), "|")
		if len(f) < 3 || strings.TrimSpace(f[1]) == "" {
			continue
		}
		x, err := strconv.ParseFloat(strings.TrimSpace(f[2]), 64)
		if err != nil || !(x >= 0 && x <= 1) {
			return nil, fmt.Errorf("sshare says of user %.40s that the fair share is %.40q", f[1], f[2])
		}
		shares[priority.Member{Account: strings.TrimSpace(f[0]), User: strings.TrimSpace(f[1])}] = x
	}
	return shares, nil
}
