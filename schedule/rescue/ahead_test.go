package rescue

import (
	"slices"
	"testing"
	"time"

	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/schedule/control/protocol"
	"github.com/requorum/requorum/schedule/rescue/config"
	"github.com/requorum/requorum/store/storetest"
)

// TestLackedRoles: a certificate that could only look is told of before anything is
// changed. Without the role for flags a recovery goes on.
func TestLackedRoles(t *testing.T) {
	ca := storetest.NewAuthority(t)
	var all []string
	for _, v := range protocol.Verbs() {
		all = append(all, v.Role())
	}
	for _, test := range []struct {
		roles, want []string
	}{
		{roles: all},
		{roles: slices.DeleteFunc(slices.Clone(all), func(r string) bool { return r == protocol.Flags.Role() })},
		{roles: slices.DeleteFunc(slices.Clone(all), func(r string) bool { return r == protocol.Stop.Role() }), want: []string{protocol.Stop.Role()}},
	} {
		cert, key := ca.IssueRoles(t, "operator", time.Hour, test.roles...)
		d := &driver{cfg: &config.Config{Control: config.Control{Cert: cert, Key: key}}}
		if missing, err := d.lackedRoles(); err != nil || !slices.Equal(missing, test.want) {
			t.Errorf("%v: lacks %v, %v; want %v", test.roles, missing, err, test.want)
		}
	}
}

// TestInTheClear: where the agents encrypt, a recovery does not end with a full
// snapshot that everybody can read.
func TestInTheClear(t *testing.T) {
	p := &Prospect{Findings: &recovery.Findings{Archives: []recovery.Archive{
		{Repository: "plain", Fulls: []recovery.Full{{Encrypted: true}, {}}},
		{Repository: "sealed", Fulls: []recovery.Full{{}, {Encrypted: true}}},
	}}}
	d := &driver{cfg: &config.Config{}}
	if got := d.inTheClear(p); got != "sealed" {
		t.Errorf("in the clear: %q", got)
	}
	if got := d.inTheClear(&Prospect{}); got != "" {
		t.Errorf("before the survey: %q", got)
	}
	d.cfg.RecipientsFiles = []string{"recipients"}
	if got := d.inTheClear(p); got != "" {
		t.Errorf("with recipients: %q", got)
	}
}

// TestPassphrase: what only a passphrase opens is told before anything is stopped, and
// not where another way leads to the same entry.
func TestPassphrase(t *testing.T) {
	t.Parallel()
	from := func(backup string) recovery.Source { return recovery.Source{Base: recovery.Base{Backup: backup}} }
	closed, open, own := from("closed"), from("open"), from("")
	for _, c := range []struct {
		name   string
		way    recovery.Source
		others []recovery.Source
		want   string
	}{
		{"a passphrase", closed, nil, "closed"},
		{"a key", open, nil, ""},
		{"another way", closed, []recovery.Source{own}, ""},
		{"no other way", closed, []recovery.Source{closed}, "closed"},
	} {
		c.way.Others = c.others
		p := &Prospect{
			Plan:     &recovery.Plan{Chosen: "archive:1-1", Candidates: []recovery.Candidate{{Name: "archive:1-1", Source: &c.way}}},
			Findings: &recovery.Findings{Archives: []recovery.Archive{{Fulls: []recovery.Full{{ID: "closed", Passphrase: true}, {ID: "open"}}}}},
		}
		if got := p.passphrase(); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
