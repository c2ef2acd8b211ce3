package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// rescuePhases must all be there, or nothing was recovered.
var rescuePhases = []string{"set-aside", "rebuild", "start", "prove"}

// beforeChange is the time until the first change: looking at the hosts, reading
// what they hold, and the plan.
const beforeChange = "look, survey, plan"

// clusterFile is what the operator has.
const clusterFile = "cluster.yaml"

// rescue is `requorum recover`, which runs `requorum host`.
func (b *bench) rescue(name string, diskLost bool) way {
	return way{name: name, diskLost: diskLost, ready: writeCluster, read: readRescue,
		command: func(ctx context.Context, c *crash) *exec.Cmd {
			return b.operator(ctx, nil, b.requorum(), "recover", "--config", b.path(operatorFolder, clusterFile), "--yes", "--output", "json")
		}}
}

// operator is a command in a bare environment.
func (b *bench) operator(ctx context.Context, env []string, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = b.path(operatorFolder)
	cmd.Env = append([]string{"PATH=" + filepath.Dir(b.etcd("etcd")) + ":" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}, env...)
	return cmd
}

// writeCluster writes the operator's file: the hosts are all this machine.
func writeCluster(c *crash) error {
	var file strings.Builder
	fmt.Fprintf(&file, "cluster: bench\ndefaults: {run: env, requorum: %q, kind: command}\nhosts:\n", c.bench.requorum())
	for _, m := range c.members {
		start := strings.Join(append([]string{"setsid", c.bench.etcd("etcd")}, m.args(initialCluster(c.members...))...), " ") + " &"
		// The members were killed: none has to be stopped.
		fmt.Fprintf(&file, "  - {member: %s, peer-urls: [%q], client-urls: [%q], data-dir: %q, command: {start: [sh, -c, %q], stop: ['false']}, state-dir: %q}\n",
			m.name, m.peerURL, m.clientURL, m.dataDir, start, c.bench.path(operatorFolder, m.name+".state"))
	}
	return os.WriteFile(c.bench.path(operatorFolder, clusterFile), []byte(file.String()), 0o600)
}

// readRescue reads the report of a recovery.
func readRescue(out []byte, r *recovery) error {
	var reported struct {
		Proven     bool          `json:"proven"`
		RTO        time.Duration `json:"rto_nanoseconds"`
		Phases     []phaseTime   `json:"phases"`
		Began      time.Time     `json:"began"`
		Incomplete []string      `json:"incomplete"`
	}
	if err := json.Unmarshal(out, &reported); err != nil {
		return fmt.Errorf("the recovery's report: %w", err)
	}
	if !reported.Proven || reported.RTO <= 0 || len(reported.Incomplete) > 0 {
		return fmt.Errorf("the recovery's report: proven %t, RTO %s, incomplete %q: want it proven and whole", reported.Proven, reported.RTO, reported.Incomplete)
	}
	if reported.Began.Before(r.began) || reported.Began.After(r.began.Add(r.ended)) {
		return fmt.Errorf("the recovery's report: it began at %s, and the command ran from %s for %s", reported.Began, r.began, r.ended)
	}
	r.rto = reported.RTO
	r.phases = append([]phaseTime{{beforeChange, reported.Began.Sub(r.began)}}, reported.Phases...)
	has := map[string]bool{}
	for _, p := range reported.Phases {
		has[p.Name] = true
	}
	for _, name := range rescuePhases {
		if !has[name] {
			return fmt.Errorf("the recovery's report has no phase %q", name)
		}
	}
	return nil
}
