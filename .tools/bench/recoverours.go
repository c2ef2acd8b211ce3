package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// controlRoles are what an operator's certificate has: all that a recovery asks of
// the hosts.
var controlRoles = []string{"requorum:observe", "requorum:stop", "requorum:start", "requorum:set-aside", "requorum:undo",
	"requorum:copy", "requorum:rebuild", "requorum:quiesce", "requorum:resume"}

// rescuePhases must all be there, or nothing was recovered.
var rescuePhases = []string{"set-aside", "rebuild", "start", "prove"}

// beforeChange is the time until the first change: looking at the hosts, reading
// what they hold, and the plan.
const beforeChange = "look, survey, plan"

// clusterFile is what the operator has.
const clusterFile = "cluster.yaml"

// rescue is `requorum recover`, with a control process on each host.
func (b *bench) rescue(name string, diskLost bool) way {
	return way{name: name, diskLost: diskLost, ready: startControl, read: readRescue,
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

// startControl starts a control process on each host, and writes the operator's
// file.
func startControl(ctx context.Context, c *crash) ([]*server, error) {
	ports, err := freePorts(len(c.members))
	if err != nil {
		return nil, err
	}
	a, err := newAuthority(c.bench.path(operatorFolder))
	if err != nil {
		return nil, err
	}
	cert, key, err := a.issue("operator", controlRoles...)
	if err != nil {
		return nil, err
	}
	var file strings.Builder
	fmt.Fprintf(&file, "cluster: bench\ncontrol: {ca: %q, cert: %q, key: %q}\nhosts:\n", a.ca(), cert, key)
	var hosts []*server
	for i, m := range c.members {
		address := fmt.Sprintf("127.0.0.1:%d", ports[i])
		fmt.Fprintf(&file, "  - {member: %s, control: %q, peer-urls: [%q], client-urls: [%q]}\n", m.name, address, m.peerURL, m.clientURL)
		s, err := c.startControl(ctx, a, m, address)
		if err != nil {
			return hosts, err
		}
		hosts = append(hosts, s)
	}
	return hosts, os.WriteFile(c.bench.path(operatorFolder, clusterFile), []byte(file.String()), 0o600)
}

func (c *crash) startControl(ctx context.Context, a *authority, m member, address string) (*server, error) {
	cert, key, err := a.issue(m.name, "requorum:copy")
	if err != nil {
		return nil, err
	}
	command, err := json.Marshal(append([]string{c.bench.etcd("etcd")}, m.args(initialCluster(c.members...))...)) // YAML reads it
	if err != nil {
		return nil, err
	}
	state := c.bench.path(operatorFolder, m.name+".state")
	text := fmt.Sprintf(`listen: {address: %q, cert: %q, key: %q, client-ca: %q}
member:
  name: %s
  data-dir: %q
  kind: store
  store: {command: %s}
state-dir: %q
`, address, cert, key, a.ca(), m.name, m.dataDir, command, state)
	file := c.bench.path(operatorFolder, m.name+".yaml")
	if err := errors.Join(os.MkdirAll(state, 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
		return nil, err
	}
	return startUntil(ctx, "control-"+m.name, c.bench.dir, address, listens, nil, c.bench.requorum(), "agent", "control", "--config", file)
}

// listens tells whether something takes connections: a control process answers
// nobody without a certificate.
func listens(ctx context.Context, address string) bool {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// readRescue reads the report of a recovery.
func readRescue(out []byte, r *recovery) error {
	var told struct {
		Proven bool          `json:"proven"`
		RTO    time.Duration `json:"rto_nanoseconds"`
		Phases []phaseTime   `json:"phases"`
		Hosts  []struct {
			Phases []phaseTime `json:"phases"`
		} `json:"hosts"`
		Began      time.Time `json:"began"`
		Incomplete []string  `json:"incomplete"`
	}
	if err := json.Unmarshal(out, &told); err != nil {
		return fmt.Errorf("the recovery's report: %w", err)
	}
	if !told.Proven || told.RTO <= 0 || len(told.Incomplete) > 0 {
		return fmt.Errorf("the recovery's report: proven %t, RTO %s, incomplete %q: want it proven and whole", told.Proven, told.RTO, told.Incomplete)
	}
	if told.Began.Before(r.began) || told.Began.After(r.began.Add(r.ended)) {
		return fmt.Errorf("the recovery's report: it began at %s, and the command ran from %s for %s", told.Began, r.began, r.ended)
	}
	r.rto = told.RTO
	r.phases = append([]phaseTime{{beforeChange, told.Began.Sub(r.began)}}, told.Phases...)
	has := map[string]bool{}
	for _, p := range told.Phases {
		has[p.Name] = true
	}
	for _, name := range rescuePhases {
		if !has[name] {
			return fmt.Errorf("the recovery's report has no phase %q", name)
		}
	}
	var longest time.Duration
	for _, h := range told.Hosts {
		var sum time.Duration
		for _, p := range h.Phases {
			sum += p.Took
		}
		if sum > longest {
			r.rebuild, longest = h.Phases, sum
		}
	}
	if longest == 0 {
		return errors.New("the recovery's report has no host that was rebuilt")
	}
	return nil
}
