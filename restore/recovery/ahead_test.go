package recovery

import (
	"testing"

	"github.com/requorum/requorum/restore/recovery/sources"
)

// TestInTheClear: where the agents encrypt, a recovery does not end with a full
// snapshot that everybody can read.
func TestInTheClear(t *testing.T) {
	p := &Preview{Findings: &sources.Findings{Archives: []sources.Archive{
		{Repository: "plain", Fulls: []sources.Full{{Encrypted: true}, {}}},
		{Repository: "sealed", Fulls: []sources.Full{{}, {Encrypted: true}}},
	}}}
	d := &coordinator{cfg: &Config{}}
	if got := d.inTheClear(p); got != "sealed" {
		t.Errorf("in the clear: %q", got)
	}
	if got := d.inTheClear(&Preview{}); got != "" {
		t.Errorf("before the survey: %q", got)
	}
	d.cfg.RecipientsFiles = []string{"recipients"}
	if got := d.inTheClear(p); got != "" {
		t.Errorf("with recipients: %q", got)
	}
}

// TestPassphrase: what only a passphrase opens is reported before anything is stopped, and
// not where another way leads to the same entry.
func TestPassphrase(t *testing.T) {
	t.Parallel()
	from := func(backup string) sources.Source { return sources.Source{Base: sources.Base{Backup: backup}} }
	closed, open, own := from("closed"), from("open"), from("")
	for _, c := range []struct {
		name   string
		way    sources.Source
		others []sources.Source
		want   string
	}{
		{"a passphrase", closed, nil, "closed"},
		{"a key", open, nil, ""},
		{"another way", closed, []sources.Source{own}, ""},
		{"no other way", closed, []sources.Source{closed}, "closed"},
	} {
		c.way.Others = c.others
		p := &Preview{
			Plan:     &sources.Plan{Chosen: "archive:1-1", Candidates: []sources.Candidate{{Name: "archive:1-1", Source: &c.way}}},
			Findings: &sources.Findings{Archives: []sources.Archive{{Fulls: []sources.Full{{ID: "closed", Passphrase: true}, {ID: "open"}}}}},
		}
		if got := p.passphrase(); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
