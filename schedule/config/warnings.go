package config

import (
	"net"
	"os"
	"time"

	"github.com/requorum/requorum/store/shell"
	"github.com/requorum/requorum/store/yamlfile"
	"github.com/requorum/requorum/verify/report"
)

// Warnings are what works, and is hardly meant: promises that the schedule cannot
// keep, secrets that others can read. They look at the modes of files, and at no
// network.
func (c *Config) Warnings() []error {
	k := &checker{Config: c}
	k.warnRetention()
	k.warnProofs()
	k.warnListen()
	k.warnModes()
	return k.faults
}

func (k *checker) warnRetention() {
	r, full := k.Retention, k.Jobs.Full
	k.refuse(r.AnyPoint > 0 && k.HasCluster() && !k.Archiving(), "retention.any-point", "%s of any point are promised, and this agent archives no log: add member.data-dir, or have agents beside the members do it", r.AnyPoint)
	if !k.HasCluster() || !k.Jobs.Prune.Runs() {
		return // others take the snapshots, or delete them
	}
	_, longest := Periods(full.Schedule, k.Zone())
	if !full.Runs() {
		longest = 0
	}
	policy := k.Policy()
	for _, c := range policy.Counts() {
		// An hour more: clocks are changed.
		late := longest == 0 || longest > c.Period+time.Hour
		k.refuse(*c.N > 0 && c.Period > 0 && late, "retention."+c.Name, "%d are promised, and full snapshots are %s: write jobs.full.schedule so that one is taken in each, or retention.%s: 0", *c.N, seldom(longest), c.Name)
	}
}

func seldom(period time.Duration) string {
	if period == 0 {
		return "not taken"
	}
	return "up to " + yamlfile.Duration(period).String() + " apart"
}

func (k *checker) warnProofs() {
	j := k.Jobs
	proofs := j.Prove(report.Structure)
	others := k.Repository.TrustFile != "" // a verifier's, by its key
	k.refuse(!proofs && !others, "jobs.structure", "this agent proves no backup: let structure, replay or drill run here, or on a verifier, and name its key in repository.trust-file")
	_, longest := Periods(j.Full.Schedule, k.Zone())
	k.refuse(j.Full.Runs() && proofs && k.Objectives.VerifiedWithin.Std() < longest, "objectives.verified-within", "%s is shorter than the time between two full snapshots (%s), so the agent would not be ready in between: write more, or take them more often", k.Objectives.VerifiedWithin, yamlfile.Duration(longest))
}

func (k *checker) warnListen() {
	host, port, err := net.SplitHostPort(k.Listen.Address)
	if err != nil {
		return
	}
	switch port {
	case "2379", "2380", "2381", "2382":
		k.refuse(true, "listen.address", "%s is a port that etcd takes for clients, peers or metrics: write another one, such as 2390", port)
	}
	k.refuse(!loopback(host) && k.Listen.ClientCA == "" && !k.Listen.AllowPlaintext, "listen.address", "anybody who reaches %s can read the status (names and addresses of members, reasons of failures, the repository's URL): add listen.client-ca, or write 127.0.0.1 as the host", k.Listen.Address)
}

// warnModes finds files with secrets that others than their owner can read.
func (k *checker) warnModes() {
	files := k.paths()
	if k.Heartbeat.URL != "" {
		files = append(files, named{key: "heartbeat.url", path: k.File(), secret: true}) // the configuration itself
	}
	for _, f := range files {
		if !f.secret {
			continue
		}
		info, err := os.Stat(f.path)
		if err != nil {
			continue // a fault of its own
		}
		mode := info.Mode().Perm()
		k.refuse(mode&0o077 != 0, f.key, "others can read %s (mode %04o), and a secret is in it: chmod 600 %s", f.path, mode, shell.Quote(f.path))
	}
}
