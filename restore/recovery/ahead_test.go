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
