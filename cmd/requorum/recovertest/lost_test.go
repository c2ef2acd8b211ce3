package recovertest

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/storetest"
)

// secondsBehind is how far an archive "to the second" may be behind when all is
// lost: a second until the next segment is cut, and what cutting and storing it
// takes on a busy machine.
const secondsBehind = 5 * time.Second

// TestPoint2HostsLost is point 2 of what recover must show: hosts are lost for
// good, and the log was archived to the second. Lost is at most what no survivor
// and no archive held, and the plan had said so beforehand.
func TestPoint2HostsLost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		hosts, lost int
		replace     bool // new hosts take the place of the lost ones
		repository  RepositoryKind
	}{
		{name: "3 of 3", hosts: 3, lost: 3, repository: OnS3},
		{name: "2 of 3", hosts: 3, lost: 2, replace: true, repository: OnDisk},
		{name: "3 of 5", hosts: 5, lost: 3, repository: OnDisk},
	} {
		if testing.Short() && !c.replace {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := Options{Version: "3.7", Hosts: c.hosts, Repository: c.repository}
			if c.replace {
				o.Spare = c.lost
			}
			s := Start(t, o)
			lost, survivors := s.Members()[:c.lost], s.Members()[c.lost:]
			l := LightLoad(t, "/load/", During(time.Duration(storetest.Amount(2, 8, 8))*time.Second), func() { s.Lose(t, lost...) }, s.Client(t, s.Members()...), s.Client(t, s.Members()...))
			s.afterLoss(t, l, lost, survivors)
		})
	}
}

func (s *Site) afterLoss(t *testing.T, l *Load, lost, survivors []*Host) {
	t.Helper()
	var names []string
	for _, h := range lost {
		names = append(names, h.Name)
	}
	args := []string{"--declare-dead", strings.Join(names, ",")}
	hosts := survivors
	switch {
	case len(s.Hosts()) > len(s.Members()):
		spare := s.Hosts()[len(s.Members()):]
		for i, h := range spare {
			args = append(args, "--replace", lost[i].Name+"="+h.Name+"="+h.PeerURL)
		}
		hosts = append(slices.Clone(survivors), spare...)
	case len(survivors) == 0:
		for _, h := range lost { // set up again, with nothing on their disks
			h.LinkUp(t)
		}
		hosts = lost
	default:
		var left []string
		for _, h := range survivors {
			left = append(left, h.Name)
		}
		args = append(args, "--members", strings.Join(left, ","))
	}
	p := s.survey(t, exitUnproven, hosts, args...)
	if p.Plan == nil || p.Plan.Chosen == "" || p.Plan.Proven || p.Plan.Loss.Text == "" {
		t.Fatalf("the plan: %+v", p.Plan)
	}
	archived := s.Archived(t).LastRevision
	var logs []byte
	for _, h := range survivors {
		logs = append(logs, h.log(t)...)
	}
	r := s.recover(t, exitUnproven, hosts, append(args, "--accept-loss", s.Cluster)...)
	// Members that still ran were stopped and read after the question.
	if same := len(p.Unsurveyed) == 0; same && (r.Plan.Chosen != p.Plan.Chosen || r.Lost.Text != p.Plan.Loss.Text) {
		t.Errorf("planned was %s (%s), done %s (%s)", p.Plan.Chosen, p.Plan.Loss.Text, r.Plan.Chosen, r.Lost.Text)
	}
	acks := l.Acks()
	var end time.Time
	for _, a := range acks {
		if a.At.After(end) {
			end = a.At
		}
	}
	lacking := 0
	for _, h := range hosts {
		missing := l.Missing(t, "/load/", s.Client(t, h))
		for key, why := range missing {
			switch a := acks[key]; {
			case a.Revision <= archived:
				t.Errorf("%s: %s of revision %d %s, and the archive holds all up to %d", h.Name, key, a.Revision, why, archived)
			case bytes.Contains(logs, []byte(key)):
				t.Errorf("%s: %s %s, and a survivor's log holds it", h.Name, key, why)
			case end.Sub(a.At) > secondsBehind:
				t.Errorf("%s: %s %s, and was acknowledged %s before the end", h.Name, key, why, end.Sub(a.At))
			}
		}
		lacking = max(lacking, len(missing))
	}
	figure(t, "acknowledged writes", len(acks))
	figure(t, "writes lost", lacking)
	figure(t, "seconds to recover", r.RTO.Round(100*time.Millisecond).Seconds())
}

// log is all that the host's member has in its log.
func (h *Host) log(t *testing.T) []byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(h.DataDir, "member", "wal", "*.wal"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no log: %v", h.Name, err)
	}
	var all []byte
	for _, f := range files {
		data, err := os.ReadFile(f)
		require.NoError(t, err)
		all = append(all, data...)
	}
	return all
}
